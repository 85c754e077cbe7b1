"""Which sources of a library are compiled together, as one translation unit."""

from __future__ import annotations

from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from pathlib import Path

# Behind torch's headers, compiled once, g++ 12 takes 1.4 s for a source without a line: it
# instantiates the templates that those headers use. A source of ours adds some 0.5 s. Units of this
# size take 5 to 20 s, so that eight cores still have enough of them.
_MOST_BYTES: Final = 64_000


def translation_units(
    sources: Collection[Path], alone: Collection[str]
) -> Iterator[tuple[Path, ...]]:
    """Yield the sources of a library in groups, each to be compiled as one.

    A group is of one folder, and of at most some 64 kB. Sources of a folder must therefore not
    define one name twice in their unnamed namespaces.

    Args:
        sources: All sources of the library, sorted.
        alone: Names of sources that are compiled by themselves.
    """
    together = [source for source in sources if source.name not in alone]
    for _, found in groupby(together, key=attrgetter("parent")):
        yield from _parts(tuple(found))
    yield from ((source,) for source in sources if source.name in alone)


def _parts(folder: tuple[Path, ...]) -> Iterator[tuple[Path, ...]]:
    """Yield the sources of a folder in parts of about the same size."""
    sizes = [source.stat().st_size for source in folder]
    count = -(-sum(sizes) // _MOST_BYTES)
    before = 0
    parts: list[list[Path]] = [[] for _ in range(count)]
    for source, size in zip(folder, sizes, strict=True):
        parts[(before + size // 2) * count // sum(sizes)].append(source)
        before += size
    yield from (tuple(part) for part in parts if part)
