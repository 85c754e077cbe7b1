"""A group of ranks as the rules for tensor parallelism know it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fx_passes.matching.match import NoMatchError

if TYPE_CHECKING:
    from fx_passes.matching.match import Match


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
