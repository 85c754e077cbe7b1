"""Pieces that are run node by node, so that a failure is named by its line of the model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from piecewise_split.errors import FailedNodeError
from piecewise_split.planning.node_origin import module_range, source_line

if TYPE_CHECKING:
    from collections.abc import Callable

    from piecewise_split.building.split import Piece, SplitGraph


def run_debugged(
    split_graph: SplitGraph, synchronize: Callable[[], object] | None = None
) -> Callable[[Piece], Callable[..., object]]:
    """Return a ``compile_piece`` for `stitch` that names the piece and the line that fail.

    For finding out: each node of a piece is run by the interpreter. A piece that shares its code
    with earlier ones is told by its own nodes, modules and lines.

    Args:
        split_graph: What is stitched.
        synchronize: Waits for the device behind each node, so that a failure that the device
            reports later is found at the node that launched it; ``device.synchronize``, say.

    Returns:
        What `stitch` takes. The callables that it makes raise `FailedNodeError`, from the error of
        the node.
    """
    nodes = {node.name: node for node in split_graph.scope.body}

    def compile_piece(piece: Piece) -> Callable[..., object]:
        leader = split_graph.plan.pieces[piece.planned.isomorphic_to]
        own = {
            name: nodes[mine]
            for name, mine in zip(leader.nodes, piece.planned.nodes, strict=True)
            if mine in nodes
        }
        return _NamingInterpreter(piece, own, synchronize).run

    return compile_piece


class _NamingInterpreter(torch.fx.Interpreter):
    def __init__(
        self,
        piece: Piece,
        own: dict[str, torch.fx.Node],
        synchronize: Callable[[], object] | None,
    ) -> None:
        super().__init__(piece.graph_module)
        # What torch itself adds to errors is of the first piece with this structure.
        self.extra_traceback = False
        self._piece = piece
        self._own = own
        self._synchronize = synchronize

    def run_node(self, n: torch.fx.Node) -> Any:
        if n.op in {"placeholder", "output"}:
            return super().run_node(n)
        try:
            result = super().run_node(n)
            if self._synchronize is not None:
                self._synchronize()
        except Exception as error:
            raise self._named(n, error) from error
        return result

    def _named(self, shared: torch.fx.Node, error: Exception) -> FailedNodeError:
        node = self._own.get(shared.name, shared)
        source = source_line([node])
        places = [place for place in (module_range([node]), source) if place is not None]
        piece = self._piece
        msg = (
            f"Running {piece.label}, a {piece.planned.kind} piece: {node.name} ({node.target}) of "
            f"{', '.join(places) or 'no known line'} failed: {error}"
        )
        return FailedNodeError(msg, piece=piece.name, node=node.name, source=source)
