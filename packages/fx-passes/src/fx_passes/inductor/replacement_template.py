"""A traced replacement, as steps that are repeated at every match without tracing again."""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch.fx import Node

from fx_passes.errors import PatternError, RuleError
from fx_passes.graph_argument import value_of
from fx_passes.torch_internals import OpOverload

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from fx_passes.inductor.example_trace import TracedFunction
    from fx_passes.matching.match import Match
    from fx_passes.rewriting.graph_builder import GraphBuilder


@dataclass(frozen=True)
class _Parameter:
    name: str


@dataclass(frozen=True)
class _Result:
    step: int


@dataclass(frozen=True)
class _Device:
    """The device of the match's first tensor, where the trace had that of the examples."""


@dataclass(frozen=True, kw_only=True)
class _Step:
    target: OpOverload | Callable[..., object]
    args: tuple[object, ...]
    kwargs: Mapping[str, object]
    size: bool


@dataclass(frozen=True, kw_only=True)
class ReplacementTemplate:
    """The steps of a replacement function.

    Attributes:
        steps: Calls, in order.
        outputs: The parameter or step that computes each output.
        first: Name of a tensor parameter, which determines the device of a match.
    """

    steps: tuple[_Step, ...]
    outputs: tuple[_Parameter | _Result, ...]
    first: str

    @classmethod
    def read(cls, name: str, traced: TracedFunction, device: torch.device) -> ReplacementTemplate:
        """Read a template from a trace.

        Raises:
            PatternError: The function creates constants, or calls something that is not an
                operator.
        """
        known: dict[Node, _Parameter | _Result] = {}
        steps: list[_Step] = []
        first = ""

        def read(argument: object, node: Node, path: tuple[int | str, ...]) -> object:
            if (node, path) in traced.scalars:
                return _Parameter(traced.scalars[node, path])
            if isinstance(argument, Node):
                return known[argument]
            if isinstance(argument, (list, tuple)):
                return [read(each, node, (*path, at)) for at, each in enumerate(argument)]
            return _Device() if argument == device else argument

        for node in traced.graph.nodes:
            if node.op == "placeholder":
                known[node] = _Parameter(str(node.target))
                first = first or str(node.target)
            elif node.op == "call_function":
                known[node] = _Result(len(steps))
                steps.append(
                    _Step(
                        target=node.target,
                        args=tuple(read(each, node, (at,)) for at, each in enumerate(node.args)),
                        kwargs={key: read(each, node, (key,)) for key, each in node.kwargs.items()},
                        size=not isinstance(node.meta.get("val"), (torch.Tensor, tuple, list)),
                    )
                )
            elif node.op != "output":
                raise PatternError(
                    f"reading the replacement {name}: `{node.format_node()}` is no call of an "
                    "operator; make constants outside of it and pass them in"
                )
        outputs = tuple(known[node] for node in traced.outputs)
        return cls(steps=tuple(steps), outputs=outputs, first=first)

    def build(self, match: Match, builder: GraphBuilder) -> dict[str, Node]:
        """Create the nodes for a match; used as the rewrite of a rule.

        Raises:
            RuleError: An operator does not accept its arguments.
        """
        tensor = match.value(self.first)
        device = tensor.device if isinstance(tensor, torch.Tensor) else None
        results: list[object] = []

        def resolve(argument: object) -> object:
            if isinstance(argument, _Parameter):
                return match.bound[argument.name]
            if isinstance(argument, _Result):
                return results[argument.step]
            if isinstance(argument, list):
                return [resolve(each) for each in argument]
            return device if isinstance(argument, _Device) else argument

        for step in self.steps:
            args = tuple(map(resolve, step.args))
            kwargs = {key: resolve(value) for key, value in step.kwargs.items()}
            results.append(_create(step, args, kwargs, builder))
        created: dict[str, Node] = {}
        for index, output in enumerate(self.outputs):
            node = resolve(output)
            if not isinstance(node, Node):
                raise RuleError(f"building a replacement: output {index} is {node!r}, no tensor")
            created[str(index)] = node
        return {name: node for name, node in created.items() if name in match.outputs}

    def __str__(self) -> str:
        lines = [f"{step.target}{step.args}{dict(step.kwargs)}" for step in self.steps]
        return "\n".join((*lines, str(self.outputs)))


def _create(
    step: _Step, args: tuple[object, ...], kwargs: dict[str, object], builder: GraphBuilder
) -> object:
    if step.size:
        return _number(step.target, args, builder)
    if step.target is operator.getitem:
        source, position = args
        if isinstance(source, Node) and isinstance(position, int):
            return builder.element(source, position)
    if not isinstance(step.target, OpOverload):
        raise RuleError(f"building a replacement: {step.target} is no operator")
    return builder.call(step.target, *args, **kwargs)


def _number(
    function: OpOverload | Callable[..., object], args: tuple[object, ...], builder: GraphBuilder
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
