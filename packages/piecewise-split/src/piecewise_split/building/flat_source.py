"""Python source of the flat function that calls the pieces one after the other."""

from __future__ import annotations

import keyword
import math
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Iterable

    from piecewise_split.building.split import SplitGraph
    from piecewise_split.planning.size_reads import Dim
    from piecewise_split.planning.split_plan import PlannedPiece

FUNCTION_NAME = "stitched"
FACTORY_NAME = "bind"


class FlatSource:
    """Source of a factory with pieces and constants as parameters that returns the flat function.

    Attributes:
        text: Module source; ``bind(...)`` returns the flat function.
        bound: Parameters of the factory besides the pieces, by name: tensors that the
            graph reads from its module, defaults of parameters, literals of the output.
    """

    def __init__(self, split_graph: SplitGraph) -> None:
        self._plan = split_graph.plan
        self._analysed = analysed = split_graph.analysed
        self._taken: set[str] = {FUNCTION_NAME, FACTORY_NAME}
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
            f"def {FACTORY_NAME}({factory_parameters}):",
            f"    def {FUNCTION_NAME}({parameters}):",
            *(f"        {line}" for line in body),
            f"    return {FUNCTION_NAME}",
        ]
        self.text = "\n".join(lines) + "\n"

    def _fresh(self, wanted: str) -> str:
        stem = wanted if wanted.isidentifier() and not keyword.iskeyword(wanted) else "value"
        name, number = stem, 0
        while name in self._taken:
            number += 1
            name = f"{stem}_{number}"
        self._taken.add(name)
        return name

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
