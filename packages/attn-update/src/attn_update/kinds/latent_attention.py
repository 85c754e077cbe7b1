"""Multi-head latent attention (MLA): queries and compressed keys with separate rotary parts.

The operator accepts only powers of two of query heads (CANN, ``aclnnFusedInferAttentionScore``: 1
to 128 with a head dimension of 512). A model with another number calls this kind with its own
number: query and outputs are padded here, and the model gets its own heads back.
"""

from __future__ import annotations

from dataclasses import dataclass
from operator import sub
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import torch

from attn_update.errors import ArgumentError, StepParameterError
from attn_update.kinds.attention_geometry import tensor_argument
from attn_update.kinds.fused_infer_attention import FusedInferAttention

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping

    from attn_update.kinds.attention_geometry import AttentionGeometry

    _Widen = Callable[[torch.Tensor, int, int], torch.Tensor]

# The dimension of the heads in a query, by its layout, and in an attention output, by that part of
# the layout. The logarithms of the softmax sums always have it at 1.
_QUERY_HEADS = MappingProxyType({"TND": 1, "NTD": 0, "BNSD": 1, "BSND": 2})
_OUTPUT_HEADS = MappingProxyType({"TND": 1, "NTD": 0, "BNSD": 1, "BSND": 2, "NBSD": 0})
_LSE_HEADS = 1
# What has the heads where the query has them; the last comes with queries in int8, of v2 only.
_WITH_QUERY_HEADS = ("query", "query_rope", "dequant_scale_query")
_MOST_HEADS = 128
_MOST_QUERY_TOKENS = 16


@dataclass(frozen=True, kw_only=True)
class LatentAttention(FusedInferAttention):
    """Latent attention over one family of fused operators.

    Layouts: ``BNSD``, ``BSND``, ``BNSD_NBSD``, ``BSND_NBSD`` (the same number of query tokens, one
    or more, for every sequence), ``TND`` and ``TND_NTD`` (ragged, as with speculation). The part
    after the underscore is the layout of the output.
    """

    def check_arguments(self, arguments: Mapping[str, object]) -> None:
        """Reject arguments that latent attention does not support, before anything is launched.

        Raises:
            ArgumentError: As for the operator; also one rotary part without the other, a number of
                heads that differs from the query's, too many heads, a layout in which heads
                cannot be padded, or outputs in which heads are.
        """
        super().check_arguments(arguments)
        self._check_complete(self.complete(arguments))

    def run_complete(self, given: Mapping[str, Any]) -> tuple[torch.Tensor, ...]:
        """Run the operator eagerly on padded heads, and return the model's heads."""
        if not self._missing(given):
            return super().run_complete(given)
        self._check_complete(given)
        return self._own_heads(given, super().run_complete(given))

    def passed(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return complete arguments with padded heads, which takes the current stream."""
        return self._pad(given, _pad_dimension)

    def shapes(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return complete arguments with padded heads, for queries that only read shapes."""
        return self._pad(given, _widen_dimension)

    def outputs_for(self, given: Mapping[str, Any]) -> tuple[torch.Tensor, ...]:
        """Return ``out`` if given, else the model's heads of new outputs with padded ones."""
        outputs = super().outputs_for(given)
        return self._own_heads(given, outputs) if self._missing(given) else outputs

    def launch_complete(
        self, given: Mapping[str, Any], outputs: tuple[torch.Tensor, ...]
    ) -> dict[str, object]:
        """Return the launch; the query is padded on the current stream."""
        if self._missing(given):
            outputs = self._all_heads(given, outputs)
        return super().launch_complete(given, outputs)

    def prepare(
        self,
        values: Mapping[str, object],
        geometry: Hashable,
        *,
        pad: bool,
        what: str,
    ) -> dict[str, object]:
        """Return the step's lengths as checked lists; a sequence has at most 16 query tokens."""
        prepared = super().prepare(values, geometry, pad=pad, what=what)
        name = self.family.query_lengths
        self._check_query_tokens(prepared.get(name), geometry, what=f"{name!r} of {what}")
        return prepared

    def geometry(self, arguments: Mapping[str, object]) -> AttentionGeometry:
        """Return the length rules of the shapes, after checking the captured lengths."""
        geometry = super().geometry(arguments)
        name = self.family.query_lengths
        captured = self.complete(arguments).get(name)
        self._check_query_tokens(captured, geometry, what=f"the captured {name}")
        return geometry

    def _check_query_tokens(self, lengths: object, geometry: Any, *, what: str) -> None:
        if not isinstance(lengths, list) or not geometry.query.cumulative:
            return
        longest = max(map(sub, lengths, [0, *lengths]), default=0)
        if longest > _MOST_QUERY_TOKENS:
            raise StepParameterError(
                f"checking {what}: a sequence has {longest} query tokens, and latent attention "
                f"takes at most {_MOST_QUERY_TOKENS}; cumulative lengths grow by the tokens of "
                f"each sequence",
            )

    def _check_complete(self, given: Mapping[str, Any]) -> None:
        what = f"checking the arguments of latent attention, {self.operator}"
        layout = str(given.get("input_layout", "BSH"))
        query_layout, _, output_layout = layout.partition("_")
        if query_layout not in _QUERY_HEADS or (output_layout or "TND") not in _OUTPUT_HEADS:
            raise ArgumentError(
                f"{what}: expected a layout whose heads are a dimension, such as TND, BNSD or "
                f"BNSD_NBSD, found {layout!r}",
            )
        heads = given.get(self.family.heads)
        if not isinstance(heads, int) or not 0 < heads <= _MOST_HEADS:
            raise ArgumentError(
                f"{what}: expected 1 to {_MOST_HEADS} query heads as {self.family.heads!r}, found "
                f"{heads!r}",
            )
        tensor_argument(given, "key_rope")
        for name in ("query", "query_rope"):
            found = tensor_argument(given, name).shape[_QUERY_HEADS[query_layout]]
            if found != heads:
                raise ArgumentError(
                    f"{what}: expected {heads} heads in {name!r}, as {self.family.heads!r} says, "
                    f"found {found} in layout {query_layout}",
                )
        if self._missing(given) and given.get("out") is not None:
            raise ArgumentError(
                f"{what}: {heads} heads are padded to {padded_heads(heads)}, so outputs cannot be "
                f"given; leave 'out' out",
            )

    def _missing(self, given: Mapping[str, Any]) -> int:
        heads = int(given.get(self.family.heads, 1))
        return padded_heads(heads) - heads

    def _pad(self, given: Mapping[str, Any], widen: _Widen) -> dict[str, Any]:
        missing = self._missing(given)
        if not missing:
            return dict(given)
        dimension = _QUERY_HEADS[str(given["input_layout"]).partition("_")[0]]
        widened = {
            name: widen(given[name], dimension, missing)
            for name in _WITH_QUERY_HEADS
            if given.get(name) is not None
        }
        return {**given, **widened, self.family.heads: given[self.family.heads] + missing}

    def _own_heads(
        self, given: Mapping[str, Any], outputs: tuple[torch.Tensor, ...]
    ) -> tuple[torch.Tensor, ...]:
        heads = given[self.family.heads]
        attention, lse = outputs
        own_lse = lse.narrow(_LSE_HEADS, 0, heads) if lse.ndim > _LSE_HEADS else lse
        return attention.narrow(_output_dimension(given), 0, heads), own_lse

    def _all_heads(
        self, given: Mapping[str, Any], outputs: tuple[torch.Tensor, ...]
    ) -> tuple[torch.Tensor, ...]:
        """Undo `_own_heads`: the padded heads are in the same memory, after the own ones."""
        heads = padded_heads(given[self.family.heads])
        attention, lse = outputs
        all_lse = _widened_view(lse, _LSE_HEADS, heads) if lse.ndim > _LSE_HEADS else lse
        return _widened_view(attention, _output_dimension(given), heads), all_lse


def padded_heads(heads: int) -> int:
    """Return the number of heads that the operator gets: the next power of two."""
    return 1 << (heads - 1).bit_length()


def _output_dimension(given: Mapping[str, Any]) -> int:
    query_layout, _, output_layout = str(given["input_layout"]).partition("_")
    return _OUTPUT_HEADS[output_layout or query_layout]


def _pad_dimension(tensor: torch.Tensor, dimension: int, missing: int) -> torch.Tensor:
    later = [0, 0] * (tensor.ndim - 1 - dimension)
    return torch.nn.functional.pad(tensor, [*later, 0, missing])


def _widen_dimension(tensor: torch.Tensor, dimension: int, missing: int) -> torch.Tensor:
    shape = list(tensor.shape)
    shape[dimension] += missing
    return tensor.new_empty(shape)


def _widened_view(tensor: torch.Tensor, dimension: int, size: int) -> torch.Tensor:
    shape = list(tensor.shape)
    shape[dimension] = size
    return tensor.as_strided(shape, tensor.stride(), tensor.storage_offset())
