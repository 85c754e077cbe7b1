"""How far long work of a command is, on the standard error."""

from __future__ import annotations

import sys


class Progress:
    """Says how far work is: on one line that is written over on a terminal, else line by line.

    Args:
        quiet: says nothing.
    """

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self._is_terminal = sys.stderr.isatty()
        self._has_line = False

    def say(self, text: str) -> None:
        """Say what is done now."""
        if self._quiet:
            return
        end = "" if self._is_terminal else "\n"
        start = "\r\x1b[K" if self._is_terminal else ""
        sys.stderr.write(f"{start}npu-compile: {text}{end}")
        sys.stderr.flush()
        self._has_line = self._is_terminal

    def captured(self, what: str, size: int, done: int, total: int) -> None:
        """Say that a size is captured."""
        self.say(f"{what}captured size {size}, {done} of {total}")

    def step(self, number: int, total: int) -> None:
        """Say that a step begins: each on a terminal, else some ten of them."""
        if self._is_terminal or number % -(-total // 10) == 0:
            self.say(f"step {number} of {total}")

    def end(self) -> None:
        """Leave the line free for what comes next."""
        if self._has_line:
            sys.stderr.write("\r\x1b[K")
            self._has_line = False
