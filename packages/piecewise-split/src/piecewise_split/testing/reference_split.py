"""Torch's own splitter, driven by our plan: slow and independent, so a reference."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch.fx.passes.split_module import split_module

if TYPE_CHECKING:
    from piecewise_split.planning.split_plan import SplitPlan


def reference_split(graph_module: torch.fx.GraphModule, plan: SplitPlan) -> torch.fx.GraphModule:
    """Split a graph as planned with ``torch.fx.passes.split_module``, in its original order.

    Nodes that the plan does not place (sizes taken apart, constants) go to the piece of their
    first argument or first user. Values of type ``torch.Size`` may cross cuts.

    Args:
        graph_module: The graph that the plan was made from; not changed.
        plan: Says which piece each node is in.

    Returns:
        A module that calls ``submod_<index>`` for each piece in order.
    """
    piece_of = {name: piece.index for piece in plan.pieces for name in piece.nodes}
    place: dict[torch.fx.Node, int] = {}
    for node in graph_module.graph.nodes:
        sources = [place[used] for used in node.all_input_nodes if used in place]
        place[node] = piece_of.get(node.name, max(sources, default=0))
    for node in reversed(graph_module.graph.nodes):
        if node.op == "get_attr":
            place[node] = min((place[user] for user in node.users), default=0)
    return split_module(
        graph_module, torch.nn.Module(), place.__getitem__, keep_original_order=True
    )
