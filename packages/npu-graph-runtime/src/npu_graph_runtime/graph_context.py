"""The graph context: says at each call what the run mode and the graph key are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from npu_graph_runtime.errors import GraphKeyError
from npu_graph_runtime.run_mode import RunMode

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Self

    from npu_graph_runtime.capture_session import CaptureSession
    from npu_graph_runtime.graph_key import GraphKey


class GraphContext:
    """Run mode and graph key of the current call, shared by the wrappers of one model.

    The caller owns it and hands it to every wrapper; there is no global one. It belongs to one
    host thread at a time: two models that run concurrently have a context each.

    Attributes:
        mode: run mode of the current call; ``EAGER`` outside :meth:`run`.
        key: graph key of the current call; ``None`` outside :meth:`run` and in ``EAGER`` calls
            that have none.
        capture_session: the open capture session, or ``None``; set by
            :class:`~npu_graph_runtime.CaptureSession` only.
    """

    __slots__ = ("capture_session", "key", "mode")

    def __init__(self) -> None:
        self.mode: RunMode = RunMode.EAGER
        self.key: GraphKey | None = None
        self.capture_session: CaptureSession | None = None

    def run(self, mode: RunMode, key: GraphKey | None = None) -> _Run:
        """Return a context manager that sets mode and key, and restores both however it ends.

        Spans nest; the returned object may be entered again once it was left.

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

    __slots__ = ("_context", "_key", "_mode", "_previous_key", "_previous_mode")

    def __init__(self, context: GraphContext, mode: RunMode, key: GraphKey | None) -> None:
        self._context = context
        self._mode = mode
        self._key = key

    def __enter__(self) -> Self:
        context = self._context
        self._previous_mode = context.mode
        self._previous_key = context.key
        context.mode = self._mode
        context.key = self._key
        return self

    def __exit__(
        self,
        exception_type: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._context.mode = self._previous_mode
        self._context.key = self._previous_key
