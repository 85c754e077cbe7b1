"""Showing how far a compilation is."""

from __future__ import annotations

import io
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from cann_sim.building import compilation_progress
from cann_sim.building.compilation_progress import CompilationProgress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compilation_progress, "_LINE_SECONDS", 0.01)
    monkeypatch.setattr(compilation_progress, "_BAR_SECONDS", 0.01)


def compile_two(stream: io.StringIO, fails: bool = False) -> str:
    """Return the progress display of two sources; the second waits until the first is shown."""
    first_is_shown = threading.Event()

    def first() -> None:
        pass

    def second() -> None:
        first_is_shown.wait(60)
        if fails:
            raise RuntimeError("no")

    class Watched(CompilationProgress):
        def _write(self) -> None:
            super()._write()
            if "1 of 2" in stream.getvalue():
                first_is_shown.set()

    with ThreadPoolExecutor(2) as pool, Watched(stream, total=4, sources=2) as progress:
        weights = {pool.submit(first): 1, pool.submit(second): 3}
        for future in progress.while_waiting(weights):
            future.result()
            progress.add(weights[future], sources=1)
    return stream.getvalue()


def test_a_pipe_gets_lines() -> None:
    lines = compile_two(io.StringIO()).splitlines()
    assert lines[0] == "cann-sim: compiling 2 native sources, once"
    assert "cann-sim: compiled 1 of 2 native sources, 25 %, 0 s" in lines
    assert lines[-1] == "cann-sim: compiled 2 native sources in 0 s"


def test_a_terminal_gets_a_bar_that_is_removed_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    shown = compile_two(Terminal())
    assert "[........" in shown
    assert "] compiled 1 of 2 native sources, 25 %" in shown
    assert shown.count("\n") == 1
    assert shown.endswith("\r\x1b[Kcann-sim: compiled 2 native sources in 0 s\n")
    assert all(len(part) < 80 for part in shown.split("\r\x1b[K"))


def test_a_narrow_terminal_gets_no_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    assert "[" not in compile_two(Terminal()).replace("\x1b[K", "")


def test_a_failure_says_how_far_it_was() -> None:
    stream = io.StringIO()
    with pytest.raises(RuntimeError):
        compile_two(stream, fails=True)
    assert stream.getvalue().endswith("cann-sim: stopped after 1 of 2 sources\n")
