"""A capture into a graph of torch.npu or torch.cuda, which share their graphs' interface."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from npu_graph_runtime.errors import CaptureStateError

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from npu_graph_runtime.device import Stream
    from npu_graph_runtime.devices.native_device import NativeDevice


class NativeCapture:
    """A context manager that captures the work launched in the block; see `GraphDevice.capture`.

    An exception of a signal handler may occur at any Python call, for example between the end of
    `capture_begin` and the block, or as the block is left. Everything is therefore noted before it
    begins, and leaving with an exception ends everything noted, also repeatedly.

    Args:
        device: device of the graph.
        graph: a ``torch.npu.NPUGraph`` or ``torch.cuda.CUDAGraph``, empty.
        native_pool: returns the device's handle of the pool; called after all checks.
        stream: the capture stream.
        error_mode: which threads' unsafe calls break the capture.
        end_allocation: ends what the capture began in a pool's allocator, if the device rejects the
            end of the capture. torch_npu 2.10 and torch.cuda do not do this themselves; they then
            reject further captures and do not empty the cache, and no torch_npu frees the pool.
            It raises ``RuntimeError`` if nothing is open.

    Raises:
        CaptureStateError: The stream is capturing.
        RuntimeError: The device rejects the capture.
    """

    def __init__(
        self,
        device: NativeDevice,
        graph: Any,
        *,
        native_pool: Callable[[], object],
        stream: Stream,
        error_mode: str,
        end_allocation: Callable[[object], object],
    ) -> None:
        self._device = device
        self._graph = graph
        self._native_pool = native_pool
        self._stream = stream
        self._error_mode = error_mode
        self._end_allocation = end_allocation
        self._pool: object = None
        self._former: Stream | None = None
        self._current: AbstractContextManager[object] | None = None
        self._is_begun = False

    def __enter__(self) -> None:
        try:
            self._begin()
        except BaseException:
            self._abandon()
            raise

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is not None:
            self._abandon()
            return
        try:
            self._end()
            self._is_begun = False
            self._leave_stream()
        except BaseException:
            self._abandon()
            raise

    def _begin(self) -> None:
        device = self._device
        self._former = device.current_stream()
        current = device.use_stream(self._stream)
        current.__enter__()
        self._current = current
        if device.is_capturing():
            # torch_npu would prepare its allocator first and not undo that when it is refused.
            raise CaptureStateError(
                f"beginning a capture on {device.name}: {self._stream} is capturing, expected no "
                "capture under way, since captures do not nest; end it first"
            )
        self._pool = self._native_pool()
        self._is_begun = True
        try:
            self._graph.capture_begin(pool=self._pool, capture_error_mode=self._error_mode)
        except RuntimeError:
            self._is_begun = device.is_capturing()
            raise

    def _end(self) -> None:
        try:
            self._graph.capture_end()
        except RuntimeError:
            with contextlib.suppress(RuntimeError):
                self._end_allocation(self._pool)
            raise

    def _abandon(self) -> None:
        """Make the stream usable and the previous one current; drop everything of the graph."""
        if self._is_begun:
            if self._device.current_stream() != self._stream:
                self._device.use_stream(self._stream).__enter__()
            # To end what has ended would release the pool once more than it was taken.
            if self._device.is_capturing():
                # That fails too when the device has already invalidated the capture: the first
                # error says why.
                with contextlib.suppress(RuntimeError):
                    self._end()
            self._graph.reset()
            self._is_begun = False
        self._leave_stream()

    def _leave_stream(self) -> None:
        # Where an interrupt came into entering, there is nothing that could be left.
        current, self._current = self._current, None
        if current is not None:
            current.__exit__(None, None, None)
        if self._former is not None and self._device.current_stream() != self._former:
            self._device.use_stream(self._former).__enter__()
