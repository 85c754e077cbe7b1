"""Computes values that rewrites derive only from weights once instead of at every step."""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch.fx import Graph, GraphModule, Node

from fx_passes.generic_passes.equal_calls import PREPARING_OPERATORS
from fx_passes.generic_passes.prepared_values import PreparedValues
from fx_passes.graph_argument import held_by, nodes_in, value_of
from fx_passes.graph_pass import GraphPass
from fx_passes.memory import PREPARED_VALUES, AliasAnalysis, EffectTable, escapes
from fx_passes.reports.report import PassReport
from fx_passes.rewriting.cost import is_prepared_weight
from fx_passes.torch_internals import FakeTensor

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


_BUFFER = "_fx_passes_constant_"


@dataclass(frozen=True, kw_only=True)
class FoldConstantsPass(GraphPass):
    """Moves reciprocals, casts and similar calls on weights out of the steps that run the graph.

    Weights are the tensors of the graph's module (`get_attr`), and inputs of a Dynamo graph
    that are parameters, buffers or tensor attributes of a module. If rewrites invert or cast
    such a scale, the graph instead calls one `PreparedValues`, which computes when a
    weight has changed, and costs no launch otherwise. If you capture the graph and replay it
    without this call, call `PreparedValues.refresh` before a replay; see `prepared_values_of`.

    Only for `PREPARING_OPERATORS`, and for inputs only for results of at most one dimension. Values
    that the graph itself writes or returns, and values of weights that it writes, stay in the step.

    Attributes:
        watches: Whether weights are watched. Disable it for graphs that are passed to another
            compiler:
            values computed from the module's own tensors then become buffers of the
            module, and inputs do not count as weights. If you write a weight later, compile again.
    """

    name: str = "fold_constants"
    after: tuple[str, ...] = ("npu_fusions", "share_equal_calls")
    repeats: bool = True
    watches: bool = True

    @property
    def prepares_weights(self) -> bool:
        """Whether inputs that are weights are prepared."""
        return self.watches

    def run(self, graph_module: GraphModule) -> PassReport:
        """Fold the constants."""
        calls, held, gone = _foldable(graph_module, inputs=self.watches)
        if held:
            (_prepare if self.watches else _hold)(graph_module, calls, held)
        for node in reversed(gone):
            graph_module.graph.erase_node(node)
        detail = f"{len(gone)} calls computed when weights change, not at every step"
        return PassReport(name=self.name, modified=bool(held), detail=detail)


def _foldable(
    graph_module: GraphModule, *, inputs: bool
) -> tuple[list[Node], list[Node], list[Node]]:
    """Return the calls that are computed only from weights, each list in order.

    Returns:
        The calls that compute what is held; those of them whose results the graph still uses; and
        the calls that leave the graph.
    """
    graph = graph_module.graph
    weights = {*_tensors_of(graph_module)}
    if inputs:
        weights |= set(filter(is_prepared_weight, graph.find_nodes(op="placeholder")))
    if not weights:
        return [], [], []
    effects = EffectTable()
    aliases = AliasAnalysis(graph, effects)
    constant = {node for node in weights if aliases.writer_between(node, None, (node,)) is None}
    folded: list[Node] = []
    for node in graph.nodes:
        used = set(nodes_in((node.args, node.kwargs)))
        if (
            used
            and used <= constant
            and node.target in PREPARING_OPERATORS
            and not escapes(node, effects)
            and aliases.writer_between(node, None, (node,)) is None
        ):
            constant.add(node)
            folded.append(node)
    # A view costs nothing, and kept it would go on showing memory that a weight has left.
    left: set[Node] = set()
    held: list[Node] = []
    inside = set(folded)
    for node in reversed(folded):
        if all(user in inside and user not in left for user in node.users):
            continue
        if effects.fresh(node) or not effects.of(node).aliases:
            held.insert(0, node)
        else:
            left.add(node)
    gone = [node for node in folded if node not in left] if held else []
    return _computing(held, folded), held, gone


def _prepare(graph_module: GraphModule, calls: Sequence[Node], held: Sequence[Node]) -> None:
    """Let the graph call a `PreparedValues` in the place of the calls."""
    graph = graph_module.graph
    weights = _sources(calls)
    name = _free_name(graph_module, PREPARED_VALUES)
    graph_module.add_submodule(name, PreparedValues(_graph_of(weights, calls, held)))
    first = next(node for node in graph.nodes if node.op != "placeholder")
    with graph.inserting_before(first):
        call = graph.call_module(name, tuple(_at_the_beginning(each) for each in weights))
        call.meta = {**held[0].meta, "val": tuple(map(value_of, held))}
        for position, node in enumerate(held):
            value = graph.call_function(operator.getitem, (call, position))
            value.meta = dict(node.meta)
            node.replace_all_uses_with(value)


def _hold(graph_module: GraphModule, calls: Sequence[Node], held: Sequence[Node]) -> None:
    """Turn the used results into buffers of the module, which needs no call."""
    weights, tensors = _sources(calls), _tensors_of(graph_module)
    with torch.no_grad():
        values = _graph_of(weights, calls, held)(*(tensors[each] for each in weights))
    for node, value in zip(held, values, strict=True):
        name = _free_name(graph_module, _BUFFER)
        graph_module.register_buffer(name, value.detach(), persistent=False)
        with graph_module.graph.inserting_before(node):
            buffer = graph_module.graph.get_attr(name)
        buffer.meta = dict(node.meta)
        node.replace_all_uses_with(buffer)


def _tensors_of(graph_module: GraphModule) -> dict[Node, torch.Tensor]:
    """Return the tensors that a module holds and its graph reads, but those without memory."""
    found: dict[Node, torch.Tensor] = {}
    for node in graph_module.graph.find_nodes(op="get_attr"):
        tensor = held_by(graph_module, node.target)
        real = isinstance(tensor, torch.Tensor) and not isinstance(tensor, FakeTensor)
        if isinstance(tensor, torch.Tensor) and real and not tensor.is_meta:
            found[node] = tensor
    return found


def _computing(held: Iterable[Node], folded: Sequence[Node]) -> list[Node]:
    """Return those of some calls that the held results are computed by, in order."""
    needed, inside = set(held), set(folded)
    for node in reversed(folded):
        if node in needed:
            needed |= inside.intersection(node.all_input_nodes)
    return [node for node in folded if node in needed]


def _sources(calls: Sequence[Node]) -> list[Node]:
    """Return what some calls read that none of them makes, each once, in order."""
    made = set(calls)
    read = dict.fromkeys(each for node in calls for each in node.all_input_nodes)
    return [each for each in read if each not in made]


def _graph_of(weights: Iterable[Node], calls: Iterable[Node], held: Iterable[Node]) -> GraphModule:
    """Return the calls as a separate graph, from the weights to the used results."""
    graph = Graph()
    known = {node: graph.placeholder(f"weight_{at}") for at, node in enumerate(weights)}
    for node in calls:
        known[node] = graph.node_copy(node, known.__getitem__)
    graph.output(tuple(known[node] for node in held))
    return GraphModule(torch.nn.Module(), graph)


def _at_the_beginning(weight: Node) -> Node:
    """Return a weight where all else comes later; one of the module can be read anywhere."""
    if weight.op != "get_attr":
        return weight
    copy = weight.graph.get_attr(str(weight.target))
    copy.meta = dict(weight.meta)
    return copy


def _free_name(graph_module: GraphModule, prefix: str) -> str:
    number = 0
    while hasattr(graph_module, f"{prefix}{number}"):
        number += 1
    return f"{prefix}{number}"
