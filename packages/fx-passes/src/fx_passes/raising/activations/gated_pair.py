"""Conditions and arguments of `activation(gate) * up` where gate and up are two tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from fx_passes.matching.requirements import Requirement, first_unmet
from fx_passes.raising.memory_layout import layout_problem

if TYPE_CHECKING:
    from torch.fx import Node

    from fx_passes.matching.match import Match, NoMatch
    from fx_passes.rewriting.graph_builder import GraphBuilder


_REQUIREMENTS = (
    Requirement.on_npu("gate"),
    Requirement.dtype_in("gate", torch.bfloat16, torch.float16, torch.float32),
    Requirement.dtype_in("up", torch.bfloat16, torch.float16, torch.float32),
    Requirement.same_shape("gate", "up"),
)


def pair_problem(match: Match) -> NoMatch | None:
    """Return why a kernel on two adjacent halves does not support `gate` and `up`."""
    return first_unmet(match, *_REQUIREMENTS) or layout_problem(match, "y")


def side_by_side(match: Match, build: GraphBuilder) -> Node:
    """Build the concatenation of `gate` and `up` along the last dimension.

    If one of them is float32, so is their product, and so is the concatenation.
    """
    return build.call("aten::cat", [match.bound["gate"], match.bound["up"]], -1)
