"""A product for each head and the transposition before or after it, in one operator."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from fx_passes.matching.combined_pattern import calling, combine, given, result
from fx_passes.matching.match import Match, NoMatch
from fx_passes.matching.requirements import (
    dtype_in,
    on_npu,
    rank_is,
    same_dtype,
    sizes_equal,
)
from fx_passes.memory import shows_layout
from fx_passes.rewriting.rule import Rule

if TYPE_CHECKING:
    from torch.fx import Node

    from fx_passes.rewriting.graph_builder import GraphBuilder


_ALIGNMENT = 128
_LARGEST = 65535
_SWAPPED, _AS_IT_IS = [1, 0, 2], [0, 1, 2]


_aten = torch.ops.aten
# Those that take more in come first: without it what they leave is a view that costs nothing.
_PATTERNS = tuple(
    combine(opening, calling(product, weight="Tensor"), closing, result)
    for swap, closing in (
        (
            calling(_aten.transpose.int, x_first="int", x_second="int"),
            calling(_aten.transpose.int, first="int", second="int"),
        ),
        (
            calling(_aten.permute.default, x_order="Sequence[int]"),
            calling(_aten.permute.default, order="Sequence[int]"),
        ),
    )
    for opening in (swap, given)
    for product in (_aten.bmm.default, _aten.matmul.default)
)


def _swaps(match: Match, prefix: str) -> bool | None:
    """Return whether dimensions are exchanged: the first two, others (None), or none at all."""
    bound = match.bound
    if f"{prefix}order" in bound:
        order = bound[f"{prefix}order"]
        if not isinstance(order, (list, tuple)) or not all(isinstance(dim, int) for dim in order):
            return None
        return True if [dim % 3 for dim in order] == _SWAPPED else None
    if f"{prefix}first" not in bound:
        return False
    dims = bound[f"{prefix}first"], bound[f"{prefix}second"]
    if not all(isinstance(dim, int) for dim in dims):
        return None
    return True if {int(dim) % 3 for dim in dims} == {0, 1} else None  # type: ignore[call-overload]


def _check(match: Match) -> NoMatch | None:
    unmet = (
        on_npu(match, "x", "weight")
        or same_dtype(match, "x", "weight", "y")
        or dtype_in(match, "x", torch.bfloat16, torch.float16, torch.float32)
        or rank_is(match, 3, "x", "weight")
    )
    if unmet is not None:
        return unmet
    swapped = _swaps(match, "x_")
    if swapped is None or not _swaps(match, ""):
        return NoMatch("dimensions are exchanged that are not the first two")
    problem = _size_problem(match, swapped=swapped)
    if problem is not None:
        return problem
    reader = shows_layout(match.outputs["y"], match.effects)
    if reader is not None:
        return NoMatch(f"`{reader.name}` shows how the result is laid out", (reader,))
    return None


def _size_problem(match: Match, *, swapped: bool) -> NoMatch | None:
    x, weight = match.tensor("x"), match.tensor("weight")
    batch, inner, columns = x.shape[1 if swapped else 0], x.shape[2], weight.shape[2]
    if not sizes_equal(weight.shape[0], batch):
        return NoMatch(
            f"{weight.shape[0]} matrices for a batch of {batch}; the kernel does not broadcast"
        )
    problems = (
        _limit_problem("batch", batch),
        _limit_problem("inner size", inner, multiple=_ALIGNMENT),
        _limit_problem("number of columns", columns, multiple=_ALIGNMENT),
        _limit_problem("size of a token's heads", batch * inner) if swapped else None,
    )
    reason = next(filter(None, problems), None)
    return None if reason is None else NoMatch(reason)


def _limit_problem(name: str, size: object, *, multiple: int = 1) -> str | None:
    """Return why the kernel does not take a size; one that is symbolic may be anything."""
    if not isinstance(size, int) or not 0 < size <= _LARGEST or size % multiple:
        kind = f"multiples of {multiple}" if multiple > 1 else "numbers"
        return f"the {name} is {size}; the kernel takes {kind} from 1 to {_LARGEST}"
    return None


def _rewrite(match: Match, build: GraphBuilder) -> dict[str, Node]:
    y = match.tensor("y")
    fused = build.call(
        "npu::npu_transpose_batchmatmul",
        *match.arguments("x", "weight"),
        perm_x1=_SWAPPED if _swaps(match, "x_") else _AS_IT_IS,
        perm_x2=_AS_IT_IS,
        perm_y=_SWAPPED,
        # Contiguous, where the transposed product was not.
        val=y.new_empty(y.shape),
    )
    return {"y": fused}


def fuse_batch_matmul_transpose() -> Rule:
    """Return the rule `bmm` and `transpose(0, 1)` to `npu_transpose_batchmatmul`.

    Matches the head projections of latent attention (MLA) with absorbed weights:
    `[tokens, heads, inner]` times `[heads, inner, columns]`. With and without the same
    transposition before the product; written as `transpose` or `permute`, `bmm` or `matmul` of
    three dimensions. The result is contiguous, so a later reshape does not copy.

    Source of the table: aclnnTransposeBatchMatMul accepts x1 and x2 of the same dtype (float32,
    float16 or bfloat16); the batch and the columns below 65536, and also the inner size, times the
    batch if x1 has tokens first. Older releases of CANN reject an inner size or columns that are
    not multiples of 128. The kernel may add in another order: the numerics are `rounding`.
    """
    return Rule(
        name="fuse_batch_matmul_transpose",
        patterns=_PATTERNS,
        check=_check,
        rewrite=_rewrite,
        operators=("npu::npu_transpose_batchmatmul",),
        numerics="rounding",
    )
