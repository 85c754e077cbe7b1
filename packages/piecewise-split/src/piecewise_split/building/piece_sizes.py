"""Which dynamic sizes the inputs of pieces have, and where."""

from __future__ import annotations

import dataclasses
import functools
from typing import TYPE_CHECKING

import torch

from piecewise_split.planning.size_reads import node_value

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from piecewise_split.building.split import Piece


@dataclasses.dataclass(frozen=True)
class SizePlace:
    """An input of a piece that is a size, or that has it as a dimension.

    Attributes:
        name: Of the input, in the graph that was split.
        index: Of the input.
        dim: The dimension; None where the input is the size itself.
    """

    name: str
    index: int
    dim: int | None

    def __str__(self) -> str:
        """Return the place for messages."""
        where = "" if self.dim is None else f"dimension {self.dim} of "
        return f"{where}input {self.name!r}"


def places_by_symbol(piece: Piece) -> dict[str, list[SizePlace]]:
    """Return where the inputs of a piece have each symbol itself; the cheapest place to read last.

    Args:
        piece: Any; sizes are those in the metadata of its graph.
    """
    found: dict[str, list[SizePlace]] = {}
    # An input that is the size costs less to ask than the shape of another.
    for symbol, place in sorted(_places(piece), key=lambda each: each[1].dim is None):
        found.setdefault(symbol, []).append(place)
    return found


def describe(places: Mapping[str, Sequence[SizePlace]]) -> str:
    """Return symbols with their places, for messages."""
    return ", ".join(
        f"{symbol} ({', '.join(map(str, found[:3]))}{', ...' if len(found) > 3 else ''})"
        for symbol, found in places.items()
    )


class GraphSizes:
    """The sizes that inputs of the pieces of one graph have.

    Args:
        pieces: All of them; they may be added later.
    """

    def __init__(self, pieces: Sequence[Piece]) -> None:
        self._pieces = pieces

    @functools.cached_property
    def places(self) -> dict[str, list[SizePlace]]:
        """Where each symbol is first seen, by symbol; computed at the first access."""
        found: dict[str, list[SizePlace]] = {}
        # Reversed twice: of pieces that share their code the first is asked.
        pieces = {id(piece.code): piece for piece in reversed(self._pieces)}
        for piece in reversed(pieces.values()):
            for symbol, places in places_by_symbol(piece).items():
                found.setdefault(symbol, places)
        return found


def _places(piece: Piece) -> Iterator[tuple[str, SizePlace]]:
    inputs = [node for node in piece.graph.nodes if node.op == "placeholder"]
    for index, (node, name) in enumerate(zip(inputs, piece.input_names, strict=True)):
        value = node_value(node)
        sizes: dict[int | None, object] = {None: value}
        if isinstance(value, torch.Tensor):
            sizes = dict(enumerate(value.shape))
        for dim, size in sizes.items():
            # A multiple of a symbol, or a sum, is no symbol.
            if isinstance(size, torch.SymInt) and str(size).isidentifier():
                yield str(size), SizePlace(name, index, dim)
