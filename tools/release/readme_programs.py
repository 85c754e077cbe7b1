"""The Python programs of a README, and how it says that they are run."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

# ``... as `COMMAND example.py` ...`` in the paragraph before a program, where readers see it.
COMMAND = re.compile(r"\bas `(?P<command>[^`]* example\.py)`")
PARAGRAPH = re.compile(r"\n\s*\n")
PROGRAM = re.compile(r"^```python\n(?P<text>.*?)^```$", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class Program:
    """One ``python`` block.

    Attributes:
        line: Line of the README in which it begins.
        text: The program.
        command: How it is run, where the paragraph before it says so: ``cann-sim run -- python
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
        paragraph = PARAGRAPH.split(before.rstrip())[-1]
        told = COMMAND.search(" ".join(paragraph.split()))
        programs.append(
            Program(
                line=before.count("\n") + 2,
                text=block["text"],
                command=told["command"] if told else None,
            )
        )
    return programs
