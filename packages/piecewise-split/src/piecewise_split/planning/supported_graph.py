"""Checks that a graph can be split without changing its meaning."""

from __future__ import annotations

from typing import TYPE_CHECKING

from piecewise_split.errors import UnsupportedGraphError
from piecewise_split.torch_internals import (
    MODE_ENTERS,
    MODE_EXITS,
    SET_GRAD_ENABLED,
    special_calling_convention,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch

    from piecewise_split.planning.analysed_graph import PieceNodes


def check_supported(graph_module: torch.fx.GraphModule) -> None:
    """Reject a graph whose calling convention is not that of a plain function.

    Raises:
        UnsupportedGraphError: The graph flattens its arguments itself (``torch.export`` modules
            do), or has variadic parameters.
    """
    graph = graph_module.graph
    convention = special_calling_convention(graph)
    if convention is not None:
        raise UnsupportedGraphError(
            f"Splitting a graph: it has the calling convention {convention}, which "
            f"rearranges arguments. Expected a plain graph, as Dynamo and AOTAutograd pass to a "
            f"backend; for an exported program use its graph_module, whose arguments are flat."
        )
    for node in graph.nodes:
        if node.op == "placeholder" and str(node.target).startswith("*"):
            raise UnsupportedGraphError(
                f"Splitting a graph: parameter {node.target!r} is variadic; expected named "
                f"positional parameters only. Trace with one parameter for each argument."
            )


def check_regions(pieces: Sequence[PieceNodes]) -> None:
    """Reject autocast and grad-mode regions that do not end in the piece in which they begin.

    A captured piece does not run its Python again, so a mode that it leaves open would be missing
    when the next piece runs.

    Raises:
        UnsupportedGraphError: A region crosses a cut.
    """
    if len(pieces) < 2:
        return
    modes = [node for piece in pieces for node in piece.nodes if node.target is SET_GRAD_ENABLED]
    # A graph leaves grad mode as it found it, so its last setting is the one from outside.
    outside = modes[-1].args[0] if modes else None
    for index, piece in enumerate(pieces):
        left = _left_open(piece.nodes, outside)
        if left is not None:
            name = getattr(left.target, "__name__", left.target)
            raise UnsupportedGraphError(
                f"Splitting a graph: piece {index} changes a mode at node {left.name!r} ({name}) "
                f"and the mode ends in another piece. Enter it outside the compiled function, or "
                f"end it before the splitting op."
            )


def _left_open(nodes: Sequence[torch.fx.Node], outside: object) -> torch.fx.Node | None:
    """Return a node that changes a mode that later nodes do not restore, or None."""
    opened: dict[object, torch.fx.Node] = {}
    mode: torch.fx.Node | None = None
    for node in nodes:
        if node.target is SET_GRAD_ENABLED:
            mode = node
        elif node.target in MODE_ENTERS:
            opened[node] = node
        elif node.target in MODE_EXITS:
            opened.pop(node.args[0], None)
    if mode is not None and mode.args[0] != outside:
        return mode
    return next(iter(opened.values()), None)
