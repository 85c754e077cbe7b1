"""Which operators a graph launches, before its fusions and after them."""

from __future__ import annotations

import dataclasses
import operator
from typing import TYPE_CHECKING

import torch

from npu_compile.torch_internals import schema_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch.fx import GraphModule, Node

    from fx_passes import PassReport


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class LaunchedOperator:
    """One operator that a step launches.

    Attributes:
        node: name of its node.
        name: of the operator.
        shapes: of the tensors that it returns, as text; empty for an operator that returns nothing
            and writes into what it is given, as attention behind an opaque operator does.
    """

    node: str
    name: str
    shapes: str


class LaunchObserver:
    """Lists the operators that are launched before and after the passes of one run.

    Before means behind the first normalisation, as for `fx_passes.reports.CostObserver`.

    Attributes:
        before: what the graph launched; ``None`` until a pipeline has run.
        after: what it launches now; ``None`` until a pipeline has run.
    """

    def __init__(self) -> None:
        self.before: tuple[LaunchedOperator, ...] | None = None
        self.after: tuple[LaunchedOperator, ...] | None = None

    def before_pass(self, graph_module: GraphModule, name: str) -> None:
        """List the operators in front of the first pass."""
        del name
        if self.before is None:
            self.before = self.after = tuple(_launched(graph_module))

    def after_pass(self, graph_module: GraphModule, report: PassReport) -> None:
        """List them again where a pass changed the graph."""
        if report.modified:
            self.after = tuple(_launched(graph_module))
        if report.name == "normalize" and report.round == 1:
            self.before = self.after


def _launched(graph_module: GraphModule) -> Iterator[LaunchedOperator]:
    for node in graph_module.graph.nodes:
        if node.op != "call_function" or node.target is operator.getitem:
            continue
        schema = schema_of(node.target)
        tensors = _tensors(node)
        if not tensors and not (schema and _writes(schema)):
            continue
        if schema and _only_looks(schema):
            continue
        name = schema.name if schema else getattr(node.target, "__name__", str(node.target))
        shapes = ", ".join(f"{list(tensor.shape)}" for tensor in tensors)
        yield LaunchedOperator(node=node.name, name=name, shapes=shapes)


def _tensors(node: Node) -> list[torch.Tensor]:
    value = node.meta.get("val", node.meta.get("example_value"))
    values = value if isinstance(value, (tuple, list)) else (value,)
    return [each for each in values if isinstance(each, torch.Tensor)]


def _writes(schema: torch.FunctionSchema) -> bool:
    aliases = [argument.alias_info for argument in schema.arguments]
    return any(alias is not None and alias.is_write for alias in aliases)


def _only_looks(schema: torch.FunctionSchema) -> bool:
    """Return whether what an operator returns is memory that it was given, and did not write."""
    aliases = [returned.alias_info for returned in schema.returns]
    return schema.name != "aten::contiguous" and any(
        alias is not None and not alias.is_write for alias in aliases
    )
