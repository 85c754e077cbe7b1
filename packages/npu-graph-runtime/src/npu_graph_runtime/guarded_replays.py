"""Graphs that ask whoever captured into them before they are replayed."""

from __future__ import annotations

import contextlib
import threading
import weakref
from typing import TYPE_CHECKING, Any

from npu_graph_runtime.errors import ReplayRefusedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from npu_graph_runtime.device import DeviceGraph


class ExpectedReplay(threading.local):
    """What this thread is about to replay, where somebody says so.

    Attributes:
        step: any object, which only the one that sets it and its guards understand; ``None`` at
            first.
    """

    step: object = None


class GuardedReplays:
    """The graphs of one device whose replay may be refused.

    Attributes:
        expected: what the calling thread is about to replay.
    """

    def __init__(self) -> None:
        self.expected = ExpectedReplay()
        self._capturing: dict[int, DeviceGraph] = {}
        self._guarded: weakref.WeakSet[DeviceGraph] = weakref.WeakSet()

    @contextlib.contextmanager
    def capturing(
        self, graph: DeviceGraph, capture: AbstractContextManager[object]
    ) -> Iterator[None]:
        """Capture in the block; `guard` on this thread is about this graph there."""
        thread = threading.get_ident()
        with capture:
            self._capturing[thread] = graph
            try:
                yield
            finally:
                self._capturing.pop(thread, None)

    def guard(self, refusal: Callable[[object], str | None]) -> bool:
        """Ask before each replay of the graph that this thread captures now.

        Args:
            refusal: returns why the replay is refused, or ``None``; is given what the replaying
                thread is expected to replay. It must not keep the graph alive.

        Returns:
            Whether there is such a graph.
        """
        graph: Any = self._capturing.get(threading.get_ident())
        if graph is None:
            return False
        native: Callable[[Any], None] = type(graph).replay
        # A strong one would keep the graph, and its memory, until garbage is collected.
        reference = weakref.ref(graph)
        expected = self.expected

        def replay() -> None:
            problem = refusal(expected.step)
            if problem is not None:
                raise ReplayRefusedError(problem)
            native(reference())

        graph.replay = replay
        self._guarded.add(graph)
        return True

    def is_guarded(self, graph: object) -> bool:
        """Return whether a replay of the graph may be refused."""
        return graph in self._guarded
