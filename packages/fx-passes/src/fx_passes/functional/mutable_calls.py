"""Calls of operators that write, as AOTAutograd wraps them in a functional graph.

This is the only module that uses torch's private `auto_functionalized_v2` and its representation of
the memory that an operator writes; torch 2.10 to 2.14. There is no other way to learn what a
functional graph writes. From torch 2.13 on, operators tagged `out` or `inplace` are also wrapped,
each in a different way.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch._higher_order_ops.auto_functionalize import (
    AsStridedViewInfo,
    SliceViewInfo,
    auto_functionalized_v2,
    get_mutable_args,
    read_view_information_from_args,
)
from torch.fx import Node

from fx_passes.graph_argument import nodes_in, value_of
from fx_passes.normal_form.operator_signature import OperatorSignature
from fx_passes.torch_internals import OpOverload, schema_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch.fx import Graph

__all__ = ["MutableCall", "auto_functionalized_v2"]

aten = torch.ops.aten


def _has_tag(overload: OpOverload, name: str) -> bool:
    """Return whether an operator has a tag; never where this version of torch has no such tag."""
    tag = getattr(torch.Tag, name, None)
    return tag is not None and tag in overload.tags


def _is_out(overload: OpOverload) -> bool:
    """Return whether an operator only writes the tensors that it is given for its results."""
    return _has_tag(overload, "out")


@dataclass(frozen=True, kw_only=True, eq=False)
class MutableCall:
    """A call of an operator that writes, in its functional form.

    Attributes:
        node: The call in the graph.
        overload: The operator that writes.
        bases: The values whose memory it writes a part of.
        read: The nodes it reads besides.
    """

    node: Node
    overload: OpOverload
    bases: tuple[Node, ...]
    read: tuple[Node, ...]

    @classmethod
    def of(cls, node: Node) -> MutableCall | None:
        """Read a node; None if it is no such call, or one of an unknown form."""
        if node.target is not auto_functionalized_v2 or not node.args:
            return None
        overload = node.args[0]
        bases = node.kwargs.get("_all_bases")
        if not isinstance(overload, OpOverload) or not isinstance(bases, (list, tuple)):
            return None
        if not all(isinstance(base, Node) for base in bases):
            return None
        rest = [value for name, value in node.kwargs.items() if name != "_all_bases"]
        return cls(
            node=node,
            overload=overload,
            bases=tuple(base for base in bases if isinstance(base, Node)),
            read=tuple(nodes_in(rest)),
        )

    def results(self) -> int:
        """Return the number of results of the operator before the written values."""
        if _is_out(self.overload):
            return 0
        return max(1, len(schema_of(self.overload).returns))

    def write(self, graph: Graph, memory: Sequence[Node]) -> tuple[Node, ...]:
        """Put the call of the operator itself, which writes `memory`, in place of this one.

        Returns:
            The new nodes: those that the call needs, and the call, which is last. The old call is
            gone; whoever used its results uses those of the new one and the memory.
        """
        node, before = self.node, self.node.prev
        with graph.inserting_before(node):
            keywords = self._arguments(graph, memory)
            signature = OperatorSignature.of(self.overload)
            bound = signature.bind((), keywords)
            args, kwargs = ((), keywords) if bound is None else signature.minimal(bound)
            call = graph.call_function(self.overload, args, kwargs)  # type: ignore[arg-type]
        call.meta = {key: value for key, value in node.meta.items() if key != "val"}
        value = node.meta.get("val")
        results = self.results()
        if _is_out(self.overload):
            call.meta["val"] = value
            node.replace_all_uses_with(call)
        else:
            returns = len(schema_of(self.overload).returns)
            known = value if isinstance(value, (list, tuple)) else ()
            if known:
                call.meta["val"] = known[0] if returns <= 1 else tuple(known[:results])
            first = keywords.get(get_mutable_args(self.overload)[0][0])
            same = first if _has_tag(self.overload, "inplace") and isinstance(first, Node) else None
            self._hand_on(graph, call, memory, same)
        created: list[Node] = []
        while before is not call:
            before = before.next
            created.append(before)
        graph.erase_node(node)
        return tuple(created)

    def _hand_on(self, graph: Graph, call: Node, memory: Sequence[Node], same: Node | None) -> None:
        results = self.results()
        for element in list(self.node.users):
            position = element.args[1]
            if element.target is not operator.getitem or not isinstance(position, int):
                raise TypeError(f"`{element.name}` takes no element of `{self.node.name}`")
            if position >= results:
                new = memory[position - results]
            elif same is not None:
                # An in-place operator returns what it writes.
                new = same
            elif results == 1:
                new = call
            else:
                with graph.inserting_before(element):
                    new = graph.call_function(operator.getitem, (call, position))
                new.meta = dict(element.meta)
            element.replace_all_uses_with(new)
            graph.erase_node(element)

    def _arguments(self, graph: Graph, memory: Sequence[Node]) -> dict[str, object]:
        names, types = get_mutable_args(self.overload)
        keywords: dict[str, object] = dict(self.node.kwargs)
        del keywords["_all_bases"]
        if _is_out(self.overload):
            for name in names:
                size, stride = keywords.pop(f"_{name}_size"), keywords.pop(f"_{name}_stride")
                options = {each: keywords.pop(f"_{name}_{each}") for each in ("dtype", "device")}
                empty = graph.call_function(aten.empty_strided.default, (size, stride), options)  # type: ignore[arg-type]
                keywords[name] = empty
            return keywords
        # The last argument of torch's function is not used, and takes tensors only.
        views = read_view_information_from_args(names, types, keywords, [])
        for name in names:
            found = views[name]
            if isinstance(found, list):
                keywords[name] = [self._part(graph, each, memory) for each in found]
            else:
                keywords[name] = self._part(graph, found, memory)
        return keywords

    def _part(self, graph: Graph, view: object, memory: Sequence[Node]) -> Node | None:
        """Return the part of memory that an argument represents, computed in the graph."""
        if view is None:
            return None
        position: int = view.base_index  # type: ignore[attr-defined]
        base, value = memory[position], self.bases[position].meta["val"]
        if isinstance(view, SliceViewInfo):
            return _call(graph, aten.slice.Tensor, base, view.dim, view.start, view.end)
        if not isinstance(view, AsStridedViewInfo):
            return base
        selected = _as_select(view, value)
        if selected is not None:
            return _call(graph, aten.select.int, base, *selected)
        return _call(
            graph,
            aten.as_strided.default,
            base,
            view.size,
            view.stride,
            *_offset(graph, view.storage_offset, base, value),
        )


def _as_select(view: AsStridedViewInfo, base: torch.Tensor) -> tuple[int, int] | None:
    """Return the dimension and the index of a `select` that gives the same view, if one does."""
    size, stride = list(base.shape), list(base.stride())
    numbers = (*size, *stride, *view.size, *view.stride, view.storage_offset, base.storage_offset())
    if len(view.size) != len(size) - 1 or not all(type(each) is int for each in numbers):
        return None
    offset = int(view.storage_offset) - int(base.storage_offset())
    for dim in range(len(size)):
        rest = size[:dim] + size[dim + 1 :], stride[:dim] + stride[dim + 1 :]
        if rest == (list(view.size), list(view.stride)) and stride[dim]:
            index, remainder = divmod(offset, stride[dim])
            if remainder == 0 and 0 <= index < size[dim]:
                return dim, index
    return None


def _offset(graph: Graph, offset: object, base: Node, value: torch.Tensor) -> tuple[object, ...]:
    """Return the offset of a view in its base's memory, for `as_strided`.

    The functional graph counts from the beginning of the storage at tracing time. torch
    does not guard an input's offset in its storage, so it is queried at every run.
    """
    begin: object = value.storage_offset()
    if not isinstance(offset, Node):
        if type(offset) is int and type(begin) is int and offset == begin:
            return ()
        if not isinstance(begin, int):
            begin = _call(graph, aten.sym_storage_offset.default, base)
    if isinstance(begin, int) and isinstance(offset, int):
        distance: object = offset - begin
    else:
        distance = graph.call_function(operator.sub, (offset, begin))  # type: ignore[arg-type]
    here = graph.call_function(aten.sym_storage_offset.default, (base,))
    return (graph.call_function(operator.add, (here, distance)),)  # type: ignore[arg-type]


def _call(graph: Graph, target: OpOverload, *args: object) -> Node:
    node = graph.call_function(target, args)  # type: ignore[arg-type]
    node.meta["val"] = target(*map(value_of, args))
    return node
