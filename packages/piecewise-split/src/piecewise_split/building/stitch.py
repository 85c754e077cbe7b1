"""Generates one flat function that calls the pieces.

Between two pieces there is only the call itself: pieces and constants are bound in the
closure, so no module is called and no attribute is looked up while the function runs.
"""

from __future__ import annotations

import hashlib
import keyword
import math
from types import SimpleNamespace
from typing import TYPE_CHECKING, Protocol, cast

import torch

from piecewise_split.planning.size_reads import unique_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from piecewise_split.building.split import Piece, SplitGraph
    from piecewise_split.planning.size_reads import Dim
    from piecewise_split.planning.split_plan import PlannedPiece


class _FlatSource:
    """Source of a factory with pieces and constants as parameters that returns the flat function.

    Attributes:
        text: Module source; ``bind(...)`` returns the flat function.
        bound: Parameters of the factory besides the pieces, by name: tensors that the
            graph reads from its module, defaults of parameters, literals of the output.
    """

    def __init__(self, split_graph: SplitGraph) -> None:
        self._plan = split_graph.plan
        self._analysed = analysed = split_graph.analysed
        self._taken: set[str] = {"stitched", "bind"}
        self._names: dict[str, str] = {}
        self.bound: dict[str, object] = {}
        self.piece_names = [self._fresh(piece.name) for piece in split_graph.pieces]
        parameters = ", ".join(self._parameters())
        self._constants = {node.name: node for node in analysed.constants.values()}
        for name, node in self._constants.items():
            self._names[name] = self._bind(name, analysed.attribute(str(node.target)))
        body = list(self._body())
        factory_parameters = ", ".join([*self.piece_names, *self.bound])
        lines = [
            f"def bind({factory_parameters}):",
            f"    def stitched({parameters}):",
            *(f"        {line}" for line in body),
            "    return stitched",
        ]
        self.text = "\n".join(lines) + "\n"

    def _fresh(self, wanted: str) -> str:
        stem = wanted if wanted.isidentifier() and not keyword.iskeyword(wanted) else "value"
        return unique_name(stem, self._taken)

    def _bind(self, wanted: str, value: object) -> str:
        name = self._fresh(wanted)
        self.bound[name] = value
        return name

    def _local(self, name: str) -> str:
        local = self._names.get(name)
        if local is None:
            local = self._names[name] = self._fresh(name)
        return local

    def _parameters(self) -> Iterable[str]:
        for node in self._analysed.placeholders:
            local = self._names[node.name] = self._fresh(str(node.target))
            if node.args:
                yield f"{local}={self._bind(f'default_{local}', node.args[0])}"
            else:
                yield local

    def _body(self) -> Iterable[str]:
        pieces = self._plan.pieces
        last_use: dict[str, int] = {}
        for planned in pieces:
            last_use.update(dict.fromkeys((*planned.inputs, *planned.outputs), planned.index))
        kept = {value.name for value in self._analysed.used_by(self._analysed.output)}
        kept.update(self._constants, self._plan.parameters)
        for piece_name, planned in zip(self.piece_names, pieces, strict=True):
            yield self._call(piece_name, planned)
            dead = [
                self._local(name)
                for name in (*planned.inputs, *planned.outputs)
                if last_use[name] == planned.index and name not in kept
            ]
            if dead:
                yield f"del {', '.join(dead)}"
        yield f"return {self._render(self._analysed.output.args[0])}"

    def _call(self, piece_name: str, planned: PlannedPiece) -> str:
        arguments = ", ".join(self._local(name) for name in planned.inputs)
        results = ", ".join(self._local(name) for name in planned.outputs)
        if len(planned.outputs) == 1:
            results += ","
        call = f"{piece_name}({arguments})"
        comment = f"  # {planned.kind} piece, cut: {' '.join(str(planned.cut_reason).split())}"
        if planned.source is not None:
            comment += f", from {' '.join(planned.source.split())}"
        return (f"{results} = {call}" if results else call) + comment

    def _render(self, value: object) -> str:
        if isinstance(value, torch.fx.Node):
            return self._render_node(value)
        if isinstance(value, tuple):
            return self._render_tuple(value)
        if isinstance(value, list):
            return "[" + ", ".join(map(self._render, value)) + "]"
        if isinstance(value, dict):
            items = (f"{self._render(key)}: {self._render(item)}" for key, item in value.items())
            return "{" + ", ".join(items) + "}"
        return self._render_literal(value)

    def _render_literal(self, value: object) -> str:
        if isinstance(value, slice):
            bounds = (value.start, value.stop, value.step)
            return f"{self._bind('slice', slice)}({', '.join(map(self._render, bounds))})"
        plain = value is None or type(value) in {bool, int, str}
        if plain or (isinstance(value, float) and math.isfinite(value)):
            return repr(value)
        return self._bind("literal", value)

    def _render_node(self, node: torch.fx.Node) -> str:
        analysed = self._analysed
        stand_in = analysed.sizes.replaced.get(node)
        if isinstance(stand_in, tuple):
            dims = "".join(f"{self._dim(dim)}, " for dim in stand_in)
            return f"{self._bind('size', torch.Size)}(({dims}))"
        if stand_in is not None:
            return self._dim(stand_in)
        return self._local(analysed.constants.get(node, node).name)

    def _dim(self, dim: Dim) -> str:
        return str(dim) if isinstance(dim, int) else self._local(dim.name)

    def _render_tuple(self, value: tuple[object, ...]) -> str:
        items = [self._render(item) for item in value]
        if hasattr(value, "_fields"):
            return f"{self._bind(type(value).__name__, type(value))}({', '.join(items)})"
        return "(" + "".join(f"{item}, " for item in items) + ")"


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
    flat = _FlatSource(split_graph)
    source = flat.text
    name = f"piecewise_split_stitched_{hashlib.sha256(source.encode()).hexdigest()[:16]}"
    # Through `__loader__` the traceback module finds the source.
    loader = SimpleNamespace(get_source=lambda _name: source)
    namespace: dict[str, object] = {"__name__": name, "__loader__": loader}
    # Only names that were checked to be identifiers, and reprs of literals, enter the source.
    exec(compile(source, f"{name}.py", "exec"), namespace)  # noqa: S102
    factory = cast("Callable[..., StitchedFunction]", namespace["bind"])
    function = factory(*compiled, **flat.bound)
    function.source = source
    return function
