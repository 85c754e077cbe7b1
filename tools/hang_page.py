"""Writes the tables of docs/how-to/diagnose-a-hang.md from the table of error codes.

``python tools/hang_page.py`` compares, and exits with status 1 if they differ; ``--write`` writes.
Needs npu_graph_runtime. The text around the tables is written by hand.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

from npu_graph_runtime.diagnosis import ERROR_CODES

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGE = Path(__file__).parents[1] / "docs" / "how-to" / "diagnose-a-hang.md"
BEGIN = "<!-- from here on made by tools/hang_page.py -->\n"

# What hangs and what ends one first, then the others by name.
FIRST = ("DeviceTimeoutError", "DeadlockError", "KernelError", "TaskGroupError")


def with_tables(page: str) -> str:
    """Return the page with up-to-date tables.

    Args:
        page: text of the page, which contains the line that the tables follow.
    """
    written, mark, _ = page.partition(BEGIN)
    if not mark:
        raise ValueError(f"the page has no line {BEGIN!r}")
    return written + BEGIN + "\n" + "".join(f"{line}\n" for line in _tables())


def _tables() -> Iterator[str]:
    by_error = defaultdict(list)
    for row in ERROR_CODES.values():
        by_error[row.error].append(row)
    order = sorted(by_error, key=lambda error: (_place(error.__name__), error.__name__))
    for error in order:
        yield f"### `{error.__name__}`\n"
        says = (error.__doc__ or "").strip().splitlines()[0]
        yield f"{says}\n"
        by_remedy = defaultdict(list)
        for row in by_error[error]:
            by_remedy[row.remedy].append(row)
        for remedy, rows in by_remedy.items():
            yield f"**{_sentence(remedy)}**\n"
            yield "| code | the device says |\n|---|---|"
            yield from (f"| {row.code} | {_cell(row.meaning)} |" for row in rows)
            yield ""
    yield "Codes that are not here have no row in `npu_graph_runtime/failures/error_codes.py` yet."


def _place(name: str) -> int:
    return FIRST.index(name) if name in FIRST else len(FIRST)


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def main() -> int:
    """Compare or write the page; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true")
    page = PAGE.read_text(encoding="utf-8")
    made = with_tables(page)
    if parser.parse_args().write:
        PAGE.write_text(made, encoding="utf-8")
    elif made != page:
        sys.stderr.write(f"{PAGE} is not what error_codes.py says: run this with --write\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
