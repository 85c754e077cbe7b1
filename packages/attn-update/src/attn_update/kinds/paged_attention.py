"""Paged attention of ATB: one query per sequence, lengths in a CPU tensor.

vLLM-Ascend uses it to decode small batches. Its workspace depends on the lengths, and the longest
do not need the most: the maximum is where the device splits a sequence into the most parts, at a
length that differs between devices (vLLM-Ascend found 6144 keys on one of them). Engines that
allocate it for the lengths of a step must query it in every step. Here it is allocated once, at
capture, for the maximum over all lengths.

Schemas: torch_npu 2.13.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from attn_update.errors import ArgumentError, StepParameterError
from attn_update.kinds.attention_geometry import (
    AttentionGeometry,
    LengthRule,
    TensorForm,
    tensor_argument,
)
from attn_update.kinds.fused_infer_attention import check_block_table
from attn_update.kinds.lengths import to_lengths
from attn_update.operator_lookup import check_argument_names, find_operator

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping

_OPERATOR = "atb::_npu_paged_attention"
_WORKSPACE_QUERY = "atb::_npu_paged_attention_get_workspace"
_MANAGED = frozenset({"workspace"})
_LENGTHS = "context_lens"
# A call of the query takes 15 to 90 us; longer sequences are asked for block by block.
_ASKED_FOR_EVERY_LENGTH = 16384


@dataclass(frozen=True, kw_only=True)
class PagedAttention:
    """The kind of ``_npu_paged_attention``; its step argument is ``context_lens``.

    Attributes:
        rebind_block_table: Whether a step may pass another ``block_table``. Otherwise the captured
            one is kept, and you write new block numbers into it.
    """

    rebind_block_table: bool = False

    @property
    def operator(self) -> str:
        """The single operator, which accepts a workspace and writes into ``out``."""
        return _OPERATOR

    @property
    def step_arguments(self) -> frozenset[str]:
        """The lengths, and the block table if it can be rebound."""
        return frozenset({_LENGTHS, "block_table"} if self.rebind_block_table else {_LENGTHS})

    def run(self, arguments: Mapping[str, object]) -> tuple[torch.Tensor, ...]:
        """Run the operator eagerly; into ``out`` if the caller passed it."""
        outputs = self.make_outputs(arguments)
        find_operator(_OPERATOR)(**self._complete(arguments, outputs))
        return outputs

    def check_arguments(self, arguments: Mapping[str, object]) -> None:
        """Reject arguments the operator does not have, and a workspace, which the recorder owns.

        Raises:
            ArgumentError: An argument is unknown, missing, or owned by the recorder.
        """
        check_argument_names(_OPERATOR, arguments, managed=_MANAGED)
        for name in ("query", "key_cache", "value_cache", "block_table"):
            tensor_argument(arguments, name)
        if arguments.get(_LENGTHS) is None:
            raise ArgumentError(
                f"checking the arguments of {_OPERATOR}: expected {_LENGTHS!r}, the keys of each "
                f"sequence, found none",
            )

    def workspace_bytes(self, arguments: Mapping[str, object]) -> int:
        """Return a number of bytes that suffices for all lengths that fit the block table.

        This is the maximum of the operator's query over sequences of equal length: for every
        length up to 16384 keys, then for each number of full blocks. The query returns a uint8
        tensor of that size; its memory is freed at once.
        """
        outputs = self.make_outputs(arguments)
        longest, _ = _capacity(arguments)
        block_size = tensor_argument(arguments, "key_cache").shape[1]
        lengths = torch.ones(tensor_argument(arguments, "query").shape[0], dtype=torch.int32)
        given = {**self._complete(arguments, outputs), _LENGTHS: lengths}
        query = find_operator(_WORKSPACE_QUERY)
        largest = 0
        every = min(longest, _ASKED_FOR_EVERY_LENGTH)
        for length in (*range(1, every + 1), *range(every, longest, block_size), longest):
            lengths.fill_(length)
            largest = max(largest, query(**given).numel())
        return largest

    def make_outputs(self, arguments: Mapping[str, object]) -> tuple[torch.Tensor, ...]:
        """Return ``out`` if given, else a new one: [sequences, heads, value dim]."""
        out = arguments.get("out")
        if isinstance(out, torch.Tensor):
            return (out,)
        query = tensor_argument(arguments, "query")
        value_dim = tensor_argument(arguments, "value_cache").shape[-1]
        return (query.new_empty((*query.shape[:-1], value_dim)),)

    def launch_arguments(
        self,
        arguments: Mapping[str, object],
        outputs: tuple[torch.Tensor, ...],
        workspace: torch.Tensor,
    ) -> dict[str, object]:
        """Return the keyword arguments of the operator."""
        return {**self._complete(arguments, outputs), "workspace": workspace}

    def persistent_arguments(self, arguments: Mapping[str, object]) -> frozenset[str]:
        """Return the caches, and the block table unless every step replaces it."""
        del arguments
        caches = {"key_cache", "value_cache"}
        return frozenset(caches if self.rebind_block_table else caches | {"block_table"})

    def geometry(self, arguments: Mapping[str, object]) -> AttentionGeometry:
        """Return the length rule of the shapes, after checking the captured lengths against it.

        Raises:
            StepParameterError: The captured lengths violate it.
        """
        table = tensor_argument(arguments, "block_table")
        longest, bound = _capacity(arguments)
        rule = LengthRule(
            count=tensor_argument(arguments, "query").shape[0],
            cumulative=False,
            total=None,
            maximum=longest,
            bound=bound,
        )
        what = f"the captured {_LENGTHS}"
        rule.check(to_lengths(arguments[_LENGTHS], what=what), what=what)
        return AttentionGeometry(query=None, key=rule, block_table=TensorForm.of(table))

    def prepare(
        self,
        values: Mapping[str, object],
        geometry: Hashable,
        *,
        pad: bool,
        what: str,
    ) -> dict[str, object]:
        """Return the step's lengths as a checked CPU tensor, and its block table unchanged."""
        assert isinstance(geometry, AttentionGeometry)  # noqa: S101
        assert geometry.key is not None  # noqa: S101
        prepared: dict[str, object] = {}
        if _LENGTHS in values:
            lengths = to_lengths(values[_LENGTHS], what=f"{_LENGTHS!r} of {what}")
            if pad:
                lengths = geometry.key.padded(lengths)
            geometry.key.check(lengths, what=f"{_LENGTHS!r} of {what}")
            prepared[_LENGTHS] = _as_tensor(lengths)
        if "block_table" in values:
            table = values["block_table"]
            prepared["block_table"] = check_block_table(table, geometry, what=what)
        return prepared

    def _complete(
        self, arguments: Mapping[str, object], outputs: tuple[torch.Tensor, ...]
    ) -> dict[str, Any]:
        lengths = to_lengths(arguments[_LENGTHS], what=_LENGTHS)
        return {**arguments, _LENGTHS: _as_tensor(lengths), "out": outputs[0]}


def _as_tensor(lengths: list[int]) -> torch.Tensor:
    """Return a new tensor, which the caller of a step cannot change any more."""
    return torch.tensor(lengths, dtype=torch.int32)


def _capacity(arguments: Mapping[str, object]) -> tuple[int, str]:
    """Return the maximum number of keys of a sequence, and what limits it."""
    table = tensor_argument(arguments, "block_table")
    query = tensor_argument(arguments, "query")
    if table.ndim != 2 or table.shape[0] < query.shape[0]:
        raise StepParameterError(
            f"reading 'block_table' of {_OPERATOR}: {query.shape[0]} sequences need as many rows, "
            f"found shape {tuple(table.shape)}",
        )
    block_size = tensor_argument(arguments, "key_cache").shape[1]
    return table.shape[1] * block_size, (
        f"{table.shape[1]} block table columns of {block_size} tokens"
    )
