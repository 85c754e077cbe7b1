"""The Python programs of a README, the documented way to run them, and their output."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# ``... as `COMMAND example.py` ...`` in the paragraph before a program, where readers see it.
COMMAND = re.compile(r"\bas `(?P<command>[^`]* example\.py)`")
PARAGRAPH = re.compile(r"\n\s*\n")
PROGRAM = re.compile(r"^```python\n(?P<text>.*?)^```$", re.DOTALL | re.MULTILINE)
# What a program prints: a text that it has itself, a comment, or the paragraph or block after it.
LITERAL = re.compile(r'^ *print\("([^"{]*)"\)$')
COMMENT = re.compile(r"^ *print\(.*\)  # (.*)$")
SENTENCE = re.compile(r"It prints(?P<text>(?:`[^`]*`|[^`])*?)(?:\.(?=\s|$)|$)")
BLOCK = re.compile(
    r"It prints:?\n\n```text\n(?P<text>.*?)^( *\.\.\.\n)?```$", re.DOTALL | re.MULTILINE
)


@dataclass(frozen=True, kw_only=True)
class Program:
    """One ``python`` block.

    Attributes:
        line: Line of the README in which it begins.
        text: The program.
        command: How it is run, where the paragraph before it says so: ``cann-sim run -- python
            example.py``; else ``None``, for plain Python.
        said: What it prints as the README says: lines or parts of lines, in their order.
        in_any_order: Whether the README leaves the order open, as of several processes.
    """

    line: int
    text: str
    command: str | None
    said: tuple[str, ...] = ()
    in_any_order: bool = False

    def missing(self, output: str) -> str | None:
        """Return the first documented line that an output lacks, if any."""
        lines = [" ".join(line.split()) for line in output.splitlines()]
        at = 0
        for text in self.said:
            wanted = " ".join(text.split())
            found = [number for number in range(at, len(lines)) if wanted in lines[number]]
            if not found:
                return text
            at = 0 if self.in_any_order else found[0]
        return None


def readme_programs(readme: Path) -> list[Program]:
    """Return the programs of a README in their order."""
    text = readme.read_text(encoding="utf-8")
    programs: list[Program] = []
    for block in PROGRAM.finditer(text):
        before = text[: block.start()]
        after = text[block.end() :].lstrip("\n")
        paragraph = PARAGRAPH.split(before.rstrip())[-1]
        told = COMMAND.search(" ".join(paragraph.split()))
        programs.append(
            Program(
                line=before.count("\n") + 2,
                text=block["text"],
                command=told["command"] if told else None,
                said=(*_said_in(block["text"]), *_said_after(after)),
                in_any_order="in any order" in PARAGRAPH.split(after)[0],
            )
        )
    return programs


def _said_in(program: str) -> Iterator[str]:
    for line in program.splitlines():
        if found := LITERAL.match(line) or COMMENT.match(line):
            yield found[1]


def _said_after(text: str) -> list[str]:
    if block := BLOCK.match(text):
        return block["text"].splitlines()
    sentence = SENTENCE.match(" ".join(PARAGRAPH.split(text)[0].split()))
    return re.findall(r"`([^`]*)`", sentence["text"]) if sentence else []
