"""Maps nodes of a functional graph to the parts of memory that they represent."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING

import torch
from torch.fx import Node
from torch.fx.experimental.symbolic_shapes import statically_known_true, sym_eq

from fx_passes.graph_argument import nodes_in, value_of
from fx_passes.memory.effect import is_composite
from fx_passes.memory.undeclared import RETURNS_MEMORY_OF_ARGUMENTS
from fx_passes.torch_internals import OpOverload, schema_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from torch.fx import Graph


aten = torch.ops.aten
_ASK_FOR_SIZES = frozenset(
    {
        aten.sym_size.int,
        aten.sym_stride.int,
        aten.sym_numel.default,
        aten.sym_storage_offset.default,
    }
)


class MemoryMap:
    """Follows views from the value that owns memory to those of a part of it.

    Values of a functional graph own their memory unless they are views. Two placeholders are
    distinct, as AOTAutograd creates them. Call `share` when values are written in place, to keep
    the map correct.
    """

    def __init__(self, graph: Graph) -> None:
        # What owns the memory of a value, and whether it shows that for sure, and no copy of it.
        self._places: dict[Node, tuple[Node, bool]] = {}
        self._members: dict[Node, list[Node]] = {}
        self._elements: dict[object, Node] = {}
        self._regions: dict[Node, torch.Tensor | None] = {}
        for node in graph.nodes:
            self.add(node)

    def add(self, node: Node) -> None:
        """Take a node into the map; its arguments are in it."""
        source, certain = _source_of_view(node)
        if source is None and node.target is operator.getitem:
            # Taking an element twice gives the same memory twice.
            source = self._elements.setdefault(node.args, node)
            source = None if source is node else source
        if source is None:
            self._places[node] = node, True
        else:
            root, sure = self._places[source]
            self._places[node] = root, certain and sure
        self._members.setdefault(self.root(node), []).append(node)

    def root(self, node: Node) -> Node:
        """Return the node that owns the memory which a node shows."""
        return self._places[node][0]

    def certain(self, node: Node) -> bool:
        """Return whether a node shows the memory of its root for sure, and no copy of it."""
        return self._places[node][1]

    def share(self, node: Node, memory: Node) -> None:
        """Take note that a node, and so its views, are the memory of another from now on."""
        region = self.region(memory)
        members = self._members.pop(node)
        root, certain = self._places[memory]
        for member in members:
            self._places[member] = root, certain and self.certain(member)
            self._regions.pop(member, None)
        self._members[root] += members
        self._regions[node] = region

    def views(self, node: Node) -> Iterator[Node]:
        """Yield a node and all that show its memory because they are views of it."""
        yield node
        for user in node.users:
            if _source_of_view(user)[0] is node:
                yield from self.views(user)

    def readers(self, nodes: Iterator[Node] | tuple[Node, ...]) -> Iterator[tuple[Node, Node]]:
        """Yield each node that reads the contents of some values, with the value it reads."""
        for node in nodes:
            for user in node.users:
                if not _reads_no_contents(user, node):
                    yield user, node

    def members(self, root: Node) -> tuple[Node, ...]:
        """Return all nodes that show a memory, its owner first."""
        return tuple(self._members[root])

    def region(self, node: Node) -> torch.Tensor | None:
        """Return a fake tensor with the size, stride and offset at which a node sees its memory.

        None where that is not known.
        """
        if node not in self._regions:
            source, _ = _source_of_view(node)
            found = node.meta.get("val")
            if source is not None:
                found = self.run_view(node, self._layout(source))
            self._regions[node] = found if isinstance(found, torch.Tensor) else None
        return self._regions[node]

    def _layout(self, node: Node) -> object:
        """Return the region of a node, or a list of them for a view that has several parts."""
        if not isinstance(node.meta.get("val"), (list, tuple)):
            return self.region(node)
        source, _ = _source_of_view(node)
        return None if source is None else self.run_view(node, self.region(source))

    def view_of(self, base: Node, view: OpOverload, arguments: tuple[object, ...]) -> object:
        """Return where a view of a node would lie; a fake tensor, or None where not known."""
        return _viewed(self.region(base), view, arguments, {})

    def run_view(self, node: Node, region: object) -> object:
        """Return where a view would lie if its argument lay there; None where not known."""
        if node.target is operator.getitem:
            position = node.args[1]
            fits = isinstance(region, (list, tuple)) and isinstance(position, int)
            return region[position] if fits else None  # type: ignore[index]
        return _viewed(region, node.target, node.args[1:], node.kwargs)

    def same_memory(self, left: Node, right: Node) -> bool:
        """Return whether two nodes surely are, or show a part of, the same memory."""
        return self.root(left) is self.root(right) and self.certain(left) and self.certain(right)


def _viewed(
    region: object, view: object, arguments: Iterable[object], kwargs: Mapping[str, object]
) -> object:
    if not isinstance(region, torch.Tensor) or not isinstance(view, OpOverload):
        return None
    try:
        keywords = {name: value_of(each) for name, each in kwargs.items()}
        return view(region, *map(value_of, arguments), **keywords)
    except RuntimeError:
        # The memory is laid out otherwise than the value of the functional graph was.
        return None


def same_layout(left: object, right: object) -> bool:
    """Return whether two fake tensors surely have equal sizes, strides and offsets."""
    if not isinstance(left, torch.Tensor) or not isinstance(right, torch.Tensor):
        return False
    return (
        left.dtype == right.dtype
        and same_size(left, right)
        and same_strides(left, right)
        and statically_known_true(sym_eq(left.storage_offset(), right.storage_offset()))
    )


def same_size(left: torch.Tensor, right: torch.Tensor) -> bool:
    """Return whether two fake tensors surely have equal sizes."""
    return statically_known_true(sym_eq(tuple(left.shape), tuple(right.shape)))


def same_strides(left: object, right: object) -> bool:
    """Return whether two fake tensors surely have equal strides."""
    if not isinstance(left, torch.Tensor) or not isinstance(right, torch.Tensor):
        return False
    return statically_known_true(sym_eq(left.stride(), right.stride()))


def is_view_operator(target: object) -> bool:
    """Return whether an operator always returns a view of its first argument."""
    # Operators that are made of others may copy: reshape, contiguous, to.
    return isinstance(target, OpOverload) and target.is_view and not is_composite(target)


def _source_of_view(node: Node) -> tuple[Node | None, bool]:
    """Return the node whose memory a node may show, and whether it surely does."""
    if node.op != "call_function" or not node.args:
        return None, True
    first = node.args[0]
    if not isinstance(first, Node):
        return None, True
    target = node.target
    if target is operator.getitem:
        # Other operators with several results return new memory.
        is_view = isinstance(first.target, OpOverload) and (
            first.target.is_view or returns_argument(first.target)
        )
        return (first, is_view_operator(first.target)) if is_view else (None, True)
    if isinstance(target, OpOverload) and target.is_view:
        return first, is_view_operator(target)
    return (first, False) if returns_argument(target) else (None, True)


def returns_argument(target: object) -> bool:
    """Return whether an operator may return an argument though its schema does not say so.

    The map takes the first argument for it.
    """
    return isinstance(target, OpOverload) and schema_of(target).name in RETURNS_MEMORY_OF_ARGUMENTS


def _reads_no_contents(user: Node, used: Node) -> bool:
    """Return whether a node uses another only for its size, to show it, or to write all of it."""
    if _source_of_view(user)[0] is used:
        return True
    if user.target in _ASK_FOR_SIZES:
        return True
    if user.target in {aten.copy_.default, aten.copy.default}:
        return user.args[0] is used and used not in nodes_in(user.args[1:])
    return False
