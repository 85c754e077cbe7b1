"""A graph as lines of text, one a node, that stay when the graph changes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch.fx import Node

from fx_passes.graph_argument import nodes_in
from fx_passes.torch_internals import OpOverload

if TYPE_CHECKING:
    from torch.fx import Graph


@dataclass(frozen=True, kw_only=True)
class ListedNode:
    """A node as it was.

    Attributes:
        text: Such as ``y: bfloat16[4, 64] = aten.neg.default(x)``.
        inputs: Names of the nodes that it takes, each once.
    """

    text: str
    inputs: tuple[str, ...]


class GraphListing:
    """The nodes of a graph at one time, by name and in order; some 10 microseconds a node."""

    def __init__(self, graph: Graph) -> None:
        self.nodes = {node.name: _listed(node) for node in graph.nodes}

    def text(self) -> str:
        """Return the whole graph."""
        return "\n".join(node.text for node in self.nodes.values())

    def part(self, names: set[str]) -> list[tuple[str, bool]]:
        """Return the lines of some nodes and of their inputs, in the graph's order.

        Returns:
            For each line its text, and whether it is one of these nodes.
        """
        found = [self.nodes[name] for name in names if name in self.nodes]
        inputs = {name for node in found for name in node.inputs}
        return [
            (node.text, name in names)
            for name, node in self.nodes.items()
            if name in names or name in inputs
        ]


def _listed(node: Node) -> ListedNode:
    arguments = [_spelled(each) for each in node.args]
    arguments += [f"{name}={_spelled(each)}" for name, each in node.kwargs.items()]
    called = f"{_target(node)}({', '.join(arguments)})"
    kind = _kind(node.meta.get("val", node.meta.get("example_value")))
    named = f"{node.name}: {kind}" if kind else node.name
    text = {"placeholder": f"{named} = input", "output": f"return {', '.join(arguments)}"}.get(
        node.op, f"{named} = {called}"
    )
    inputs = dict.fromkeys(each.name for each in nodes_in((node.args, node.kwargs)))
    return ListedNode(text=text, inputs=tuple(inputs))


def _target(node: Node) -> str:
    target = node.target
    if node.op == "call_method":
        return f".{target}"
    if isinstance(target, (str, OpOverload)):
        return str(target)
    module = getattr(target, "__module__", "") or ""
    return f"{module.removeprefix('_')}.{getattr(target, '__name__', target)}".removeprefix(".")


def _spelled(argument: object) -> str:
    if isinstance(argument, Node):
        return argument.name
    if isinstance(argument, (tuple, list)):
        inside = ", ".join(map(_spelled, argument))
        return f"[{inside}]" if isinstance(argument, list) else f"({inside})"
    if isinstance(argument, slice):
        return ":".join(
            "" if each is None else _spelled(each) for each in (argument.start, argument.stop)
        )
    return str(argument) if isinstance(argument, torch.dtype) else repr(argument)


def _kind(value: object) -> str:
    """Return data type and shape, or those of each element; empty where nothing is known."""
    if isinstance(value, torch.Tensor):
        return f"{str(value.dtype).removeprefix('torch.')}[{', '.join(map(str, value.shape))}]"
    if isinstance(value, (tuple, list)):
        inside = ", ".join(_kind(each) or "None" for each in value)
        return f"({inside})"
    return f"{type(value).__name__} {value}" if isinstance(value, torch.SymInt) else ""
