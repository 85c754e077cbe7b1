"""Which values of a graph may share memory, and where that memory is written."""

from __future__ import annotations

import operator
from bisect import bisect_left
from typing import TYPE_CHECKING

import torch
from torch.fx import Node

from fx_passes.graph_argument import held_by, value_of
from fx_passes.memory.effect import EffectTable
from fx_passes.torch_internals import storage_key

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from torch.fx import Graph


GIVEN = frozenset({"placeholder", "get_attr"})
"""What nodes of memory from outside of a graph are."""


class AliasAnalysis:
    """Groups nodes that may share memory and lists the writes to each group, in graph order.

    The analysis ignores order: values that share memory anywhere count as sharing it everywhere.
    Placeholders are assumed to be distinct, unless their fake values share memory; so are
    tensors of the module, unless they share memory. It stays correct while nodes that write nothing
    are added and removed if you call `replace` and `forget`, and `forget_writes` for removed nodes
    that wrote. Overlaps of inputs and the groups of writes are computed when first needed: most
    rewrites are where nothing is written.

    Args:
        graph: The graph.
        effects: Table of operators' effects; by default a new one.
    """

    def __init__(self, graph: Graph, effects: EffectTable | None = None) -> None:
        self._effects = EffectTable() if effects is None else effects
        self._graph = graph
        # A node's parent shares memory with it. Parents of views are found when they are asked for.
        self._parents: dict[Node, Node] = {}
        self._writers: list[Node] = []
        self._barriers: list[Node] = []
        # For each group that is written, its writers in graph order; None until that is asked for.
        self._writers_of: dict[Node, list[Node]] | None = None
        self._inputs_are_known = True
        for node in self._effects.possible_writers(graph):
            effect = self._effects.of(node)
            self._join(node, effect.aliases)
            if effect.writes or effect.barrier:
                self._writers.append(node)
            if effect.barrier:
                self._barriers.append(node)
        # Where nothing is written it is of no account what overlaps. Until it is known, inputs
        # stand for themselves, so that no group that was asked for before changes by it.
        self._inputs_are_known = not self._writers
        if any(node.op in GIVEN for node in self._parents):
            self._find_overlapping_inputs()

    def _find_overlapping_inputs(self) -> None:
        if self._inputs_are_known:
            return
        self._inputs_are_known = True
        for first, second in _given_twice(self._graph):
            self._join(first, (second,))

    def _writers_by_group(self) -> dict[Node, list[Node]]:
        self._find_overlapping_inputs()
        found = self._writers_of
        if found is None:
            # A group that is joined to another while this is made hands its writers over.
            found = self._writers_of = {}
            for node in self._writers:
                for written in self._effects.of(node).writes:
                    writers = found.setdefault(self.group(written), [])
                    if not writers or writers[-1] is not node:
                        writers.append(node)
        return found

    def _join(self, node: Node, aliases: tuple[Node, ...]) -> None:
        for alias in aliases:
            child, parent = self.group(node), self.group(alias)
            if child is not parent:
                self._parents[child] = parent
                self._hand_over(child, parent)

    def _hand_over(self, old: Node, new: Node) -> None:
        """Take note that one group belongs to another now, with those that write it."""
        found = self._writers_of
        if old is new or found is None:
            return
        writers = found.pop(old, None)
        if writers is not None:
            found[new] = sorted({*writers, *found.get(new, ())})

    def _parent(self, node: Node) -> Node:
        parent = self._parents.get(node)
        if parent is None:
            if self._effects.fresh(node):
                if self._inputs_are_known or node.op not in GIVEN:
                    return node
                self._find_overlapping_inputs()
                return self._parents.get(node, node)
            source = node.args[0] if node.args else None
            if node.target is operator.getitem and isinstance(source, Node):
                self._parents[node] = source
                return source
            parent, *others = (*self._effects.of(node).aliases, node)
            self._parents[node] = parent
            if parent is not node:
                self._join(parent, tuple(others[:-1]))
        return parent

    def group(self, node: Node) -> Node:
        """Return the representative of all nodes that may share memory with this one."""
        root = node
        while (parent := self._parent(root)) is not root:
            root = parent
        return root

    def replace(self, old: Node, new: Node) -> None:
        """Take note that all users of one node use another now."""
        if not self._parents and self._writers_of is None:
            # Nothing was asked of what shares memory yet, and the graph itself says it from now on.
            return
        before, root = self.group(old), new
        while root is not old and (parent := self._parent(root)) is not root:
            root = parent
        if root is not old:
            self._parents[old] = new
            self._regroup(old, before)

    def forget(self, nodes: Iterable[Node]) -> None:
        """Forget results about nodes that compute something else now."""
        for node in nodes:
            before = self.group(node) if node in self._parents else node
            self._parents.pop(node, None)
            self._regroup(node, before)

    def forget_writes(self, nodes: Iterable[Node]) -> None:
        """Forget the writes of nodes that a rewrite removed, or that compute something else now."""
        gone = set(nodes).intersection(self._writers)
        if gone:
            self._writers = [node for node in self._writers if node not in gone]
            self._barriers = [node for node in self._barriers if node not in gone]
            self._writers_of = None

    def _regroup(self, node: Node, before: Node) -> None:
        """Update the writers after a node, and its views, left a group."""
        if self._writers_of is None or before not in self._writers_of:
            return
        now = self.group(node)
        if before is node:
            self._hand_over(node, now)
        elif now is not before:
            # Those who write the rest of the old group cannot be known from those who write it.
            self._writers_of = None

    def owns_memory(self, node: Node) -> bool:
        """Return whether a node surely shares memory with no other; a quick test by target."""
        if node.target is operator.getitem:
            source = node.args[0]
            if not isinstance(source, Node) or node in self._parents:
                return False
            node = source
        return self._effects.fresh(node) and self._parent(node) is node

    def surely_share(self, left: Node, right: Node) -> bool:
        """Return whether two nodes are or show the same memory for sure, and no copy of it."""
        return self._effects.owner(left) is self._effects.owner(right)

    def writes_anywhere(self) -> bool:
        """Return whether the graph writes memory at all."""
        return bool(self._writers)

    def writer_between(
        self,
        first: Node,
        last: Node | None,
        values: Iterable[Node],
        *,
        ignored: Collection[Node] = (),
    ) -> Node | None:
        """Return a node that may write one of some values, or that nothing may cross.

        Args:
            first: Where the range begins (inclusive).
            last: Where it ends (inclusive); None for the end of the graph.
            values: The values.
            ignored: Writers to ignore.
        """
        if not self._writers:
            return None
        found = _first_between(self._barriers, first, last)
        writers_of = self._writers_by_group()
        for group in {self.group(value) for value in values}:
            writer = _first_between(writers_of.get(group, ()), first, last, ignored)
            if writer is not None and (found is None or writer < found):
                found = writer
        return found

    def any_writer_between(self, first: Node, last: Node) -> Node | None:
        """Return the first node of a range (inclusive) that writes any memory, or None."""
        return _first_between(self._writers, first, last)


def _given_twice(graph: Graph) -> Iterator[tuple[Node, Node]]:
    """Yield pairs of inputs and tensors of the module that are known to share memory."""
    owners: dict[int, Node] = {}
    values: dict[int, object] = {}
    for node in (*graph.find_nodes(op="placeholder"), *graph.find_nodes(op="get_attr")):
        value = (
            value_of(node)
            if node.op == "placeholder"
            else held_by(graph.owning_module, node.target)
        )
        key = storage_key(value) if isinstance(value, torch.Tensor) else None
        if key is None:
            continue
        other = owners.setdefault(key, node)
        # Inputs that have one fake value in common were given it by hand: torch.compile passes a
        # tensor that is given twice once, and makes a fake value for each.
        if other is not node and (node.op == "get_attr" or values[key] is not value):
            yield node, other
        values.setdefault(key, value)


def _first_between(
    nodes: Sequence[Node], first: Node, last: Node | None, ignored: Collection[Node] = ()
) -> Node | None:
    """Return the first of some nodes, which are in graph order, in a range that has its ends."""
    position = bisect_left(nodes, first)
    while position < len(nodes) and nodes[position] in ignored:
        position += 1
    if position == len(nodes) or (last is not None and last < nodes[position]):
        return None
    return nodes[position]
