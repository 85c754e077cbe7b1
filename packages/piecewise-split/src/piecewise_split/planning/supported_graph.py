"""Checks that a graph can be split without changing its meaning."""

from __future__ import annotations

from typing import TYPE_CHECKING

from piecewise_split.errors import UnsupportedGraphError
from piecewise_split.torch_internals import (
    mode_enters,
    mode_exits,
    set_grad_mode,
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
        msg = (
            f"Splitting a graph: it has the calling convention {convention}, which "
            f"rearranges arguments. Expected a plain graph, as Dynamo and AOTAutograd pass to a "
            f"backend; for an exported program use its graph_module, whose arguments are flat."
        )
        raise UnsupportedGraphError(msg)
    for node in graph.nodes:
        if node.op == "placeholder" and str(node.target).startswith("*"):
            msg = (
                f"Splitting a graph: parameter {node.target!r} is variadic; expected named "
                f"positional parameters only. Trace with one parameter for each argument."
            )
            raise UnsupportedGraphError(msg)


def check_regions(pieces: Sequence[PieceNodes]) -> None:
    """Reject autocast and grad-mode regions that do not end in the piece in which they begin.

    A captured piece does not run its Python again, so a mode that it leaves open would be missing
    when the next piece runs.

    Raises:
        UnsupportedGraphError: A region crosses a cut.
    """
    if len(pieces) < 2:
        return
    regions = _Regions(pieces)
    for index, piece in enumerate(pieces):
        left = regions.left_open(piece.nodes)
        if left is not None:
            name = getattr(left.target, "__name__", left.target)
            msg = (
                f"Splitting a graph: piece {index} changes a mode at node {left.name!r} ({name}) "
                f"and the mode ends in another piece. Enter it outside the compiled function, or "
                f"end it before the splitting op."
            )
            raise UnsupportedGraphError(msg)


class _Regions:
    """The functions that Dynamo inserts into a graph to enter and leave modes."""

    def __init__(self, pieces: Sequence[PieceNodes]) -> None:
        self._set_grad = set_grad_mode()
        self._enters = mode_enters()
        self._exits = mode_exits()
        modes = [node for piece in pieces for node in piece.nodes if node.target is self._set_grad]
        # A graph leaves grad mode as it found it, so its last setting is the one from outside.
        self._outside = modes[-1].args[0] if modes else None

    def left_open(self, nodes: Sequence[torch.fx.Node]) -> torch.fx.Node | None:
        """Return a node that changes a mode that later nodes do not restore, or None."""
        opened: dict[object, torch.fx.Node] = {}
        mode: torch.fx.Node | None = None
        for node in nodes:
            target = node.target
            if target is self._set_grad:
                mode = node
            elif target in self._enters:
                opened[node] = node
            elif target in self._exits:
                opened.pop(node.args[0], None)
        if mode is not None and mode.args[0] != self._outside:
            return mode
        return next(iter(opened.values()), None)
