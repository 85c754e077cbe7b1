"""Length rules of fused attention: the lengths that the captured shapes allow.

The rules, from the operator's documentation (CANN ``aclnnFusedInferAttentionScore``):

- Ragged layouts (``TND``, ``NTD``): query lengths are cumulative over the batch and end at the
  number of query tokens. Key lengths are per sequence if the cache is paged, otherwise cumulative.
- Batched layouts (``BSH``, ``BSND``, ``BNSD``, ``NSD``): lengths are per sequence, either one for
  each or a single one for all.
- A paged sequence has at most (columns of the block table) x (block size) tokens.
- An uncompressed mask (sparse modes 0 and 1) has a column for each key.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

import torch

from attn_update.errors import ArgumentError, StepParameterError

if TYPE_CHECKING:
    from collections.abc import Mapping

# For each query layout: the dimension of its tokens (or of its positions in a sequence), and that
# of its batch, None where the batch is ragged or has one sequence.
_TOKEN_DIM = MappingProxyType({"TND": 0, "NTD": 1, "BSH": 1, "BSND": 1, "BNSD": 2, "NSD": 1})
_BATCH_DIM = MappingProxyType({"BSH": 0, "BSND": 0, "BNSD": 0})
_RAGGED = frozenset({"TND", "NTD"})
# Sparse modes whose mask is read as it is; the others take the compressed square.
_WHOLE_MASK = frozenset({0, 1})


@dataclass(frozen=True, kw_only=True)
class LengthRule:
    """The values that one argument of lengths may have.

    Attributes:
        count: Number of entries at capture; a graph is captured for one count.
        cumulative: Whether the entries are running sums.
        total: For cumulative lengths the value of the last entry; None if not fixed.
        maximum: The largest entry allowed (for cumulative lengths: in total); None if unbounded.
        bound: Where `maximum` or `total` comes from, for error messages.
    """

    count: int
    cumulative: bool
    total: int | None
    maximum: int | None
    bound: str

    def padded(self, lengths: list[int]) -> list[int]:
        """Return the lengths of a short batch, padded to `count`.

        Padding sequences of per-sequence lengths are empty. With cumulative lengths they share the
        remaining tokens evenly, so that a uniform decode batch stays uniform.
        """
        missing = self.count - len(lengths)
        if missing <= 0:
            return lengths
        if not self.cumulative:
            return lengths + [0] * missing
        used = lengths[-1] if lengths else 0
        left = 0 if self.total is None else max(self.total - used, 0)
        return lengths + [used + left * (index + 1) // missing for index in range(missing)]

    def shortened(self, count: int) -> LengthRule:
        """Return the rule of a step with fewer sequences, whose tokens need not fill the batch."""
        if not 0 < count < self.count:
            return self
        largest = self.maximum if self.total is None else self.total
        return replace(self, count=count, total=None, maximum=largest)

    def fits(self, lengths: list[int]) -> bool:
        """Return whether lengths are integers that satisfy the rule; costs a few passes in C."""
        if len(lengths) != self.count or not {int}.issuperset(map(type, lengths)):
            return False
        if not lengths:
            return True
        if self.cumulative:
            # sorted() checks a sorted list in one pass without a swap.
            if sorted(lengths) != lengths:
                return False
            smallest, largest = lengths[0], lengths[-1]
        else:
            smallest, largest = min(lengths), max(lengths)
        return (
            smallest >= 0
            and (self.total is None or lengths[-1] == self.total)
            and (self.maximum is None or largest <= self.maximum)
        )

    def check(self, lengths: list[int], *, what: str) -> None:
        """Reject integers that violate the rule, with an explanation.

        Raises:
            StepParameterError: A wrong count, a negative or too large length, decreasing cumulative
                lengths, or a wrong total.
        """
        if self.fits(lengths):
            return
        if len(lengths) != self.count:
            raise StepParameterError(
                f"checking {what}: expected {self.count} lengths as captured, found "
                f"{len(lengths)}; fill the batch up to its bucket, or declare pad=True",
            )
        for index, length in enumerate(lengths):
            if length < 0:
                raise StepParameterError(
                    f"checking {what}: the length at {index} is negative ({length})",
                )
            if self.cumulative and index and length < lengths[index - 1]:
                raise StepParameterError(
                    f"checking {what}: cumulative lengths must not fall, found "
                    f"{lengths[index - 1]} before {length} at {index}; give running sums, not "
                    f"lengths",
                )
        if self.total is not None and lengths[-1] != self.total:
            raise StepParameterError(
                f"checking {what}: the last cumulative length must be {self.total} "
                f"({self.bound}), found {lengths[-1]}",
            )
        largest = max(lengths)
        raise StepParameterError(
            f"checking {what}: the length {largest} at {lengths.index(largest)} is above "
            f"{self.maximum} ({self.bound})",
        )


class TensorForm(NamedTuple):
    """The form that a tensor of a step must have; any memory layout is allowed.

    Attributes:
        shape: Shape of the captured tensor.
        dtype: Dtype of the captured tensor.
        device: Device of the captured tensor.
    """

    shape: torch.Size
    dtype: torch.dtype
    device: torch.device

    @classmethod
    def of(cls, tensor: torch.Tensor) -> TensorForm:
        """Return the form of a tensor."""
        return cls(tensor.shape, tensor.dtype, tensor.device)


@dataclass(frozen=True, kw_only=True)
class AttentionGeometry:
    """The length rules of one captured launch, and the form of its block table.

    Attributes:
        query: The rule of the query lengths, None if none were given at capture.
        key: The rule of the key lengths, None if none were given at capture.
        block_table: The form of the block table, None without paging.
    """

    query: LengthRule | None
    key: LengthRule | None
    block_table: TensorForm | None


def tensor_argument(arguments: Mapping[str, object], name: str) -> torch.Tensor:
    """Return an argument that must be a tensor.

    Raises:
        ArgumentError: It is missing or something else.
    """
    value = arguments.get(name)
    if not isinstance(value, torch.Tensor):
        raise ArgumentError(
            f"reading the argument {name!r} of attention: expected a tensor, found "
            f"{type(value).__name__}",
        )
    return value


def read_geometry(
    arguments: Mapping[str, object],
    *,
    query_lengths: list[int] | None,
    key_lengths: list[int] | None,
) -> AttentionGeometry:
    """Return the length rules that follow from the arguments of a launch.

    Reads ``query``, ``key``, ``input_layout``, ``block_table``, ``block_size``, ``atten_mask``
    and ``sparse_mode``. The lengths are those of the captured launch.

    Raises:
        ArgumentError: The layout is unknown, or a tensor is missing.
        StepParameterError: The number of lengths does not match the batch or the block table.
    """
    query = tensor_argument(arguments, "query")
    layout = str(arguments.get("input_layout", "BSH"))
    query_layout = layout.partition("_")[0]
    if query_layout not in _TOKEN_DIM:
        raise ArgumentError(
            f"reading input_layout: expected a query layout of {', '.join(sorted(_TOKEN_DIM))}, "
            f"found {layout!r}",
        )
    query_rule = None
    if query_lengths is not None:
        _check_count("query", len(query_lengths), query, query_layout)
        query_rule = _query_rule(query, query_layout, len(query_lengths))
    key_rule = None
    if key_lengths is not None:
        _check_count("key", len(key_lengths), query, query_layout)
        key_rule = _key_rule(arguments, query_layout, len(key_lengths))
    if query_rule and key_rule and query_layout in _RAGGED and query_rule.count != key_rule.count:
        raise StepParameterError(
            f"reading the captured lengths: layout {layout} takes as many key lengths as query "
            f"lengths, found {key_rule.count} and {query_rule.count}",
        )
    table = arguments.get("block_table")
    form = TensorForm.of(table) if isinstance(table, torch.Tensor) else None
    return AttentionGeometry(query=query_rule, key=key_rule, block_table=form)


def _query_rule(query: torch.Tensor, layout: str, count: int) -> LengthRule:
    tokens = query.shape[_TOKEN_DIM[layout]]
    ragged = layout in _RAGGED
    return LengthRule(
        count=count,
        cumulative=ragged,
        total=tokens if ragged else None,
        maximum=None if ragged else tokens,
        bound=f"the query tokens captured in layout {layout}",
    )


def _key_rule(arguments: Mapping[str, object], layout: str, count: int) -> LengthRule:
    table = arguments.get("block_table")
    block_size = arguments.get("block_size", 0)
    maximum: int | None
    if isinstance(table, torch.Tensor) and isinstance(block_size, int):
        if table.ndim != 2 or count > table.shape[0]:
            raise StepParameterError(
                f"reading the captured key lengths: {count} sequences need a block table of as "
                f"many rows, found shape {tuple(table.shape)}",
            )
        cumulative = False
        maximum = table.shape[1] * block_size if block_size else None
        bound = f"{table.shape[1]} block table columns of {block_size} tokens"
    else:
        cumulative = layout in _RAGGED
        maximum = tensor_argument(arguments, "key").shape[_TOKEN_DIM[layout]]
        bound = f"the key tokens captured in layout {layout}"
    mask = arguments.get("atten_mask")
    if isinstance(mask, torch.Tensor) and arguments.get("sparse_mode", 0) in _WHOLE_MASK:
        columns = mask.shape[-1]
        if not cumulative and (maximum is None or columns < maximum):
            maximum, bound = columns, "the columns of the captured mask"
    return LengthRule(count=count, cumulative=cumulative, total=None, maximum=maximum, bound=bound)


def _check_count(name: str, count: int, query: torch.Tensor, layout: str) -> None:
    dim = _BATCH_DIM.get(layout)
    if dim is not None and count != 1 and count < query.shape[dim]:
        raise StepParameterError(
            f"reading the captured {name} lengths: layout {layout} takes one length for each of "
            f"{query.shape[dim]} sequences or one for all, found {count}",
        )
