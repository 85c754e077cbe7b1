"""Generates one flat function that calls the pieces.

Between two pieces there is only the call itself: pieces and constants are bound in the
closure, so no module is called and no attribute is looked up while the function runs.
"""

from __future__ import annotations

import hashlib
from types import SimpleNamespace
from typing import TYPE_CHECKING, Protocol, cast

from piecewise_split.building.flat_source import FACTORY_NAME, FlatSource

if TYPE_CHECKING:
    from collections.abc import Callable

    from piecewise_split.building.split import Piece, SplitGraph


class StitchedFunction(Protocol):
    """A plain Python function with the signature of the graph that was split.

    It owns the callables from ``compile_piece`` and the graph's constants, but neither the graph
    nor the pieces. Values passed between pieces are released as soon as no later piece needs them.
    The caller keeps the arguments alive for the whole call.

    Attributes:
        source: The Python source, which tracebacks also show.
    """

    source: str

    def __call__(self, *args: object, **kwargs: object) -> object:
        """Run all pieces in order and return the graph's output."""


def run_uncompiled(piece: Piece) -> Callable[..., object]:
    """Return the code of a piece unchanged, to be run by the Python interpreter.

    Args:
        piece: Any piece; its Python code is generated once for each structure.
    """
    return piece.graph_module.forward


def stitch(
    split_graph: SplitGraph,
    compile_piece: Callable[[Piece], Callable[..., object]] = run_uncompiled,
) -> StitchedFunction:
    """Generate the flat function that runs the pieces in order.

    Args:
        split_graph: The pieces.
        compile_piece: Called once for every piece, in order, so that each piece can have a
            wrapper of its own (a captured graph belongs to one piece). Cache expensive results
            that equal pieces can share by ``piece.structural_key``. It returns a callable that
            accepts the piece's inputs positionally and returns a tuple or list of its
            outputs. The result of a piece without outputs is dropped.

    Returns:
        The function.

    Raises:
        TypeError: ``compile_piece`` returned something that is not callable.
    """
    compiled: list[Callable[..., object]] = []
    for piece in split_graph.pieces:
        callable_piece: object = compile_piece(piece)
        if not callable(callable_piece):
            raise TypeError(
                f"Stitching {piece.name} ({piece.planned.kind}): compile_piece returned "
                f"{type(callable_piece).__name__}, expected a callable that takes "
                f"{len(piece.input_names)} argument(s) and returns a tuple of "
                f"{len(piece.output_names)}. Return piece.graph_module.forward to run it as it is."
            )
        compiled.append(callable_piece)
    flat = FlatSource(split_graph)
    digest = hashlib.sha256(flat.text.encode()).hexdigest()[:16]
    name = f"piecewise_split_stitched_{digest}"
    source = flat.text
    # Through `__loader__` the traceback module finds the source.
    loader = SimpleNamespace(get_source=lambda _name: source)
    namespace: dict[str, object] = {"__name__": name, "__loader__": loader}
    # Only names that were checked to be identifiers, and reprs of literals, enter the source.
    exec(compile(flat.text, f"{name}.py", "exec"), namespace)  # noqa: S102
    factory = cast("Callable[..., StitchedFunction]", namespace[FACTORY_NAME])
    function = factory(*compiled, **flat.bound)
    function.source = flat.text
    return function
