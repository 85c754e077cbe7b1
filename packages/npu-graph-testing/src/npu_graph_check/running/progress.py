"""Shows the progress of a run on standard error."""

from __future__ import annotations

import sys
from contextlib import suppress

_WIDTH = 24


class Progress:
    """A bar on one line of a terminal; elsewhere a line for each probe that has ended."""

    def __init__(self, total: int, *, quiet: bool) -> None:
        self._total = total
        self._quiet = quiet
        self._is_terminal = sys.stderr.isatty()

    def begin(self, number: int, name: str) -> None:
        """Show that a probe begins; ``number`` counts from 1."""
        if self._quiet or not self._is_terminal:
            return
        done = (number - 1) * _WIDTH // max(self._total, 1)
        bar = "#" * done + "-" * (_WIDTH - done)
        _say(f"\r\x1b[K[{bar}] {number}/{self._total} {name}")

    def finish(self, number: int, name: str, verdict: str, because: str) -> None:
        """Show the result of a probe; with a progress bar, only if it is not confirmed."""
        if self._quiet or (self._is_terminal and verdict == "confirmed"):
            return
        start = "\r\x1b[K" if self._is_terminal else f"{number}/{self._total} "
        reason = f" ({because})" if because else ""
        _say(f"{start}{name}: {verdict}{reason}\n")

    def end(self) -> None:
        """Leave the line free."""
        if self._is_terminal and not self._quiet:
            _say("\r\x1b[K")


def _say(text: str) -> None:
    # A terminal that was closed is no reason to lose what the probes see.
    with suppress(OSError):
        sys.stderr.write(text)
        sys.stderr.flush()
