"""Views and casts that change nothing, and pairs of views that make one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch.fx import Node

from fx_passes.errors import RuleError
from fx_passes.fusions.requirements import sizes_equal
from fx_passes.match import Match, NoMatch
from fx_passes.rule import Rule

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from fx_passes.graph_builder import GraphBuilder

__all__ = ["remove_noops"]


def _reshape(x: Tensor, shape: Sequence[int]) -> dict[str, Tensor]:
    return {"y": torch.ops.aten.reshape(x, shape)}


def _reshape_twice(x: Tensor, first: Sequence[int], shape: Sequence[int]) -> dict[str, Tensor]:
    return {"y": torch.ops.aten.reshape(torch.ops.aten.reshape(x, first), shape)}


def _slice(x: Tensor, dim: int, start: int | None, end: int | None, step: int) -> dict[str, Tensor]:
    return {"y": torch.ops.aten.slice.Tensor(x, dim, start, end, step)}


def _cast(x: Tensor, dtype: torch.dtype) -> dict[str, Tensor]:
    return {"y": torch.ops.aten.to.dtype(x, dtype)}


def _unsqueeze_squeeze(x: Tensor, dim: int) -> dict[str, Tensor]:
    return {"y": torch.ops.aten.squeeze.dim(torch.ops.aten.unsqueeze(x, dim), dim)}


def _nothing_changes(match: Match) -> NoMatch | None:
    tensors = match.tensors("x", "y")
    if isinstance(tensors, NoMatch):
        return tensors
    x, y = tensors
    if x.dtype != y.dtype or x.dim() != y.dim() or not all(map(sizes_equal, x.shape, y.shape)):
        return NoMatch(f"{list(x.shape)} {x.dtype} becomes {list(y.shape)} {y.dtype}")
    return None


def _input(match: Match, build: GraphBuilder) -> dict[str, Node]:
    del build
    x = match.bound["x"]
    if not isinstance(x, Node):
        raise RuleError(f"removing a no-op: its input is {x!r}, expected a node")
    return {"y": x}


def _one_reshape(match: Match, build: GraphBuilder) -> dict[str, Node]:
    y = match.value("y")
    return {"y": build.call("aten::reshape", match.bound["x"], match.bound["shape"], val=y)}


def remove_noops() -> tuple[Rule, ...]:
    """Return the rules that remove what only costs host time.

    A reshape, slice or cast whose result is its input; `squeeze` after `unsqueeze`; the first of
    two reshapes. All are exact. Places where the result differs are no near misses.
    """
    same = (
        ("remove_reshape", _reshape),
        ("remove_slice", _slice),
        ("remove_cast", _cast),
        ("remove_unsqueeze_squeeze", _unsqueeze_squeeze),
    )
    merge = Rule(
        name="merge_reshapes",
        patterns=(_reshape_twice,),
        rewrite=_one_reshape,
        shares_memory=True,
        reports_near_misses=False,
    )
    removals = (
        Rule(
            name=name,
            patterns=(pattern,),
            check=_nothing_changes,
            rewrite=_input,
            shares_memory=True,
            reports_near_misses=False,
        )
        for name, pattern in same
    )
    return (merge, *removals)
