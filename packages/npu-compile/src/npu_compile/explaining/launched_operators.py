"""What passes changed: operators that a graph launches before and after, and places raised."""

from __future__ import annotations

import dataclasses
import operator
import re
from collections import Counter
from typing import TYPE_CHECKING

import torch

from fx_passes.raising import SITE_KINDS, find_sites
from npu_compile.torch_internals import schema_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch.fx import GraphModule

    from fx_passes import PassReport


# How Dynamo says where a traced function found the model.
_ROOT = re.compile(r"^\w+\['[^']*'\](?:\.__closure__\[\d+\]\.cell_contents)?\.?")
_INDEX = re.compile(r"\[['\"]?([^\]'\"]+)['\"]?\]")


if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from torch.fx import GraphModule, Node

    from fx_passes import PassReport


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class LaunchedOperator:
    """One operator that a step launches.

    Attributes:
        shapes: shapes of the returned tensors, as text; empty for an operator that returns nothing
            and writes into its arguments, such as attention in a custom operator.
        module: path of the module that calls it, as in ``named_modules``; empty for the model
            itself.
        bytes: bytes read and written; ``None`` if a size is not a known number.
    """

    node: str
    name: str
    shapes: str
    module: str = ""
    bytes: int | None = None


class LaunchObserver:
    """Lists the operators that are launched before and after the passes of one run.

    "Before" means after the first normalisation, as in `fx_passes.reports.CostObserver`.

    Attributes:
        before: operators launched before the passes; ``None`` until a pipeline has run.
        after: operators launched now; ``None`` until a pipeline has run.
        modules: maps the name of each node seen to the path of the module it came from.
    """

    def __init__(self) -> None:
        self.before: tuple[LaunchedOperator, ...] | None = None
        self.after: tuple[LaunchedOperator, ...] | None = None
        self.modules: dict[str, str] = {}

    def before_pass(self, graph_module: GraphModule, name: str) -> None:
        """List the operators before the first pass."""
        del name
        self.modules.update((node.name, module_of(node)) for node in graph_module.graph.nodes)
        if self.before is None:
            self.before = self.after = tuple(_launched(graph_module))

    def after_pass(self, graph_module: GraphModule, report: PassReport) -> None:
        """List the operators again if a pass changed the graph."""
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
        yield LaunchedOperator(
            node=node.name,
            name=name,
            shapes=shapes,
            module=module_of(node),
            bytes=_bytes(
                (*tensors, *(each for used in node.all_input_nodes for each in _tensors(used)))
            ),
        )


def module_of(node: Node) -> str:
    """Return the path of the module that a node came from, as in ``named_modules``."""
    stack = node.meta.get("nn_module_stack")
    if not isinstance(stack, dict) or not stack:
        return ""
    entry = next(reversed(stack.values()))
    path = _ROOT.sub("", str(entry[0])) if isinstance(entry, tuple) else ""
    return _INDEX.sub(r".\1", path).replace("._modules.", ".").lstrip(".")


def _bytes(tensors: Iterable[torch.Tensor]) -> int | None:
    total = 0
    for tensor in tensors:
        size = tensor.element_size()
        extents: tuple[object, ...] = tuple(tensor.shape)
        for extent in extents:
            if not isinstance(extent, int):
                return None
            size *= extent
        total += size
    return total


def _tensors(node: Node) -> list[torch.Tensor]:
    value = node.meta.get("val", node.meta.get("example_value"))
    values = value if isinstance(value, (tuple, list)) else (value,)
    return [each for each in values if isinstance(each, torch.Tensor)]


def _writes(schema: torch.FunctionSchema) -> bool:
    aliases = [argument.alias_info for argument in schema.arguments]
    return any(alias is not None and alias.is_write for alias in aliases)


def _only_looks(schema: torch.FunctionSchema) -> bool:
    """Return whether an operator returns only memory of its arguments, without writing it."""
    aliases = [returned.alias_info for returned in schema.returns]
    return schema.name != "aten::contiguous" and any(
        alias is not None and not alias.is_write for alias in aliases
    )


RAISING = "raise"


class RaisingObserver:
    """Counts the places that could be raised and those that were, in the passes of one run."""

    def __init__(self) -> None:
        self._found: Counter[str] | None = None
        self._left: Counter[str] | None = None

    def before_pass(self, graph_module: GraphModule, name: str) -> None:
        """Count the places before the raising pass."""
        if name == RAISING and self._found is None:
            self._found = _count(graph_module)

    def after_pass(self, graph_module: GraphModule, report: PassReport) -> None:
        """Count the places that remain."""
        if report.name == RAISING:
            self._left = _count(graph_module)

    def lines(self) -> Iterator[str]:
        """Yield one line per kind; none if the pipeline does not raise."""
        if self._left is None or self._found is None:
            return
        for kind in SITE_KINDS:
            found = self._found[kind]
            if found:
                yield f"raised: {max(found - self._left[kind], 0)} of {found} places of {kind}"


def _count(graph_module: GraphModule) -> Counter[str]:
    return Counter(kind for kind, _ in find_sites(graph_module.graph))
