"""Decides when two pieces are the same computation.

The structure of a piece is a text: the signature of every input (kind, dtype, shape with its
symbols, stride, device, whether it requires a gradient), then a line for every node with its
operation, target and arguments, in which a value is written as its position and a literal as
itself, then the positions of the outputs. It contains no names and no tensor values: constants are
inputs. Two pieces with equal structures run the same code on corresponding inputs.

Modules and other non-tensor attributes are represented by their name in the graph, so pieces that
call different modules are different.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import torch

from piecewise_split.planning.size_reads import SizeRead, Value, node_value
from piecewise_split.torch_internals import qualified_name

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping, Sequence

    from piecewise_split.planning.analysed_graph import AnalysedGraph, PieceNodes

_REPR_IS_EXACT = frozenset(
    {
        int,
        bool,
        float,
        complex,
        str,
        type(None),
        type(...),
        torch.dtype,
        torch.device,
        torch.layout,
        torch.memory_format,
    }
)


class StructureReader:
    """Reads the structures of the pieces of one graph."""

    def __init__(self, analysed: AnalysedGraph) -> None:
        self._analysed = analysed
        self._values: dict[Value, str] = {}
        self._signatures = _Texts(str)
        self._targets = _Texts(lambda it: qualified_name(it) if callable(it) else str(it))
        self._objects = _Texts(lambda literal: f"object of {type(literal).__qualname__}")

    def structure(self, piece: PieceNodes) -> str:
        """Return the structure of a piece; equal structures mean equal computations."""
        places: dict[Value, str] = {value: f"%{at}" for at, value in enumerate(piece.inputs)}
        sizes, targets = self._analysed.sizes, self._targets
        lines = [self._signature(value) for value in piece.inputs]
        for node in piece.nodes:
            if node in sizes.reads:
                for read in sizes.reads[node]:
                    lines.append(f"sym_size {self._place(read.tensor, places)} {read.dim}")
                    places[read] = f"%{len(places)}"
                continue
            operation = f"{node.op} on size" if node in sizes.size_objects else node.op
            line = [operation, targets[node.target]]
            line += [self._encode(argument, places) for argument in node.args]
            if node.kwargs:
                line += [f"{key}={self._encode(it, places)}" for key, it in node.kwargs.items()]
            lines.append(" ".join(line))
            places[node] = f"%{len(places)}"
        lines.append(" ".join(["return", *[places[value] for value in piece.outputs]]))
        return "\n".join(lines)

    def _place(self, value: Value, places: Mapping[Value, str]) -> str:
        place = places.get(value)
        if place is not None:
            return place
        assert isinstance(value, torch.fx.Node)  # noqa: S101  reads always have a place
        analysed = self._analysed
        if value in analysed.attachments:
            return f"attribute {value.target}"
        stand_in = analysed.sizes.replaced.get(value)
        if stand_in is not None:
            return self._encode(stand_in, places)
        return places[analysed.constants[value]]

    def _encode(self, argument: object, places: Mapping[Value, str]) -> str:
        kind = type(argument)
        if isinstance(argument, (torch.fx.Node, SizeRead)):
            return self._place(argument, places)
        if kind in _REPR_IS_EXACT:
            return repr(argument)
        if isinstance(argument, (tuple, list)):
            items = ", ".join([self._encode(item, places) for item in argument])
            return f"{kind.__name__}({items})"
        if isinstance(argument, dict):
            items = ", ".join(
                [f"{key!r}: {self._encode(item, places)}" for key, item in argument.items()]
            )
            return f"{{{items}}}"
        if isinstance(argument, slice):
            bounds = (argument.start, argument.stop, argument.step)
            return f"slice({', '.join([self._encode(bound, places) for bound in bounds])})"
        return self._objects[argument]

    def _signature(self, value: Value) -> str:
        text = self._values.get(value)
        if text is None:
            described = (
                next(iter(value.meta.values()))
                if isinstance(value, SizeRead)
                else node_value(value)
            )
            text = self._values[value] = self._signatures[value_signature(described)]
        return text


class _Texts:
    """A text for each object: equal objects get the same, different ones different texts."""

    def __init__(self, describe: Callable[[object], str]) -> None:
        self._describe = describe
        self._by_object: dict[tuple[type, object], str] = {}
        self._taken: set[str] = set()

    def __getitem__(self, item: object) -> str:
        key = (type(item), item)
        try:
            text = self._by_object.get(key)
        except TypeError:
            key = (type(item), id(item))
            text = self._by_object.get(key)
        if text is None:
            text = stem = self._describe(item)
            number = 1
            while text in self._taken:
                number += 1
                text = f"{stem} #{number}"
            self._taken.add(text)
            self._by_object[key] = text
        return text


def value_signature(value: object) -> Hashable:
    """Describe the properties of a value that specialised code may depend on.

    Args:
        value: From node metadata: a tensor (fake or real), a SymInt, a literal, a tuple of these,
            or None if unknown.
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


def number_classes(structures: Sequence[str]) -> tuple[list[int], list[str]]:
    """Group pieces by structure.

    Returns:
        For each piece the index of the first equal piece, and the structural key: a
        digest that is the same in another process for an equal piece, if the texts of the
        objects in it are the same there.
    """
    first: dict[str, int] = {}
    leaders = [first.setdefault(structure, index) for index, structure in enumerate(structures)]
    keys = {index: hashlib.sha256(text.encode()).hexdigest()[:16] for text, index in first.items()}
    return leaders, [keys[leader] for leader in leaders]
