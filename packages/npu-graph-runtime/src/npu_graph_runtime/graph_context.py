"""The graph context, which provides run mode and graph key of each call."""

from __future__ import annotations

from threading import get_ident
from typing import TYPE_CHECKING, Protocol

from npu_graph_runtime.errors import ContextThreadError, GraphKeyError
from npu_graph_runtime.run_mode import RunMode

if TYPE_CHECKING:
    from typing_extensions import Self

    from npu_graph_runtime.capturing.capture_session import CaptureSession
    from npu_graph_runtime.graph_key import GraphKey


class CallContext(Protocol):
    """The interface of a context for graphed callables and capture sessions.

    :class:`GraphContext` implements it. Your engine's own object that knows run mode and key of the
    step, such as its forward context, may implement it too. Use it from one host thread at a time.

    Attributes:
        capture_session: ``None`` at first; only :class:`~npu_graph_runtime.CaptureSession` sets it.
    """

    capture_session: CaptureSession | None

    @property
    def mode(self) -> RunMode:
        """Run mode of the current call."""

    @property
    def key(self) -> GraphKey | None:
        """Graph key of the current call; not ``None`` in a capturing run mode."""


class GraphContext:
    """Run mode and graph key of the current call, shared by the wrappers of one model.

    Create one and pass it to every wrapper; there is no global context. :meth:`run` ensures that
    only one host thread uses it at a time, so models that run concurrently need a context each. An
    object of your engine may replace it: see :class:`CallContext`.

    Attributes:
        mode: run mode of the current call; ``EAGER`` outside :meth:`run`.
        key: graph key of the current call; ``None`` outside :meth:`run`, and in ``EAGER`` calls
            without a key.
        capture_session: the open capture session, or ``None``; only
            :class:`~npu_graph_runtime.CaptureSession` sets it.
    """

    __slots__ = ("_thread", "capture_session", "key", "mode")

    def __init__(self) -> None:
        self._thread = 0  # that is inside a span; 0 where none is
        self.mode: RunMode = RunMode.EAGER
        self.key: GraphKey | None = None
        self.capture_session: CaptureSession | None = None

    def reset(self) -> None:
        """Close an open capture session, and return to ``EAGER`` outside all spans.

        Call it if you catch an exception raised by a signal handler, such as ``KeyboardInterrupt``,
        and
        continue: Python may call the handler just when a ``with`` statement is left, which then
        remains entered. Call it on the thread of the span, outside all spans.
        """
        session = self.capture_session
        if session is not None:
            session.__exit__(None, None, None)
            self.capture_session = None
        self._thread, self.mode, self.key = 0, RunMode.EAGER, None

    def run(self, mode: RunMode, key: GraphKey | None = None) -> _Run:
        """Return a context manager that sets mode and key, and restores both however it ends.

        Spans can be nested, and the returned object can be entered again after it was left.
        Entering raises :class:`~npu_graph_runtime.errors.ContextThreadError` while another thread
        is inside a span.

        Args:
            mode: run mode of the calls inside.
            key: selects the graph; required unless ``mode`` is ``EAGER``.

        Raises:
            GraphKeyError: A capturing run mode has no key.
        """
        if key is None and mode is not RunMode.EAGER:
            raise GraphKeyError(
                f"entering run mode {mode.name}: the graph key is None, expected a GraphKey, "
                "since a graph is captured and found by it; pass one, or use RunMode.EAGER"
            )
        return _Run(self, mode, key)


class _Run:
    """One span of calls in one run mode."""

    __slots__ = ("_context", "_key", "_mode", "_previous")

    def __init__(self, context: GraphContext, mode: RunMode, key: GraphKey | None) -> None:
        self._context = context
        self._mode = mode
        self._key = key

    def __enter__(self) -> Self:
        context = self._context
        thread, owner = get_ident(), context._thread  # noqa: SLF001 - two parts of one thing
        if owner and owner != thread:
            raise ContextThreadError(
                f"entering run mode {self._mode.name} on thread {thread}: thread {owner} is in run "
                f"mode {context.mode.name} of the same context, expected no other thread; give "
                "each thread a context of its own"
            )
        self._previous = (owner, context.mode, context.key)
        context._thread = thread  # noqa: SLF001
        context.mode = self._mode
        context.key = self._key
        return self

    def __exit__(self, _kind: object, _error: object, _traceback: object, /) -> None:
        context = self._context
        context._thread, context.mode, context.key = self._previous  # noqa: SLF001
