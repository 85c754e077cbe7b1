"""Groups of ranks, and the functional collectives that rules have in patterns and in rewrites."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from fx_passes.matching.match import NoMatchError

if TYPE_CHECKING:
    from torch import Tensor
    from torch.fx import Node

    from fx_passes.matching.match import Match
    from fx_passes.rewriting.graph_builder import GraphBuilder


ALL_REDUCE = "_c10d_functional::all_reduce"
ALL_GATHER = "_c10d_functional::all_gather_into_tensor"
REDUCE_SCATTER = "_c10d_functional::reduce_scatter_tensor"
WAIT = "_c10d_functional::wait_tensor"


def reduced(x: Tensor, operation: str, group: str) -> Tensor:
    """Return the tensors of all ranks, reduced; for use in a pattern."""
    collectives = torch.ops._c10d_functional  # noqa: SLF001 - the name of the namespace
    waited: Tensor = collectives.wait_tensor(collectives.all_reduce(x, operation, group))
    return waited


def gathered(shard: Tensor, size: int, group: str) -> Tensor:
    """Return the tensors of all ranks, concatenated; for use in a pattern."""
    collectives = torch.ops._c10d_functional  # noqa: SLF001 - the name of the namespace
    waited: Tensor = collectives.wait_tensor(collectives.all_gather_into_tensor(shard, size, group))
    return waited


def build_collective(build: GraphBuilder, collective: str, *args: object, val: object) -> Node:
    """Build a collective and the wait for it."""
    return build.call(WAIT, build.call(collective, *args, val=val), val=val)


@dataclass(frozen=True, kw_only=True)
class ParallelGroup:
    """A process group whose collectives a graph calls.

    Attributes:
        name: Name of the group, as the functional collectives in the graph have it.
        rank: Rank of this process in the group.
        size: Number of ranks.
        communicator: Name of the HCCL communicator for kernels that communicate themselves, as
            `get_hccl_comm_name(rank)` of the group's backend gives it; empty if there is none.
    """

    name: str
    rank: int
    size: int
    communicator: str = ""


def group_of(match: Match, groups: tuple[ParallelGroup, ...]) -> ParallelGroup:
    """Return the group that a match's parameter `group` names.

    Raises:
        NoMatchError: There is none.
    """
    name = match.bound["group"]
    for group in groups:
        if group.name == name:
            return group
    known = ", ".join(repr(group.name) for group in groups) or "none"
    raise NoMatchError(f"the group {name!r} is not one of those the rule was made for: {known}")
