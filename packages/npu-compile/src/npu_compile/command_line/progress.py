"""Shows the progress of a long command on standard error."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing_extensions import Self


class Progress:
    """Shows progress in its block: on a terminal on one line, otherwise line by line."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self._is_terminal = sys.stderr.isatty()
        self._has_line = False

    def say(self, text: str) -> None:
        """Show the current activity."""
        if self._quiet:
            return
        end = "" if self._is_terminal else "\n"
        start = "\r\x1b[K" if self._is_terminal else ""
        sys.stderr.write(f"{start}npu-compile: {text}{end}")
        sys.stderr.flush()
        self._has_line = self._is_terminal

    def captured(self, what: str, size: int, done: int, total: int) -> None:
        """Show that a size is captured."""
        self.say(f"{what}captured size {size}, {done} of {total}")

    def step(self, number: int, total: int) -> None:
        """Show that a step begins: every step on a terminal, otherwise some ten of them."""
        if self._is_terminal or number % -(-total // 10) == 0:
            self.say(f"step {number} of {total}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Clear the line for later output."""
        if self._has_line:
            sys.stderr.write("\r\x1b[K")
            self._has_line = False
