"""The graph context: says at each call what the run mode and the graph key are."""

from __future__ import annotations

from threading import get_ident
from typing import TYPE_CHECKING, Protocol

from npu_graph_runtime.errors import ContextThreadError, GraphKeyError
from npu_graph_runtime.run_mode import RunMode

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Self

    from npu_graph_runtime.capturing.capture_session import CaptureSession
    from npu_graph_runtime.graph_key import GraphKey


class CallContext(Protocol):
    """What a graphed callable and a capture session ask of a context.

    :class:`GraphContext` has it; so may an engine's own object that knows run mode and key of the
    step, its forward context say. It belongs to one host thread at a time.

    Attributes:
        capture_session: ``None`` at first; set by :class:`~npu_graph_runtime.CaptureSession` only.
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

    The caller owns it and hands it to every wrapper; there is no global one. It belongs to one
    host thread at a time, which :meth:`run` holds it to: two models that run concurrently have a
    context each. An engine's own object may stand for it: see :class:`CallContext`.

    Attributes:
        mode: run mode of the current call; ``EAGER`` outside :meth:`run`.
        key: graph key of the current call; ``None`` outside :meth:`run` and in ``EAGER`` calls
            that have none.
        capture_session: the open capture session, or ``None``; set by
            :class:`~npu_graph_runtime.CaptureSession` only.
    """

    __slots__ = ("_thread", "capture_session", "key", "mode")

    def __init__(self) -> None:
        self._thread = 0  # that is inside a span; 0 where none is
        self.mode: RunMode = RunMode.EAGER
        self.key: GraphKey | None = None
        self.capture_session: CaptureSession | None = None

    def reset(self) -> None:
        """Close the capture session that is open, and return to ``EAGER`` outside of all spans.

        Call it where you catch an exception that a signal handler raised, such as
        ``KeyboardInterrupt``, and go on: Python may call the handler just as a ``with`` statement
        is left, which then stays entered. On the thread of the span, outside of all spans.
        """
        session = self.capture_session
        if session is not None:
            session.__exit__(None, None, None)
            self.capture_session = None
        self._thread, self.mode, self.key = 0, RunMode.EAGER, None

    def run(self, mode: RunMode, key: GraphKey | None = None) -> _Run:
        """Return a context manager that sets mode and key, and restores both however it ends.

        Spans nest; the returned object may be entered again once it was left. Entering raises
        :class:`~npu_graph_runtime.errors.ContextThreadError` while another thread is inside a span.

        Args:
            mode: run mode of the calls inside.
            key: selects the graph; required unless ``mode`` is ``EAGER``.

        Raises:
            GraphKeyError: a capturing run mode without a key.
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

    def __exit__(
        self,
        exception_type: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        context = self._context
        context._thread, context.mode, context.key = self._previous  # noqa: SLF001
