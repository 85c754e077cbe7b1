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

    from npu_graph_runtime.device import DeviceGraph


class ExpectedReplay(threading.local):
    """What this thread is about to replay, if set.

    Attributes:
        step: any object, which only its owner and the guards understand; ``None`` at
            first.
    """

    step: object = None


class GuardedReplays:
    """The graphs of one device whose replay may be rejected.

    Attributes:
        expected: what the calling thread is about to replay.
    """

    def __init__(self) -> None:
        self.expected = ExpectedReplay()
        self._capturing: dict[int, DeviceGraph] = {}
        self._guarded: weakref.WeakSet[DeviceGraph] = weakref.WeakSet()

    def capturing(
        self, graph: DeviceGraph, capture: AbstractContextManager[object]
    ) -> AbstractContextManager[object]:
        """Return a context manager that captures; `guard` on its thread refers to this graph."""
        return _GuardedCapture(self._capturing, graph, capture)

    def guard(
        self, refusal: Callable[[object], str | None], *, waits_for_updates: bool = True
    ) -> bool:
        """Call back before each replay of the graph that this thread is capturing.

        Args:
            refusal: returns why the replay is rejected, or ``None``. Its argument is what the
                replaying thread is expected to replay. It must not keep the graph alive.
            waits_for_updates: whether the graph must not be replayed without a step of updates.
                Only one refusal of a graph does so, the last one; the others are asked before it.

        Returns:
            Whether there is such a graph.
        """
        graph: Any = self._capturing.get(threading.get_ident())
        if graph is None:
            return False
        replay: object = vars(graph).get("replay")
        if not isinstance(replay, _AskingReplay):
            replay = graph.replay = _AskingReplay(graph, self.expected)
        asked = replay.asked
        if not waits_for_updates:
            if refusal not in asked:
                asked.insert(0, refusal)
        elif graph in self._guarded:
            asked[-1] = refusal
        else:
            asked.append(refusal)
            self._guarded.add(graph)
        return True

    def is_guarded(self, graph: object) -> bool:
        """Return whether the graph must not be replayed without a step of updates."""
        return graph in self._guarded


class _AskingReplay:
    """Asks before each replay of a graph; owned by the graph, so that both can be collected."""

    def __init__(self, graph: DeviceGraph, expected: ExpectedReplay) -> None:
        self.asked: list[Callable[[object], str | None]] = []
        self._native: Callable[[Any], None] = type(graph).replay
        # A strong one would keep the graph, and its memory, until garbage is collected.
        self._graph = weakref.ref(graph)
        self._expected = expected

    def __call__(self) -> None:
        step = self._expected.step
        for refusal in self.asked:
            problem = refusal(step)
            if problem is not None:
                raise ReplayRefusedError(problem)
        self._native(self._graph())


class _GuardedCapture:
    """A capture that `GuardedReplays.guard` finds; may be left again after an exception."""

    def __init__(
        self,
        capturing: dict[int, DeviceGraph],
        graph: DeviceGraph,
        capture: AbstractContextManager[object],
    ) -> None:
        self._capturing = capturing
        self._graph = graph
        self._capture = capture
        self._thread = 0

    def __enter__(self) -> None:
        self._thread = threading.get_ident()
        try:
            self._capture.__enter__()
            self._capturing[self._thread] = self._graph
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
