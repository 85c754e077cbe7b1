"""The page of the runs of an engine: printed, or written to its place."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).parents[2]


def print_or_write(description: str | None, page: Path, make: Callable[[Path, str], str]) -> None:
    """Print a page, or write it.

    Args:
        description: Description of the script.
        page: Path of the page.
        make: Returns the text of the page. It gets the folder of rows and the present page, whose
            cells it keeps if they were not run again.
    """
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--rows", type=Path, default=ROOT / "build" / "engines")
    options = parser.parse_args()
    text = make(options.rows, page.read_text() if page.exists() else "")
    if options.write:
        page.write_text(text)
    else:
        print(text)
