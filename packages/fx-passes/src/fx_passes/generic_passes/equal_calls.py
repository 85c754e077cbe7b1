"""Computes arguments that every layer prepares in the same way only once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from fx_passes.graph_argument import literals_equal
from fx_passes.graph_pass import GraphPass
from fx_passes.memory import AliasAnalysis, EffectTable
from fx_passes.reports.report import PassReport
from fx_passes.rewriting.checks.substitution import substitution_problem
from fx_passes.rewriting.run_scope import where_it_runs

if TYPE_CHECKING:
    from torch.fx import Graph, GraphModule, Node

    from fx_passes.torch_internals import OpOverload


aten = torch.ops.aten
PREPARING_OPERATORS = frozenset(
    {
        aten.reciprocal.default,
        aten._to_copy.default,  # noqa: SLF001 - the name of the operator
        aten.to.dtype,
        aten.index_select.default,
        aten.reshape.default,
        aten.unsqueeze.default,
        aten.slice.Tensor,
        aten.select.int,
        aten.cat.default,
        aten.zeros_like.default,
        aten.ones.default,
        aten.triu.default,
        aten.logical_not.default,
    }
)
"""The operators that rewrites prepare arguments with.

Reciprocals and casts of scales, rows of caches, masks, zeros: deterministic, and small compared
with their users.
"""


@dataclass(frozen=True, kw_only=True)
class ShareEqualCallsPass(GraphPass):
    """Replaces a call by an earlier one with the same operator and arguments.

    Only for `PREPARING_OPERATORS`: the reciprocal of a scale, the mask of each attention, the rows
    of a cache of cosines. Chains of them are shared from their beginning, and calls that a rewrite
    left without a user are removed. A call stays if its inputs are written in between, if its own
    result is written, or if a user could tell one result from two.
    """

    name: str = "share_equal_calls"
    after: tuple[str, ...] = ("raise", "npu_fusions")
    repeats: bool = True

    def run(self, graph_module: GraphModule) -> PassReport:
        """Share the calls."""
        shared = _share(graph_module.graph)
        erased = _erase_unused(graph_module.graph)
        detail = f"{shared} calls replaced by an earlier one, {erased} that nothing used removed"
        return PassReport(name=self.name, modified=shared + erased > 0, detail=detail)


def _share(graph: Graph) -> int:
    effects = EffectTable()
    aliases: AliasAnalysis | None = None
    seen: dict[str, Node] = {}
    shared = 0
    for node in _calls(graph, *PREPARING_OPERATORS):
        first = seen.setdefault(f"{node.target} {node.args} {node.kwargs}", node)
        if first is node:
            continue
        aliases = AliasAnalysis(graph, effects) if aliases is None else aliases
        if _may_differ(first, node, aliases, effects):
            continue
        node.replace_all_uses_with(first)
        aliases.replace(node, first)
        graph.erase_node(node)
        shared += 1
    return shared


def _erase_unused(graph: Graph) -> int:
    """Remove calls that rewrites no longer use: arguments prepared for replaced operators."""
    erased = 0
    multiply = aten.mul.Tensor
    for node in reversed(_calls(graph, multiply, *PREPARING_OPERATORS)):
        by_one = node.target is not multiply or literals_equal(node.args[1], 1)
        if not node.users and by_one:
            graph.erase_node(node)
            erased += 1
    return erased


def _calls(graph: Graph, *operators: OpOverload) -> list[Node]:
    """Return the calls of some operators in the order of the graph; others are not looked at."""
    found: list[Node] = []
    for each in operators:
        found += graph.find_nodes(op="call_function", target=each, sort=False)
    return sorted(found)


def _may_differ(first: Node, second: Node, aliases: AliasAnalysis, effects: EffectTable) -> bool:
    """Return whether sharing could show: by a write, a result of the graph, or where they run."""
    if where_it_runs(first) != where_it_runs(second):
        return True
    if aliases.writes_anywhere() and (
        aliases.writer_between(first, second, second.all_input_nodes) is not None
        or aliases.writer_between(first, None, (first, second)) is not None
    ):
        return True
    return substitution_problem(second, first, effects, is_recomputed=True) is not None
