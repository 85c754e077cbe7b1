"""Showing how far a compilation is: a bar on a terminal, a line every few seconds elsewhere."""

from __future__ import annotations

import shutil
import time
from concurrent.futures import FIRST_COMPLETED, wait
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from concurrent.futures import Future
    from types import TracebackType
    from typing import TextIO

    from typing_extensions import Self  # torch needs it

_LINE_SECONDS: Final = 5.0
_BAR_SECONDS: Final = 0.5
_WIDEST_BAR: Final = 40


class CompilationProgress:
    """Writes how much of some sources is compiled, from when the block is entered until it is left.

    A terminal gets one line that is written anew, with a bar; a file or a pipe gets a line every
    five seconds.
    """

    def __init__(self, stream: TextIO, *, total: int, sources: int) -> None:
        """Make it; nothing is written yet.

        Args:
            stream: Where to write.
            total: The weight of all sources, in any unit.
            sources: How many there are.
        """
        self._stream = stream
        self._total = total
        self._sources = sources
        self._done_weight = 0
        self._done_sources = 0
        self._is_terminal = stream.isatty()
        self._start = self._written = time.monotonic()

    def __enter__(self) -> Self:
        """Write the first line."""
        self._start = self._written = time.monotonic()
        if self._is_terminal:
            self._write_bar()
        else:
            self._write_line(f"compiling {self._sources} native sources, once")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Write the last line."""
        seconds = time.monotonic() - self._start
        if self._is_terminal:
            self._stream.write("\r\x1b[K")
        if kind is None:
            self._write_line(f"compiled {self._sources} native sources in {seconds:.0f} s")
        else:
            self._write_line(f"stopped after {self._done_sources} of {self._sources} sources")

    def while_waiting(self, futures: Collection[Future[None]]) -> Iterator[Future[None]]:
        """Yield futures as they end, and write meanwhile.

        Args:
            futures: One for each call of the compiler.
        """
        pending = set(futures)
        while pending:
            every = _BAR_SECONDS if self._is_terminal else _LINE_SECONDS
            done, pending = wait(pending, timeout=every, return_when=FIRST_COMPLETED)
            yield from done
            if time.monotonic() - self._written >= every and pending:
                self._write()

    def add(self, weight: int, sources: int) -> None:
        """Count sources that are compiled.

        Args:
            weight: Their weight.
            sources: How many they are.
        """
        self._done_weight += weight
        self._done_sources += sources

    def _write(self) -> None:
        self._written = time.monotonic()
        if self._is_terminal:
            self._write_bar()
        else:
            self._write_line(f"{self._state()}, {self._written - self._start:.0f} s")

    def _state(self) -> str:
        percent = 100 * self._done_weight // max(self._total, 1)
        return f"compiled {self._done_sources} of {self._sources} native sources, {percent} %"

    def _write_bar(self) -> None:
        state = self._state()
        room = shutil.get_terminal_size().columns - len(state) - len("cann-sim:  [] ") - 1
        width = max(min(room, _WIDEST_BAR), 0)
        full = width * self._done_weight // max(self._total, 1)
        bar = f"[{'#' * full}{'.' * (width - full)}] " if width else ""
        self._stream.write(f"\r\x1b[Kcann-sim: {bar}{state}")
        self._stream.flush()

    def _write_line(self, text: str) -> None:
        self._stream.write(f"cann-sim: {text}\n")
        self._stream.flush()
