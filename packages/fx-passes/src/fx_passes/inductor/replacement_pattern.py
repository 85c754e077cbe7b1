"""The two traced functions of a replacement: a pattern with its conditions, and a template."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

import sympy  # type: ignore[import-untyped]  # brings no types; torch depends on it
import torch
from torch.fx import Node

from fx_passes.errors import PatternError, RuleError
from fx_passes.graph_argument import value_of
from fx_passes.matching.match import Match, NoMatch
from fx_passes.matching.pattern import equivalent_operators, read_pattern
from fx_passes.torch_internals import OpOverload, symbol_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from fx_passes.inductor.example_trace import ExampleTracer, TracedFunction
    from fx_passes.rewriting.graph_builder import GraphBuilder


_VIEWS = equivalent_operators(torch.ops.aten.reshape.default)


def expression_of(value: object) -> object:
    """Return a size as a sympy expression; whatever else it is, as it is."""
    if isinstance(value, torch.SymInt):
        return value.node.expr
    return sympy.Integer(value) if isinstance(value, int) else value


class Conditions:
    """Conditions under which everything that a tracer has traced so far applies to a match.

    Attributes:
        tensors: The fake tensors of the trace, by parameter.
        guards: Relations between sizes that the trace relied on.
    """

    def __init__(self, tracer: ExampleTracer) -> None:
        self.tensors = tracer.tensors
        self.guards = tuple(dict.fromkeys(guard.expr for guard in tracer.shapes.guards))

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


class ReplacementPattern:
    """A pattern read from a trace, whose graph is changed.

    Sizes that are computed from shapes are parameters of the pattern, and so are the shapes passed
    to views, because one shape can be written in several ways.

    Attributes:
        compiled: The pattern.
        text: The trace, for fingerprints.

    Raises:
        PatternError: The graph writes memory, has parts that no output needs, or calls something
            that is not an operator.
    """

    def __init__(self, name: str, traced: TracedFunction, prefix: str) -> None:
        self._prefix = prefix
        self._graph = graph = traced.graph
        self.text = f"{graph} {sorted(map(str, traced.scalars.items()))}"
        self._kinds = {str(node.target): "tensor" for node in graph.find_nodes(op="placeholder")}
        self._first = next(iter(graph.nodes))
        # Required values of parameters and required shapes of labels, in symbols of the trace.
        self._sizes: dict[str, object] = {}
        self._shapes: dict[str, tuple[object, ...]] = {}
        self._labels: dict[str, Node] = {}
        self._kinds.update(dict.fromkeys(traced.open_scalars(), "literal"))
        nodes = list(graph.nodes)
        for node in nodes:
            if node.target in _VIEWS:
                self._open_shape(node)
        outputs = {str(index): node for index, node in enumerate(traced.outputs)}
        graph.erase_node(nodes[-1])
        # What computes a size goes before what it is computed from.
        for node in reversed(nodes[:-1]):
            if node.op == "call_function" and isinstance(node.meta.get("val"), torch.SymInt):
                if node.users:
                    size, named = node.meta["val"], f"{prefix}_{node.name}_size"
                    node.replace_all_uses_with(self._parameter(named, size))
                    self._sizes[named] = expression_of(size)
                graph.erase_node(node)
        self.compiled = read_pattern(name, graph, self._kinds, outputs, self._labels)

    def problem(self, match: Match, known: Mapping[sympy.Symbol, sympy.Expr]) -> NoMatch | None:
        """Return the size of a match that differs from what the function would have computed."""
        for name, wanted in self._sizes.items():
            if name in match.bound:
                found = expression_of(value_of(match.bound[name]))
                if not _equal(wanted, found, known):
                    return NoMatch(f"expected the size {wanted}, found {found}")
        for name, shape in self._shapes.items():
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


def _equal(wanted: object, found: object, known: Mapping[sympy.Symbol, sympy.Expr]) -> bool:
    return isinstance(wanted, sympy.Basic) and wanted.xreplace(dict(known)) == found


class ReplacementTemplate:
    """A replacement function as a graph whose calls are repeated at a match; changes the graph.

    Args:
        name: Name of the function, for messages.
        traced: The trace.
        device: The device of the examples, where a match has its own.

    Raises:
        PatternError: The function creates constants, or calls something that is not an operator.
    """

    def __init__(self, name: str, traced: TracedFunction, device: torch.device) -> None:
        for node in traced.graph.nodes:
            if node.op not in {"placeholder", "call_function", "output"}:
                raise PatternError(
                    f"reading the replacement {name}: `{node.format_node()}` is no call of an "
                    "operator; make constants outside of it and pass them in"
                )
        first = next(iter(traced.graph.find_nodes(op="placeholder")), None)
        # A tensor parameter, which determines the device of a match.
        self._first = "" if first is None else str(first.target)
        traced.open_scalars()
        self.graph = traced.graph
        self._outputs = traced.outputs
        self._device = device

    def build(self, match: Match, builder: GraphBuilder) -> dict[str, Node]:
        """Create the nodes for a match; used as the rewrite of a rule.

        Raises:
            RuleError: An operator does not accept its arguments.
        """
        tensor = match.value(self._first)
        device = tensor.device if isinstance(tensor, torch.Tensor) else None
        made: dict[Node, object] = {}

        def resolve(argument: object) -> object:
            if isinstance(argument, Node):
                is_parameter = argument.op == "placeholder"
                return match.bound[str(argument.target)] if is_parameter else made[argument]
            if isinstance(argument, (list, tuple)):
                return [resolve(each) for each in argument]
            return device if argument == self._device else argument

        for node in self.graph.nodes:
            if node.op == "call_function":
                args = tuple(map(resolve, node.args))
                kwargs = {key: resolve(value) for key, value in node.kwargs.items()}
                made[node] = _create(node, args, kwargs, builder)
        created: dict[str, Node] = {}
        for index, output in enumerate(self._outputs):
            found = resolve(output)
            if not isinstance(found, Node):
                raise RuleError(f"building a replacement: output {index} is {found!r}, no tensor")
            if str(index) in match.outputs:
                created[str(index)] = found
        return created


def _create(
    call: Node, args: tuple[object, ...], kwargs: dict[str, object], builder: GraphBuilder
) -> object:
    target: Any = call.target
    if not isinstance(call.meta.get("val"), (torch.Tensor, tuple, list)):
        return _number(target, args, builder)
    if target is operator.getitem:
        source, position = args
        if isinstance(source, Node) and isinstance(position, int):
            return builder.element(source, position)
    if not isinstance(target, OpOverload):
        raise RuleError(f"building a replacement: {target} is no operator")
    return builder.call(target, *args, **kwargs)


def _number(
    function: Callable[..., object], args: tuple[object, ...], builder: GraphBuilder
) -> object:
    """Compute a number from sizes: at once where they are known, else by a node."""
    values = [value_of(each) for each in args]
    if function is torch.ops.aten.sym_size.int:
        tensor, dimension = values
        if not isinstance(tensor, torch.Tensor) or not isinstance(dimension, int):
            raise RuleError("building a replacement: a size is taken of what is no tensor")
        value: object = tensor.shape[dimension]
    else:
        value = function(*values)
    if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        return builder.number(function, *args, val=value)
    return value
