"""What rewrites compute from constants of a module alone, computed once and for all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch.fx import Node

from fx_passes.errors import PassError
from fx_passes.fingerprint import fingerprint_of_functions
from fx_passes.generic_passes.equal_calls import preparing_operators
from fx_passes.graph_argument import nodes_in
from fx_passes.memory import AliasAnalysis, EffectTable, escapes
from fx_passes.reports.report import PassReport
from fx_passes.torch_internals import FakeTensor

if TYPE_CHECKING:
    from torch.fx import GraphModule

    from fx_passes.graph_pass import Condition

__all__ = ["FoldConstantsPass"]

_PREFIX = "_fx_passes_constant"


@dataclass(frozen=True, kw_only=True)
class FoldConstantsPass:
    """Computes reciprocals, casts and the like of the module's own tensors when it is compiled.

    Where a graph holds its parameters itself (`get_attr`: exported and frozen graphs, Dynamo
    without inlined modules), an inverted or cast scale becomes a buffer of the module and costs no
    launch. Where parameters are inputs of the graph, as with Dynamo's default, nothing is constant
    and nothing is done; `ShareEqualCallsPass` then leaves one call for each scale.

    Only for `preparing_operators`. The buffers keep what the parameters held: whoever writes
    parameters after compilation, as in training or a weight update, must compile again or leave
    this pass out (`pipeline.without("fold_constants")`). Tensors that the graph itself writes are
    not folded.
    """

    name: str = "fold_constants"
    after: tuple[str, ...] = ("npu_fusions", "share_equal_calls")
    repeats: bool = True
    preconditions: tuple[Condition, ...] = ()
    postconditions: tuple[Condition, ...] = ()

    def run(self, graph_module: GraphModule) -> PassReport:
        """Fold the constants; runs the operators on the tensors' own device."""
        folded = _fold(graph_module)
        detail = f"{folded} calls computed once and for all"
        return PassReport(name=self.name, modified=folded > 0, detail=detail)

    def fingerprint(self) -> str:
        """Return a hash of what the pass does; its code belongs to the package's version."""
        return fingerprint_of_functions((), type(self).__name__, self.name)


def _fold(graph_module: GraphModule) -> int:
    graph = graph_module.graph
    constants = {
        node: value
        for node in graph.find_nodes(op="get_attr")
        if (value := _tensor(graph_module, str(node.target))) is not None
    }
    if not constants:
        return 0
    effects = EffectTable()
    aliases = AliasAnalysis(graph, effects)
    unwritten = {
        node: value
        for node, value in constants.items()
        if aliases.writer_between(node, None, (node,)) is None
    }
    folded: list[Node] = []
    for node in graph.nodes:
        inputs = set(nodes_in((node.args, node.kwargs)))
        if inputs and inputs <= unwritten.keys() and _may_fold(node, aliases, effects):
            unwritten[node] = _compute(node, unwritten)
            folded.append(node)
    for node in folded:
        if any(user not in unwritten for user in node.users):
            _hold(graph_module, node, unwritten[node])
    for node in reversed(folded):
        graph.erase_node(node)
    return len(folded)


def _tensor(graph_module: GraphModule, target: str) -> torch.Tensor | None:
    holder: object = graph_module
    for name in target.split("."):
        holder = getattr(holder, name, None)
    if not isinstance(holder, torch.Tensor) or isinstance(holder, FakeTensor):
        return None
    return None if holder.is_meta else holder


def _may_fold(node: Node, aliases: AliasAnalysis, effects: EffectTable) -> bool:
    if node.target not in preparing_operators() or escapes(node, effects):
        return False
    return aliases.writer_between(node, None, (node,)) is None


def _compute(node: Node, known: dict[Node, torch.Tensor]) -> torch.Tensor:
    def argument(value: object) -> object:
        if isinstance(value, Node):
            return known[value]
        if isinstance(value, (list, tuple)):
            return [argument(each) for each in value]
        return value

    if not callable(node.target):
        raise PassError(f"folding constants: `{node.name}` calls {node.target!r}, no function")
    with torch.no_grad():
        result = node.target(
            *map(argument, node.args), **{key: argument(each) for key, each in node.kwargs.items()}
        )
    if not isinstance(result, torch.Tensor):
        raise PassError(f"folding constants: `{node.name}` gave {result!r}, expected a tensor")
    return result.detach()


def _hold(graph_module: GraphModule, node: Node, value: torch.Tensor) -> None:
    """Make a buffer of the module and let the users of a node read it."""
    number = 0
    while hasattr(graph_module, f"{_PREFIX}_{number}"):
        number += 1
    name = f"{_PREFIX}_{number}"
    graph_module.register_buffer(name, value, persistent=False)
    with graph_module.graph.inserting_before(node):
        held = graph_module.graph.get_attr(name)
    held.meta = dict(node.meta)
    node.replace_all_uses_with(held)
