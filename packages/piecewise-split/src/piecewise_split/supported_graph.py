"""What a graph may hold to be split without changing its meaning."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch.fx.graph import CodeGen

from piecewise_split.errors import UnsupportedGraphError

if TYPE_CHECKING:
    from collections.abc import Sequence


def check_supported(graph_module: torch.fx.GraphModule) -> None:
    """Refuse a graph whose calling convention is not that of a plain function.

    Raises:
        UnsupportedGraphError: The graph flattens its arguments itself (``torch.export`` modules
            do), or has variadic parameters.
    """
    graph = graph_module.graph
    # The only way to learn of a pytree calling convention; torch has no public question for it.
    codegen = graph._codegen  # noqa: SLF001
    if type(codegen) is not CodeGen:
        msg = (
            f"Splitting a graph: it has the calling convention {type(codegen).__name__}, which "
            f"rearranges arguments. Expected a plain graph, as Dynamo and AOTAutograd hand to a "
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


def check_regions(pieces: Sequence[Sequence[torch.fx.Node]]) -> None:
    """Refuse autocast and grad-mode regions that do not end in the piece where they begin.

    A captured piece does not run its Python again, so a mode that it leaves behind would be
    missing when the next piece runs.

    Args:
        pieces: Nodes of each piece, in order.

    Raises:
        UnsupportedGraphError: A region reaches over a cut.
    """
    if len(pieces) < 2:
        return
    regions = _Regions(pieces)
    for index, nodes in enumerate(pieces):
        left = regions.left_open(nodes)
        if left is not None:
            name = getattr(left.target, "__name__", left.target)
            msg = (
                f"Splitting a graph: piece {index} changes a mode at node {left.name!r} ({name}) "
                f"and the mode ends in another piece. Enter it outside the compiled function, or "
                f"end it before the splitting op."
            )
            raise UnsupportedGraphError(msg)


class _Regions:
    """The functions that Dynamo writes into a graph to enter and leave modes.

    They are private functions of torch because no public ones appear in graphs.
    """

    def __init__(self, pieces: Sequence[Sequence[torch.fx.Node]]) -> None:
        autocast, grad_mode = torch.amp.autocast_mode, torch.autograd.grad_mode
        self._set_grad = torch._C._set_grad_enabled  # noqa: SLF001
        self._enters = {
            autocast._enter_autocast,  # noqa: SLF001
            grad_mode._enter_inference_mode,  # noqa: SLF001
        }
        self._exits = {
            autocast._exit_autocast,  # noqa: SLF001
            grad_mode._exit_inference_mode,  # noqa: SLF001
        }
        modes = [node for nodes in pieces for node in nodes if node.target is self._set_grad]
        # A graph leaves grad mode as it found it, so its last setting is the one from outside.
        self._outside = modes[-1].args[0] if modes else None

    def left_open(self, nodes: Sequence[torch.fx.Node]) -> torch.fx.Node | None:
        """Return a node that changes a mode which the nodes do not change back, or None."""
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
