"""RoPE by rotating halves, raised to `npu::npu_rotary_mul`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from fx_passes.errors import RuleError
from fx_passes.matching.match import Match, NoMatch
from fx_passes.matching.requirements import Requirement, first_unmet, sizes_equal
from fx_passes.raising.memory_layout import dense_like, layout_problem
from fx_passes.rewriting.rule import Rule

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor
    from torch.fx import Node

    from fx_passes.rewriting.graph_builder import GraphBuilder

__all__ = ["raise_rotary"]

# Of aclnnRotaryPositionEmbedding: [batch, heads, sequence, dim] in any order of the middle two.
_RANK = 4


def _sliced(
    x: Tensor,
    cos: Tensor,
    sin: Tensor,
    dim: int,
    start: int | None,
    middle: int,
    next_middle: int,
    end: int | None,
    cat_dim: int,
) -> dict[str, Tensor]:
    first = torch.ops.aten.slice.Tensor(x, dim, start, middle, 1)
    second = torch.ops.aten.slice.Tensor(x, dim, next_middle, end, 1)
    return {"y": x * cos + torch.cat((-second, first), cat_dim) * sin}


def _chunked(x: Tensor, cos: Tensor, sin: Tensor, dim: int, cat_dim: int) -> dict[str, Tensor]:
    halves = torch.ops.aten.chunk(x, 2, dim)
    return {"y": x * cos + torch.cat((-halves[1], halves[0]), cat_dim) * sin}


def _split(
    x: Tensor, cos: Tensor, sin: Tensor, size: int, dim: int, cat_dim: int
) -> dict[str, Tensor]:
    halves = torch.ops.aten.split.Tensor(x, size, dim)
    return {"y": x * cos + torch.cat((-halves[1], halves[0]), cat_dim) * sin}


_REQUIREMENTS = (
    Requirement.on_npu("x"),
    Requirement.dtype_in("x", torch.bfloat16, torch.float16, torch.float32),
    Requirement.same_dtype("x", "cos", "sin"),
    Requirement.rank("x", _RANK),
    Requirement.rank("cos", _RANK),
    Requirement.same_shape("x", "y"),
    Requirement.same_shape("cos", "sin"),
)


def _check(match: Match) -> NoMatch | None:
    unmet = first_unmet(match, *_REQUIREMENTS)
    return unmet or _halves_problem(match) or _angles_problem(match) or layout_problem(match, "y")


def _halves_problem(match: Match) -> NoMatch | None:
    """Return why what is rotated is not the two halves of the last dimension."""
    tensors = match.tensors("x")
    if isinstance(tensors, NoMatch):
        return tensors
    (x,) = tensors
    bound, size = match.bound, x.shape[-1]
    for name in ("dim", "cat_dim"):
        if bound[name] not in {-1, x.dim() - 1}:
            return NoMatch(
                f"the halves are along dimension {bound[name]} of {x.dim()}, not the last"
            )
    if not _is_even(size):
        return NoMatch(f"the last dimension must be an even number, found {size}")
    if "size" in bound and bound["size"] != size // 2:
        return NoMatch(f"parts of {bound['size']} are not the halves of {size}")
    return _slices_problem(bound, size) if "start" in bound else None


def _is_even(size: object) -> bool:
    return isinstance(size, int) and size % 2 == 0


def _slices_problem(bound: Mapping[str, object], size: int) -> NoMatch | None:
    cut = (
        _place(bound["start"], 0, size),
        _place(bound["middle"], size, size),
        _place(bound["next_middle"], 0, size),
        _place(bound["end"], size, size),
    )
    if cut != (0, size // 2, size // 2, size):
        return NoMatch(
            f"the slices [{bound['start']}:{bound['middle']}] and "
            f"[{bound['next_middle']}:{bound['end']}] are not the two halves of {size}"
        )
    return None


def _place(bound: object, default: int, size: int) -> object:
    """Return where in a dimension a bound of a slice is."""
    if bound is None:
        return default
    if not isinstance(bound, int):
        return bound
    return max(bound + size, 0) if bound < 0 else min(bound, size)


def _angles_problem(match: Match) -> NoMatch | None:
    """Return why the kernel cannot spread the cosines over x."""
    tensors = match.tensors("x", "cos")
    if isinstance(tensors, NoMatch):
        return tensors
    x, cos = tensors
    pairs = list(zip(cos.shape, x.shape, strict=True))
    if not sizes_equal(*pairs[-1]) or not all(
        sizes_equal(mine, 1) or sizes_equal(mine, theirs) for mine, theirs in pairs
    ):
        return NoMatch(
            f"`cos` has shape {list(cos.shape)} and `x` {list(x.shape)}; the kernel takes 1 or the "
            "same size in each dimension, and the same in the last"
        )
    return None


def _rewrite(match: Match, build: GraphBuilder) -> dict[str, Node]:
    bound, y = match.bound, match.value("y")
    if not isinstance(y, torch.Tensor):
        raise RuleError("building npu_rotary_mul: the match was not checked")
    rotated = build.call(
        "npu::npu_rotary_mul", bound["x"], bound["cos"], bound["sin"], val=dense_like(y)
    )
    return {"y": rotated}


def raise_rotary() -> tuple[Rule, ...]:
    """Return the rule `x * cos + cat(-x2, x1) * sin` to `npu_rotary_mul`.

    x1 and x2 are the first and second half of the last dimension, by slices, `chunk` or `split`;
    every order of the products and of the sum. One operator for q and one for k. A partial RoPE is
    raised on the part that is rotated. Rotating neighbours (interleaved) is not.

    The torch operators round both products to the dtype of x before they add, the kernel rounds
    once: the numerics are `rounding`. Source of the limits: aclnnRotaryPositionEmbedding takes
    float32, float16 and bfloat16 of 4 dimensions.
    """
    rule = Rule(
        accepts_cost=True,
        name="raise_rotary",
        patterns=(_sliced, _chunked, _split),
        check=_check,
        rewrite=_rewrite,
        operators=("npu::npu_rotary_mul",),
        numerics="rounding",
    )
    return (rule,)
