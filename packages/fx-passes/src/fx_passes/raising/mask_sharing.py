"""One inverted or causal mask for all attentions instead of one for each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from fx_passes.aliasing import AliasAnalysis
from fx_passes.fingerprint import fingerprint_of_functions
from fx_passes.operator_signature import find_operator
from fx_passes.report import PassReport

if TYPE_CHECKING:
    from torch.fx import Graph, GraphModule, Node

    from fx_passes.graph_pass import Condition

__all__ = ["ShareMasksPass"]


@dataclass(frozen=True, kw_only=True)
class ShareMasksPass:
    """Replaces a mask by an earlier one that is computed alike.

    Unless what it is made of is written between the two. Looks at `logical_not`, and at `triu` of
    `ones`, whose results are read by attention only.
    """

    name: str = "share_masks"
    after: tuple[str, ...] = ("raise",)
    repeats: bool = True
    preconditions: tuple[Condition, ...] = ()
    postconditions: tuple[Condition, ...] = ()

    def run(self, graph_module: GraphModule) -> PassReport:
        """Merge the masks."""
        merged = _merge(graph_module.graph)
        detail = f"{merged} masks computed once less"
        return PassReport(name=self.name, modified=merged > 0, detail=detail)

    def fingerprint(self) -> str:
        """Return a hash of what the pass does; its code belongs to the package's version."""
        return fingerprint_of_functions((), type(self).__name__, self.name)


def _merge(graph: Graph) -> int:
    aten = torch.ops.aten
    candidates = [
        node
        for target in (aten.ones.default, aten.triu.default, aten.logical_not.default)
        for node in graph.find_nodes(op="call_function", target=target)
    ]
    if not candidates:
        return 0
    aliases: AliasAnalysis | None = None
    seen: dict[str, Node] = {}
    merged = 0
    for node in candidates:
        if not _feeds_attention_only(node):
            continue
        first = seen.setdefault(f"{node.target} {node.args} {node.kwargs}", node)
        if first is node:
            continue
        aliases = AliasAnalysis(graph) if aliases is None else aliases
        if aliases.writer_between(first, node, {first, *node.all_input_nodes}) is not None:
            continue
        node.replace_all_uses_with(first)
        graph.erase_node(node)
        merged += 1
    return merged


def _feeds_attention_only(node: Node) -> bool:
    """Return whether only attention, which writes none of its arguments, reads a value."""
    # Where the process has no such operator, nothing was raised to it.
    attention = find_operator("npu::npu_fused_infer_attention_score")
    return attention is not None and all(
        user.target is attention
        or (user.target is torch.ops.aten.triu.default and _feeds_attention_only(user))
        for user in node.users
    )
