"""One step that turns a graph of either level into one of ATen and `npu::` overloads."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING

import torch
from torch.fx import Node

from fx_passes.graph_argument import value_of
from fx_passes.normal_form.call_translation import CallTranslator
from fx_passes.normal_form.known_sizes import sizes_given, spread_size
from fx_passes.normal_form.operator_signature import (
    SignatureTable,
    overload_names,
    resolve_overload,
)
from fx_passes.normal_form.tensor_indexing import views_of_index
from fx_passes.torch_internals import OpOverload, schema_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch.fx import Graph, GraphModule

    from fx_passes.normal_form.call_translation import Call


def normalize_graph(graph_module: GraphModule) -> int:
    """Spell the calls of a graph as operator overloads, where that is possible; in place.

    Operator packets, tensor methods, Python's operators on tensors and the functions of `torch` and
    `torch.nn.functional` become call_function nodes of `OpOverload`s; keyword arguments that can be
    given by position are, arguments equal to their default are dropped; a dtype given for an `int`
    argument becomes its number; indexing becomes views; `getitem`s of the same element become one;
    the shape of a tensor becomes numbers and inputs.
    `meta["val"]` is filled from Dynamo's `meta["example_value"]`. What is not known, or has no fake
    value to choose an overload by, stays as it is. Nodes keep their identity, name and metadata.
    The module is not recompiled.

    Args:
        graph_module: The module whose graph is changed.

    Returns:
        How many nodes were changed; 0 on a graph that is in normal form.
    """
    return normalize_nodes(graph_module.graph)


def normalize_nodes(graph: Graph) -> int:
    """Normalise a graph that belongs to no module; see `normalize_graph`."""
    normalizer = _Normalizer(graph)
    for node in graph.nodes:
        normalizer.normalize(node)
    return normalizer.changed


def spelled_otherwise(graph: Graph) -> list[Node]:
    """Return the calls that `normalize_graph` would spell as calls of operators; changes nothing.

    Rules match calls of operators, so these match nothing.
    """
    normalizer = _Normalizer(graph)
    return [
        node
        for node in graph.nodes
        if node.op in {"call_function", "call_method"}
        and not isinstance(node.target, OpOverload)
        and node.target is not operator.getitem
        and normalizer.spelling(node) is not None
    ]


class _Normalizer:
    def __init__(self, graph: Graph) -> None:
        self.changed = 0
        self._graph = graph
        self._signatures = SignatureTable()
        self._translator = CallTranslator()
        self._sizes = sizes_given(graph)

    def normalize(self, node: Node) -> None:
        if "val" not in node.meta and "example_value" in node.meta:
            node.meta["val"] = node.meta["example_value"]
        if node.op == "call_function":
            target = node.target
            if isinstance(target, OpOverload):
                if node.kwargs or torch.dtype in map(type, node.args):
                    self._rewrite(node, target, node.args, node.kwargs)
                return
            if target is operator.getitem:
                self._normalize_getitem(node)
                return
        elif node.op != "call_method":
            return
        elif node.target == "size" and len(node.args) == 1 and not node.kwargs:
            self.changed += spread_size(node, self._sizes)
            return
        found = self.spelling(node)
        if found is not None:
            self._rewrite(node, *found)

    def spelling(
        self, node: Node
    ) -> tuple[OpOverload, tuple[object, ...], Mapping[str, object]] | None:
        """Return the operator call equivalent to another call, if there is one."""
        call = self._translator.translate(node)
        if call is None:
            return None
        args, overload = call.args, self._resolve(call.args, call)
        if overload is None and node.op == "call_method" and len(args) > 1:
            # Methods take a shape as one list or as several numbers, operators as a list.
            args = (args[0], list(args[1:]))
            overload = self._resolve(args, call)
        if overload is None or not _returns_fit(node, overload):
            return None
        return overload, args, call.kwargs

    def _resolve(self, args: tuple[object, ...], call: Call) -> OpOverload | None:
        names = overload_names(call.packet)
        if call.recorded and len(names) == 1:
            overload: OpOverload = getattr(call.packet, names[0])
            fits = self._signatures.of(overload).bind(args, call.kwargs) is not None
            return overload if fits else None
        values = [value_of(argument) for argument in args]
        keywords = {name: value_of(argument) for name, argument in call.kwargs.items()}
        return resolve_overload(call.packet, values, keywords, self._signatures)

    def _rewrite(
        self,
        node: Node,
        overload: OpOverload,
        args: tuple[object, ...],
        kwargs: Mapping[str, object],
    ) -> None:
        signature = self._signatures.of(overload)
        bound = signature.bind(args, kwargs)
        if bound is None:
            return
        bound = signature.in_normal_form(bound)
        normal_args, normal_kwargs = signature.minimal(bound)
        if node.target is overload:
            if _same_dtypes(normal_args, normal_kwargs, node):
                return
        else:
            node.op = "call_function"
            node.target = overload
        node.args = normal_args  # type: ignore[assignment]  # made of the node's own arguments
        node.kwargs = normal_kwargs  # type: ignore[assignment]
        self.changed += 1

    def _normalize_getitem(self, node: Node) -> None:
        if node.kwargs or len(node.args) != 2:
            return
        source, index = node.args
        if not isinstance(source, Node):
            return
        value = value_of(source)
        if isinstance(value, torch.Tensor):
            self._normalize_index(node, source, value.dim(), index)
        elif isinstance(index, int):
            self._merge_element(node, source, index)

    def _merge_element(self, node: Node, source: Node, index: int) -> None:
        for other in source.users:
            if other is node:
                return
            if other.target is operator.getitem and other.args == (source, index) and other < node:
                node.replace_all_uses_with(other)
                self._graph.erase_node(node)
                self.changed += 1
                return

    def _normalize_index(self, node: Node, source: Node, rank: int, index: object) -> None:
        views = views_of_index(rank, index)
        if not views:
            return
        current = source
        for overload, arguments in views[:-1]:
            with self._graph.inserting_before(node):
                args = (current, *arguments)
                view = self._graph.call_function(overload, args)
            view.meta = {
                key: value
                for key, value in node.meta.items()
                if key not in {"val", "example_value"}
            }
            view.meta["val"] = overload(*map(value_of, args))
            current = view
        overload, arguments = views[-1]
        node.target = overload
        node.args = (current, *arguments)
        self.changed += 1


def _same_dtypes(args: tuple[object, ...], kwargs: Mapping[str, object], node: Node) -> bool:
    """Return whether a call gives the same arguments by name, and the same dtypes."""
    if set(kwargs) != set(node.kwargs):
        return False
    named = ((value, node.kwargs[name]) for name, value in kwargs.items())
    pairs = (*zip(args, node.args, strict=False), *named)
    return all(type(one) is type(other) for one, other in pairs if type(other) is torch.dtype)


def _returns_fit(node: Node, overload: OpOverload) -> bool:
    """Return whether the users of a node can use the results of the operator.

    An operator with several results returns a plain tuple, a method or function of torch a named
    tuple whose fields may be read.
    """
    returns = schema_of(overload).returns
    if not returns or not all("Tensor" in str(each.type) for each in returns):
        # A custom operator without results is one all the same.
        return overload.namespace != "aten"
    if len(returns) == 1:
        return True
    return all(
        user.op == "output" or user.target is operator.getitem for user in node.users
    ) or not isinstance(node.target, str)
