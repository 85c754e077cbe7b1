"""Reads a traced function as a pattern, with the conditions under which the trace holds."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

import sympy  # type: ignore[import-untyped]  # brings no types; torch depends on it
import torch

from fx_passes.graph_argument import value_of
from fx_passes.matching.match import Match, NoMatch
from fx_passes.matching.pattern import CompiledPattern, matching_operator, read_pattern
from fx_passes.torch_internals import OpOverload, symbol_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch.fx import Graph, Node

    from fx_passes.inductor.example_trace import ExampleTracer, TracedFunction


def expression_of(value: object) -> object:
    """Return a size as a sympy expression; whatever else it is, as it is."""
    if isinstance(value, torch.SymInt):
        return value.node.expr
    return sympy.Integer(value) if isinstance(value, int) else value


@dataclass(frozen=True, kw_only=True)
class Conditions:
    """Conditions under which a trace on examples applies to a match.

    Attributes:
        tensors: The fake tensors of the trace, by parameter.
        guards: Relations between sizes that the trace relied on.
    """

    tensors: Mapping[str, torch.Tensor]
    guards: tuple[sympy.Basic, ...]

    @classmethod
    def of(cls, tracer: ExampleTracer) -> Conditions:
        """Return the conditions of everything a tracer has traced so far."""
        guards = dict.fromkeys(guard.expr for guard in tracer.shapes.guards)
        return cls(tensors=MappingProxyType(tracer.tensors), guards=tuple(guards))

    def dtypes(self, match: Match) -> dict[str, torch.dtype]:
        """Return the dtypes in a match that are not those of the example inputs."""
        found: dict[str, torch.dtype] = {}
        for name, example in self.tensors.items():
            if name not in match.bound:
                continue
            dtype = match.tensor(name).dtype
            if dtype != example.dtype:
                found[name] = dtype
        return found

    def sizes(self, match: Match) -> dict[sympy.Symbol, sympy.Expr] | NoMatch:
        """Return the values of the trace's symbols in a match, or why it does not match."""
        known: dict[sympy.Symbol, sympy.Expr] = {}
        for name, example in self.tensors.items():
            if name not in match.bound:
                continue
            found = match.tensor(name)
            if found.dim() != example.dim():
                return NoMatch(
                    f"`{name}` has {found.dim()} dimensions, the example input {example.dim()}"
                )
            symbols: tuple[object, ...] = tuple(example.shape)
            for size, symbol in zip(found.shape, symbols, strict=True):
                if isinstance(symbol, torch.SymInt):
                    # What the environment has put in its place is no symbol of this tensor.
                    known[symbol_of(symbol)] = expression_of(size)
                elif size != symbol:
                    return NoMatch(f"`{name}` has a size {size}, the example input {symbol}")
        for guard in self.guards:
            holds = guard.xreplace(known)
            if holds is not sympy.true:
                state = "does not hold" if holds is sympy.false else "is not known to hold"
                return NoMatch(f"the trace needs {guard}, which {state} ({holds})")
        return known


@dataclass(frozen=True, kw_only=True)
class ReplacementPattern:
    """A pattern read from a trace.

    Attributes:
        compiled: The pattern. Sizes that are computed from shapes are parameters, and so are the
            shapes passed to views, because one shape can be written in several ways.
        sizes: Required values of those parameters, in symbols of the trace.
        shapes: Required shapes of labelled values, in symbols of the trace.
        text: The trace, for fingerprints.
    """

    compiled: CompiledPattern
    sizes: Mapping[str, object]
    shapes: Mapping[str, tuple[object, ...]]
    text: str

    @classmethod
    def read(cls, name: str, traced: TracedFunction, prefix: str) -> ReplacementPattern:
        """Read a pattern; changes the graph.

        Raises:
            PatternError: The graph writes memory, has parts that no output needs, or calls
                something that is not an operator.
        """
        return _Reader(traced, prefix).read(name)

    def problem(self, match: Match, known: Mapping[sympy.Symbol, sympy.Expr]) -> NoMatch | None:
        """Return the size of a match that differs from what the function would have computed."""
        for name, wanted in self.sizes.items():
            if name in match.bound:
                found = expression_of(value_of(match.bound[name]))
                if not _equal(wanted, found, known):
                    return NoMatch(f"expected the size {wanted}, found {found}")
        for name, shape in self.shapes.items():
            if name in match.labels:
                value = match.value(name)
                sizes = list(value.shape) if isinstance(value, torch.Tensor) else []
                if len(sizes) != len(shape) or not all(
                    _equal(wanted, expression_of(size), known)
                    for wanted, size in zip(shape, sizes, strict=True)
                ):
                    node = match.labels[name]
                    return NoMatch(
                        f"`{node.name}` has the shape {sizes}, expected {list(shape)}", (node,)
                    )
        return None


def _equal(wanted: object, found: object, known: Mapping[sympy.Symbol, sympy.Expr]) -> bool:
    return isinstance(wanted, sympy.Basic) and wanted.xreplace(dict(known)) == found


class _Reader:
    def __init__(self, traced: TracedFunction, prefix: str) -> None:
        self._prefix = prefix
        self._graph: Graph = traced.graph
        self._traced = traced
        self._kinds = {
            str(node.target): "tensor" for node in self._graph.find_nodes(op="placeholder")
        }
        self._first = next(iter(self._graph.nodes))
        self._sizes: dict[str, object] = {}
        self._shapes: dict[str, tuple[object, ...]] = {}
        self._labels: dict[str, Node] = {}

    def read(self, name: str) -> ReplacementPattern:
        text = f"{self._graph} {sorted(map(str, self._traced.scalars.items()))}"
        self._kinds.update(dict.fromkeys(self._traced.open_scalars(), "literal"))
        nodes = list(self._graph.nodes)
        for node in nodes:
            if node.op == "call_function" and _is_view(node):
                self._open_shape(node)
        output = nodes[-1]
        outputs = {str(index): node for index, node in enumerate(self._traced.outputs)}
        self._graph.erase_node(output)
        # What computes a size goes before what it is computed from.
        for node in reversed(nodes[:-1]):
            if node.op == "call_function" and isinstance(node.meta.get("val"), torch.SymInt):
                if node.users:
                    self._open_size(node)
                self._graph.erase_node(node)
        compiled = read_pattern(name, self._graph, self._kinds, outputs, self._labels)
        return ReplacementPattern(
            compiled=compiled, sizes=self._sizes, shapes=self._shapes, text=text
        )

    def _parameter(self, name: str, value: object) -> Node:
        with self._graph.inserting_before(self._first):
            node = self._graph.placeholder(name)
        node.meta["val"] = value
        self._kinds[name] = "any"
        return node

    def _open_shape(self, node: Node) -> None:
        label = f"{self._prefix}_{node.name}"
        self._labels[label] = node
        value = node.meta["val"]
        self._shapes[label] = tuple(map(expression_of, value.shape))
        node.args = (node.args[0], self._parameter(f"{label}_shape", [1]))

    def _open_size(self, node: Node) -> None:
        name = f"{self._prefix}_{node.name}_size"
        node.replace_all_uses_with(self._parameter(name, node.meta["val"]))
        self._sizes[name] = expression_of(node.meta["val"])


def _is_view(node: Node) -> bool:
    target = node.target
    return (
        isinstance(target, OpOverload)
        and matching_operator(target) is torch.ops.aten.reshape.default
    )
