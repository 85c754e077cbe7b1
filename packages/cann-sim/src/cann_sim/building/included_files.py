"""Finds our files that a C++ source includes, so that a changed header triggers compilation."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

_INCLUDE: Final = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"([^"\n]+)"', re.MULTILINE)


def included_files(source: Path) -> tuple[Path, ...]:
    """Return the files that a source includes in quotes, directly or not, sorted.

    Args:
        source: A C++ file. Includes are searched next to the including file, where
            all headers of the native libraries are; others are ignored.

    Raises:
        OSError: A file cannot be read.
    """
    found: set[Path] = set()
    pending = [source]
    while pending:
        file = pending.pop()
        for name in _INCLUDE.findall(file.read_text(encoding="utf-8")):
            included = (file.parent / name).resolve()
            if included not in found and included.is_file():
                found.add(included)
                pending.append(included)
    return tuple(sorted(found))
