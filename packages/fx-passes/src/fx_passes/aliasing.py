"""Which values of a graph may share memory, and where that memory is written."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING

from fx_passes.effects import EffectTable

if TYPE_CHECKING:
    from collections.abc import Iterable

    from torch.fx import Graph, Node

    from fx_passes.effects import Effect

__all__ = ["AliasAnalysis"]


class AliasAnalysis:
    """Groups nodes that may share memory and lists the writes to each group, in graph order.

    The analysis ignores order: values that share memory anywhere count as sharing it everywhere.
    Placeholders are taken to be distinct, as torch.compile guarantees. It stays right while pure
    nodes are erased and nodes are announced by `add`.
    """

    def __init__(self, graph: Graph) -> None:
        self._effects = EffectTable()
        self._parents: dict[Node, Node] = {}
        self._writers: list[Node] = []
        self._written: dict[Node, tuple[Node, ...]] = {}
        for node in graph.nodes:
            self._take(node, self._effects.of(node))

    def add(self, nodes: Iterable[Node]) -> None:
        """Take new nodes that write nothing into the analysis."""
        for node in nodes:
            self._take(node, self._effects.of(node))

    def _take(self, node: Node, effect: Effect) -> None:
        for alias in effect.aliases:
            self._parents[self.group(node)] = self.group(alias)
        if effect.writes or effect.barrier:
            self._writers.append(node)
            # A barrier is kept as a write to nothing in particular.
            self._written[node] = () if effect.barrier else effect.writes

    def group(self, node: Node) -> Node:
        """Return the node that stands for all those that may share memory with this one."""
        parents = self._parents
        root = node
        while (parent := parents.get(root, root)) is not root:
            root = parent
        while (parent := parents.get(node, node)) is not root:
            parents[node] = root
            node = parent
        return root

    def writes_anywhere(self) -> bool:
        """Return whether the graph writes memory at all."""
        return bool(self._writers)

    def writer_between(self, first: Node, last: Node | None, values: Iterable[Node]) -> Node | None:
        """Return a node that may write one of some values, or that nothing may cross.

        Args:
            first: Where the range begins (inclusive).
            last: Where it ends (inclusive); None for the end of the graph.
            values: The values.
        """
        writers = self._writers
        if not writers:
            return None
        begin = bisect_left(writers, first)
        end = len(writers) if last is None else bisect_right(writers, last)
        if begin >= end:
            return None
        groups = {self.group(value) for value in values}
        for writer in writers[begin:end]:
            written = self._written[writer]
            if not written or any(self.group(each) in groups for each in written):
                return writer
        return None

    def any_writer_between(self, first: Node, last: Node) -> Node | None:
        """Return the first node of a range (inclusive) that writes any memory, or None."""
        position = bisect_left(self._writers, first)
        if position < len(self._writers) and not last < self._writers[position]:
            return self._writers[position]
        return None
