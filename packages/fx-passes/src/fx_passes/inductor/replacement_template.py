"""A traced replacement, whose calls are repeated at every match without tracing again."""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch.fx import Node

from fx_passes.errors import PatternError, RuleError
from fx_passes.graph_argument import value_of
from fx_passes.torch_internals import OpOverload

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch.fx import Graph

    from fx_passes.inductor.example_trace import TracedFunction
    from fx_passes.matching.match import Match
    from fx_passes.rewriting.graph_builder import GraphBuilder


@dataclass(frozen=True, kw_only=True)
class ReplacementTemplate:
    """A replacement function as a graph whose calls are repeated at a match.

    Attributes:
        graph: The graph; placeholders are parameters, by name.
        outputs: The nodes that compute the outputs.
        first: Name of a tensor parameter, which determines the device of a match.
        device: The device of the examples, where a match has its own.
    """

    graph: Graph
    outputs: tuple[Node, ...]
    first: str
    device: torch.device

    @classmethod
    def read(cls, name: str, traced: TracedFunction, device: torch.device) -> ReplacementTemplate:
        """Read a template from a trace; changes the graph.

        Raises:
            PatternError: The function creates constants, or calls something that is not an
                operator.
        """
        for node in traced.graph.nodes:
            if node.op not in {"placeholder", "call_function", "output"}:
                raise PatternError(
                    f"reading the replacement {name}: `{node.format_node()}` is no call of an "
                    "operator; make constants outside of it and pass them in"
                )
        first = next(iter(traced.graph.find_nodes(op="placeholder")), None)
        traced.open_scalars()
        return cls(
            graph=traced.graph,
            outputs=traced.outputs,
            first="" if first is None else str(first.target),
            device=device,
        )

    def build(self, match: Match, builder: GraphBuilder) -> dict[str, Node]:
        """Create the nodes for a match; used as the rewrite of a rule.

        Raises:
            RuleError: An operator does not accept its arguments.
        """
        tensor = match.value(self.first)
        device = tensor.device if isinstance(tensor, torch.Tensor) else None
        made: dict[Node, object] = {}

        def resolve(argument: object) -> object:
            if isinstance(argument, Node):
                is_parameter = argument.op == "placeholder"
                return match.bound[str(argument.target)] if is_parameter else made[argument]
            if isinstance(argument, (list, tuple)):
                return [resolve(each) for each in argument]
            return device if argument == self.device else argument

        for node in self.graph.nodes:
            if node.op == "call_function":
                args = tuple(map(resolve, node.args))
                kwargs = {key: resolve(value) for key, value in node.kwargs.items()}
                made[node] = _create(node, args, kwargs, builder)
        created: dict[str, Node] = {}
        for index, output in enumerate(self.outputs):
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
