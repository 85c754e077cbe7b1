"""Pieces that are compiled again for each range of a dynamic size, tokens say."""

from __future__ import annotations

import bisect
import dataclasses
import itertools
from typing import TYPE_CHECKING

import torch

from piecewise_split.building.piece_sizes import describe, places_by_symbol
from piecewise_split.errors import SizeRangeError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from piecewise_split.building.piece_sizes import SizePlace
    from piecewise_split.building.split import Piece


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
            inputs have several symbols and none is named, or no piece of the graph has an input of
            the size that is named.
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


def _place(piece: Piece, symbol: str | None) -> SizePlace | None:
    places = places_by_symbol(piece)
    if symbol is None:
        if len(places) > 1:
            msg = (
                f"Compiling {piece.label} by size: its inputs have {len(places)} symbols, expected "
                f"one: {describe(places)}. Name the one that is the size, such as "
                f"symbol={next(iter(places))!r}."
            )
            raise SizeRangeError(msg)
        symbol = next(iter(places), None)
    elif symbol not in piece.sizes.places:
        known = piece.sizes.places
        found = f"expected one of {describe(known)}" if known else "and none has any symbol"
        remedy = (
            "Name one of these"
            if known
            else "Mark the dimension as dynamic before the graph is traced, or leave symbol out"
        )
        msg = (
            f"Compiling {piece.label} by size: no input of any piece of the graph has the size "
            f"{symbol!r}, {found}. {remedy}."
        )
        raise SizeRangeError(msg)
    return places[symbol][-1] if symbol in places else None


def _dispatch(
    place: SizePlace,
    ranges: Sequence[SizeRange],
    compiled: Sequence[Callable[..., object]],
    label: str,
) -> Callable[..., object]:
    starts = [each.smallest for each in ranges]
    ends = [each.largest for each in ranges]
    index, dim = place.index, place.dim

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
