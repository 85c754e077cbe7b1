"""The Python programs of a README, and how it says that they are run."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

# ``<!-- ... as `COMMAND example.py` -->`` in the line before a program.
COMMAND = re.compile(r"<!--.*\bas `(?P<command>[^`]* example\.py)`.*-->\s*\Z")
PROGRAM = re.compile(r"^```python\n(?P<text>.*?)^```$", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class Program:
    """One ``python`` block.

    Attributes:
        line: Line of the README in which it begins.
        text: The program.
        command: How it is run, where the line before says so: ``cann-sim run -- python
            example.py``; else ``None``, for plain Python.
    """

    line: int
    text: str
    command: str | None


def readme_programs(readme: Path) -> list[Program]:
    """Return the programs of a README in their order."""
    text = readme.read_text(encoding="utf-8")
    programs: list[Program] = []
    for block in PROGRAM.finditer(text):
        before = text[: block.start()]
        comment = COMMAND.search(before.rstrip("\n").rsplit("\n", maxsplit=1)[-1])
        programs.append(
            Program(
                line=before.count("\n") + 2,
                text=block["text"],
                command=comment["command"] if comment else None,
            )
        )
    return programs
