"""Pieces that are compiled again for each range of a dynamic size, tokens say."""

from __future__ import annotations

import bisect
import dataclasses
import itertools
from typing import TYPE_CHECKING, TypeAlias

import torch

from piecewise_split.errors import SizeRangeError
from piecewise_split.planning.size_reads import node_value

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from piecewise_split.building.split import Piece

Place: TypeAlias = tuple[int, int | None]
"""Index of an input, and the dimension of it that is the size; None where it is the input."""


@dataclasses.dataclass(frozen=True)
class SizeRange:
    """Sizes for which one compilation is good.

    Attributes:
        smallest: At least 0.
        largest: The last one that counts; at least ``smallest``.

    Raises:
        SizeRangeError: No size is in it.
    """

    smallest: int
    largest: int

    def __post_init__(self) -> None:
        """Check that there are sizes in it."""
        if not 0 <= self.smallest <= self.largest:
            msg = (
                f"Making a range of sizes: it begins at {self.smallest} and ends at "
                f"{self.largest}, expected 0 or more, and the end not before the beginning."
            )
            raise SizeRangeError(msg)

    def __str__(self) -> str:
        """Return the range for messages."""
        return f"{self.smallest} to {self.largest}"


def compile_by_size(
    compile_range: Callable[[Piece, SizeRange], Callable[..., object]],
    ranges: Sequence[SizeRange],
    *,
    symbol: str | None = None,
) -> Callable[[Piece], Callable[..., object]]:
    """Return a ``compile_piece`` for `stitch` that compiles every piece once for each range.

    The compiled piece reads the size from its inputs at each call and runs what was compiled for
    its range. All is compiled when the graph is stitched. A piece none of whose inputs has the
    size itself (static ones, or a multiple of it alone) is compiled once, for all sizes.

    Args:
        compile_range: As ``compile_piece`` of `stitch`, for sizes of one range. What is expensive
            is to be kept by ``piece.structural_key`` and the range.
        ranges: In any order, no size in two of them. One of a single size is for that size alone.
        symbol: The size, as it stands in the metadata of the graph (``str`` of the SymInt); may be
            left out where the inputs of each piece have one symbol only.

    Returns:
        What `stitch` takes. The callables that it makes raise `SizeRangeError` for a size that is
        in no range.

    Raises:
        SizeRangeError: No range, or two with a size in common; or, when a piece is compiled, its
            inputs have several symbols and none is named.
    """
    ordered = sorted(ranges, key=lambda each: each.smallest)
    if not ordered:
        msg = "Compiling by size: no range is given, expected one at least."
        raise SizeRangeError(msg)
    for before, behind in itertools.pairwise(ordered):
        if behind.smallest <= before.largest:
            msg = (
                f"Compiling by size: the ranges {before} and {behind} have sizes in common, "
                f"expected each size in one range."
            )
            raise SizeRangeError(msg)
    everything = SizeRange(ordered[0].smallest, ordered[-1].largest)

    def compile_piece(piece: Piece) -> Callable[..., object]:
        place = _place(piece, symbol)
        if place is None:
            return compile_range(piece, everything)
        return _dispatch(
            place, ordered, [compile_range(piece, each) for each in ordered], piece.label
        )

    return compile_piece


def _place(piece: Piece, symbol: str | None) -> Place | None:
    places = dict(_symbols(piece))
    if symbol is None and len(places) > 1:
        msg = (
            f"Compiling {piece.label} by size: its inputs have the symbols "
            f"{', '.join(places)}, expected one; name the size by symbol=."
        )
        raise SizeRangeError(msg)
    return next(iter(places.values()), None) if symbol is None else places.get(symbol)


def _symbols(piece: Piece) -> Iterator[tuple[str, Place]]:
    """Yield each symbol that an input is, or that is a dimension of one; the cheapest last."""
    found: list[tuple[str, Place]] = []
    inputs = [node for node in piece.graph.nodes if node.op == "placeholder"]
    for index, node in enumerate(inputs):
        value = node_value(node)
        if isinstance(value, torch.SymInt):
            found.append((str(value), (index, None)))
        elif isinstance(value, torch.Tensor):
            sizes: Sequence[int | torch.SymInt] = value.shape
            found += [
                (str(size), (index, dim))
                for dim, size in enumerate(sizes)
                if isinstance(size, torch.SymInt)
            ]
    # An input that is the size costs less to ask than the shape of another.
    found.sort(key=lambda each: each[1][1] is None)
    return (each for each in found if each[0].isidentifier())


def _dispatch(
    place: Place,
    ranges: Sequence[SizeRange],
    compiled: Sequence[Callable[..., object]],
    label: str,
) -> Callable[..., object]:
    starts = [each.smallest for each in ranges]
    ends = [each.largest for each in ranges]
    index, dim = place

    def run(*args: object) -> object:
        value = args[index]
        size = value.shape[dim] if isinstance(value, torch.Tensor) and dim is not None else value
        assert isinstance(size, int)  # noqa: S101 - what the metadata of the input says
        position = bisect.bisect_right(starts, size) - 1
        if position < 0 or size > ends[position]:
            msg = (
                f"Calling {label}: the size is {size}, expected one of the ranges it was compiled "
                f"for: {', '.join(map(str, ranges))}. Add a range that holds it."
            )
            raise SizeRangeError(msg)
        return compiled[position](*args)

    return run
