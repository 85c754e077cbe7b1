"""Decomposes sizes of tensors, so that no ``torch.Size`` is passed between pieces.

A node that reads a whole size (``x.size()``, ``x.shape``, ``aten.sym_size``) is replaced by its
dimensions: a literal for a static dimension, an existing SymInt placeholder for a dimension that is
exactly that symbol, and one ``aten.sym_size.int`` call otherwise. The graph itself is not changed;
:class:`SizeTable` has the replacement of each such node.
"""

from __future__ import annotations

import dataclasses
import operator
from typing import TYPE_CHECKING, TypeAlias, cast

import torch

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclasses.dataclass(frozen=True, eq=False)
class SizeRead:
    """One dynamic dimension that a size node reads.

    Attributes:
        name: Name of the value, unique in the graph.
        tensor: The node whose size is read.
        dim: Index of the dimension, from 0.
        meta: Node metadata for the value: the SymInt under the key that the graph uses.
    """

    name: str
    tensor: torch.fx.Node
    dim: int
    meta: dict[str, object]


Value: TypeAlias = torch.fx.Node | SizeRead
"""Anything that can be passed from piece to piece."""

Dim: TypeAlias = int | SizeRead | torch.fx.Node

_SIZE_TARGETS = frozenset(
    {
        torch.ops.aten.sym_size,
        torch.ops.aten.sym_size.default,
        torch.ops.aten.size,
        torch.ops.aten.size.default,
        torch.Tensor.size,
        getattr,
    }
)


def node_value(node: torch.fx.Node) -> object:
    """Return the value of a node according to its metadata (``val``, else ``example_value``)."""
    meta = node.meta
    value: object = meta.get("val")
    return meta.get("example_value") if value is None else value


class SizeTable:
    """Replacements of the nodes that read a whole size, and of the nodes that index it.

    Attributes:
        replaced: Maps a node to its dimension (an indexed size) or its tuple of dimensions.
        reads: Maps a size node to its used reads, in order of dimension. A size node
            without an entry is not needed any more.
        opaque: Nodes that return a size without the metadata to decompose it.
        size_objects: Nodes that need a real ``torch.Size`` (methods called on it).
    """

    def __init__(self, graph: torch.fx.Graph) -> None:
        self.replaced: dict[torch.fx.Node, Dim | tuple[Dim, ...]] = {}
        self.reads: dict[torch.fx.Node, list[SizeRead]] = {}
        self.opaque: list[torch.fx.Node] = []
        self.size_objects: set[torch.fx.Node] = set()
        size_nodes = [node for node in graph.nodes if _reads_whole_size(node)]
        if size_nodes:
            names = {node.name for node in graph.nodes}
            symbols = _symbol_placeholders(graph)
            sources = {node: self._decompose(node, names, symbols) for node in size_nodes}
            self._index_sizes(size_nodes)
            self._keep_used_reads(sources)

    def used_by(self, node: torch.fx.Node) -> Iterator[Value]:
        """Yield the values that a node uses, in argument order, with sizes decomposed."""
        for used in node.all_input_nodes:
            stand_in = self.replaced.get(used) if self.replaced else None
            if stand_in is None:
                yield used
            else:
                dims = stand_in if isinstance(stand_in, tuple) else (stand_in,)
                yield from (dim for dim in dims if not isinstance(dim, int))

    def is_dissolved(self, node: torch.fx.Node) -> bool:
        """Return whether a node belongs to no piece, because its users no longer need it."""
        return node in self.replaced and node not in self.reads

    def _decompose(
        self, node: torch.fx.Node, names: set[str], symbols: dict[object, torch.fx.Node]
    ) -> list[SizeRead]:
        tensor = cast("torch.fx.Node", node.args[0])
        value = node_value(tensor)
        shape = value.shape if isinstance(value, torch.Tensor) else node_value(node)
        if not isinstance(shape, (tuple, list)):
            self.opaque.append(node)
            return []
        key = "val" if "val" in tensor.meta or "val" in node.meta else "example_value"
        dims: list[Dim] = []
        for index, dim in enumerate(shape):
            if isinstance(dim, int):
                dims.append(dim)
                continue
            expression = dim.node.expr
            if expression.is_number:
                dims.append(int(expression))
            elif expression in symbols:
                dims.append(symbols[expression])
            else:
                name = unique_name(f"{node.name}_{index}", names)
                dims.append(SizeRead(name, tensor, index, {key: dim}))
        self.replaced[node] = tuple(dims)
        return [dim for dim in dims if isinstance(dim, SizeRead)]

    def _index_sizes(self, size_nodes: list[torch.fx.Node]) -> None:
        pending = [node for node in size_nodes if node in self.replaced]
        while pending:
            size = pending.pop()
            dims = self.replaced[size]
            if not isinstance(dims, tuple):
                continue
            for user in size.users:
                if user.target is operator.getitem and not isinstance(user.args[1], torch.fx.Node):
                    index = user.args[1]
                    if isinstance(index, int):
                        self.replaced[user] = dims[index]
                        continue
                    if isinstance(index, slice) and not any(
                        isinstance(bound, torch.fx.Node)
                        for bound in (index.start, index.stop, index.step)
                    ):
                        self.replaced[user] = dims[index]
                        pending.append(user)
                        continue
                if (user.op == "call_method" or user.target is operator.getitem) and user.args[
                    0
                ] is size:
                    self.size_objects.add(user)

    def _keep_used_reads(self, sources: dict[torch.fx.Node, list[SizeRead]]) -> None:
        used: set[Value] = set()
        for node in self.replaced:
            for user in node.users:
                if user not in self.replaced:
                    used.update(self.used_by(user))
        for node, reads in sources.items():
            kept = [read for read in reads if read in used]
            if kept:
                self.reads[node] = kept


def _reads_whole_size(node: torch.fx.Node) -> bool:
    op, target = node.op, node.target
    if op == "call_method":
        found = target == "size" and len(node.args) == 1 and not node.kwargs
    elif op == "call_function" and target in _SIZE_TARGETS:
        if target is getattr:
            found = bool(node.args[1] == "shape")
        else:
            found = len(node.args) == 1 and not node.kwargs
    else:
        found = False
    return found and isinstance(node.args[0], torch.fx.Node)


def _symbol_placeholders(graph: torch.fx.Graph) -> dict[object, torch.fx.Node]:
    symbols: dict[object, torch.fx.Node] = {}
    for node in graph.find_nodes(op="placeholder"):
        value = node_value(node)
        if isinstance(value, torch.SymInt) and value.node.expr.is_symbol:
            symbols.setdefault(value.node.expr, node)
    return symbols


def unique_name(stem: str, taken: set[str]) -> str:
    """Return a name that is not taken, and take it."""
    name, number = stem, 0
    while name in taken:
        number += 1
        name = f"{stem}_{number}"
    taken.add(name)
    return name
