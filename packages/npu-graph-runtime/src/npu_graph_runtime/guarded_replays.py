"""Graphs that call back before they are replayed."""

from __future__ import annotations

import threading
import weakref
from typing import TYPE_CHECKING, Any

from npu_graph_runtime.errors import ReplayRefusedError

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager
    from types import TracebackType

    from npu_graph_runtime.device import DeviceGraph, ReplayWrap


class ExpectedReplay(threading.local):
    """What this thread is about to replay, if set.

    Attributes:
        step: any object, which only its owner and the guards understand; ``None`` at
            first.
    """

    step: object = None


class GuardedReplays:
    """A device whose graphs may reject their replay, or have something around it.

    Attributes:
        expected_replay: what the calling thread is about to replay; see `GuardingDevice`.
    """

    def __init__(self) -> None:
        self.expected_replay = ExpectedReplay()
        self._capturing: dict[int, _GuardedCapture] = {}
        self._guarded: weakref.WeakSet[DeviceGraph] = weakref.WeakSet()

    def _guarding(
        self, graph: DeviceGraph, capture: AbstractContextManager[object]
    ) -> AbstractContextManager[object]:
        """Return a context manager that captures; guards of its thread refer to this graph."""
        return _GuardedCapture(graph, capture, self._capturing, self.expected_replay)

    def guard_replays(self, refusal: Callable[[object], str | None]) -> bool:
        """Call back before replays of the graph this thread captures; see `GuardingDevice`."""
        captured = self._capturing.get(threading.get_ident())
        if captured is None:
            return False
        captured.refuse(refusal)
        self._guarded.add(captured.graph)
        return True

    def wrap_replays(self, wrap: ReplayWrap) -> bool:
        """Replace the launch of the graph this thread captures; see `WrappingDevice`."""
        captured = self._capturing.get(threading.get_ident())
        if captured is None:
            return False
        captured.wrap(wrap)
        return True

    def is_guarded(self, graph: object) -> bool:
        """Return whether the graph must not be replayed without a step of updates."""
        return graph in self._guarded


class _GuardedCapture:
    """The capture of a graph, and what its replay does besides; may be left again after an error.

    `GuardedReplays` finds it by its thread.
    """

    def __init__(
        self,
        graph: Any,
        capture: AbstractContextManager[object],
        capturing: dict[int, _GuardedCapture],
        expected: ExpectedReplay,
    ) -> None:
        self.graph = graph
        self._capture = capture
        self._capturing = capturing
        self._expected = expected
        self._thread = 0
        self._wraps: list[ReplayWrap] = []
        self._launch: Callable[[Any], None] = type(graph).replay
        # The graph owns its replay: a strong reference would keep both, and the graph's memory,
        # until garbage is collected.
        self._reference: Callable[[], Any] = weakref.ref(graph)
        launch, reference = self._launch, self._reference
        self._replay: Callable[[], None] = lambda: launch(reference())
        self._refusal: Callable[[object], str | None] | None = None

    def __enter__(self) -> None:
        self._thread = threading.get_ident()
        try:
            self._capture.__enter__()
            self._capturing[self._thread] = self
        except BaseException as error:
            self.__exit__(type(error), error, error.__traceback__)
            raise

    def __exit__(
        self,
        exception_type: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._capturing.pop(self._thread, None)
        self._capture.__exit__(exception_type, exception, traceback)

    def refuse(self, refusal: Callable[[object], str | None]) -> None:
        self._refusal = refusal
        self._set_replay()

    def wrap(self, wrap: ReplayWrap) -> None:
        if wrap not in self._wraps:
            self._wraps.append(wrap)
            replay = self._replay = wrap(self._launch, self._reference)
            self._launch = lambda _: replay()
            self._set_replay()

    def _set_replay(self) -> None:
        # Functions, because an object with `__call__` costs each replay as much as a wrap does.
        replay, refusal = self._replay, self._refusal
        self.graph.replay = replay if refusal is None else _asking(replay, refusal, self._expected)


def _asking(
    launch: Callable[[], None],
    refusal: Callable[[object], str | None],
    expected: ExpectedReplay,
) -> Callable[[], None]:
    def replay() -> None:
        problem = refusal(expected.step)
        if problem is not None:
            raise ReplayRefusedError(problem)
        launch()

    return replay
