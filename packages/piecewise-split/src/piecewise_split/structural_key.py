"""When two pieces are the same computation.

The structure of a piece is a nested tuple: the signature of every input (kind, dtype, shape with
its symbols, stride, device, whether it requires a gradient), then every node as operation, target
and arguments, where a value is written as its position and a literal as its type and value, then
the positions of the outputs. Names do not enter, nor do the values of tensors: constants are
inputs. Two pieces with equal structures run the same code on corresponding inputs.

Modules and other non-tensor attributes enter by their name in the graph, so pieces that call
different modules are different.
"""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Iterable, Mapping
from typing import TYPE_CHECKING, TypeAlias

import torch
from torch.fx.node import _get_qualified_name

from piecewise_split.size_reads import SizeRead, Value, node_value

if TYPE_CHECKING:
    from collections.abc import Sequence

    from piecewise_split.piece_flow import GraphScope, PieceFlow

Structure: TypeAlias = tuple[Hashable, ...]


class StructureReader:
    """Reads the structures of the pieces of one graph.

    Args:
        scope: The graph.
    """

    def __init__(self, scope: GraphScope) -> None:
        self._scope = scope
        self._signatures: dict[Value, Hashable] = {}

    def structure(self, flow: PieceFlow) -> Structure:
        """Return the structure of a piece; equal structures mean equal computations."""
        positions: dict[Value, int] = {value: at for at, value in enumerate(flow.inputs)}
        reads = self._scope.sizes.reads
        steps: list[Hashable] = []
        for node in flow.nodes:
            if node in reads:
                for read in reads[node]:
                    steps.append(("sym_size", self._place(read.tensor, positions), read.dim))
                    positions[read] = len(positions)
                continue
            real_size = node in self._scope.sizes.size_objects
            steps.append(
                (
                    node.op,
                    node.target,
                    real_size,
                    self._encode(node.args, positions),
                    self._encode(node.kwargs, positions) if node.kwargs else None,
                )
            )
            positions[node] = len(positions)
        return (
            tuple(self._signature(value) for value in flow.inputs),
            tuple(steps),
            tuple(positions[value] for value in flow.outputs),
        )

    def _place(self, value: Value, positions: Mapping[Value, int]) -> Hashable:
        scope = self._scope
        if isinstance(value, torch.fx.Node):
            if value in scope.attachments:
                return ("attribute", value.target)
            stand_in = scope.sizes.replaced.get(value)
            if stand_in is not None:
                return self._encode(stand_in, positions)
            value = scope.constants.get(value, value)
        return ("value", positions[value])

    def _encode(self, argument: object, positions: Mapping[Value, int]) -> Hashable:
        if isinstance(argument, (torch.fx.Node, SizeRead)):
            return self._place(argument, positions)
        items = _items(argument)
        if items is None:
            return _encode_literal(argument)
        return (type(argument), *[self._encode(item, positions) for item in items])

    def _signature(self, value: Value) -> Hashable:
        signature = self._signatures.get(value)
        if signature is None:
            described = (
                next(iter(value.meta.values()))
                if isinstance(value, SizeRead)
                else node_value(value)
            )
            signature = self._signatures[value] = value_signature(described)
        return signature


def _items(argument: object) -> Iterable[object] | None:
    if isinstance(argument, (tuple, list)):
        return argument
    if isinstance(argument, dict):
        return argument.items()
    if isinstance(argument, slice):
        return (argument.start, argument.stop, argument.step)
    return None


def _encode_literal(literal: object) -> Hashable:
    if isinstance(literal, (float, complex)):
        return (type(literal), repr(literal))
    try:
        hash(literal)
    except TypeError:
        return ("object", id(literal))
    return (type(literal), literal)


def value_signature(value: object) -> Hashable:
    """Describe a value of a graph as far as code that was specialised on it may depend on it.

    Args:
        value: From node metadata: a tensor (fake or real), a SymInt, a literal, a tuple of these,
            or None where nothing is known.
    """
    if isinstance(value, torch.Tensor):
        strided = value.layout is torch.strided
        return (
            type(value),
            value.dtype,
            tuple(map(_dimension, value.shape)),
            tuple(map(_dimension, value.stride())) if strided else value.layout,
            value.device,
            value.requires_grad,
        )
    if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        return (type(value), value.node.expr)
    if isinstance(value, (tuple, list)):
        return (type(value), *[value_signature(item) for item in value])
    return (type(value),)


def _dimension(dim: int | torch.SymInt) -> Hashable:
    return dim if isinstance(dim, int) else dim.node.expr


def structure_digest(structure: Structure) -> str:
    """Write a structure as a hexadecimal digest that another process computes alike.

    Functions enter by their qualified name, so the digest is as stable as the names in it.
    """
    return hashlib.sha256(_text(structure).encode()).hexdigest()[:16]


def _text(part: object) -> str:
    if isinstance(part, tuple):
        return "(" + " ".join(map(_text, part)) + ")"
    if isinstance(part, type):
        return part.__qualname__
    if isinstance(part, str):
        return repr(part)
    if callable(part) and not isinstance(part, torch.fx.Node):
        return _get_qualified_name(part)
    return str(part)


def number_classes(structures: Sequence[Structure]) -> tuple[list[int], list[str]]:
    """Group pieces by structure.

    Args:
        structures: One for each piece.

    Returns:
        For each piece the index of the first piece that equals it, and the digest of its
        structure. Different structures never share a digest within one call.
    """
    first: dict[Structure, int] = {}
    digests: dict[int, str] = {}
    taken: set[str] = set()
    leaders: list[int] = []
    for index, structure in enumerate(structures):
        leader = first.setdefault(structure, index)
        leaders.append(leader)
        if leader == index:
            digest = stem = structure_digest(structure)
            number = 1
            while digest in taken:
                number += 1
                digest = f"{stem}-{number}"
            taken.add(digest)
            digests[index] = digest
    return leaders, [digests[leader] for leader in leaders]
