"""A capture into a graph of torch.npu or torch.cuda, which share their graphs' interface."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from npu_graph_runtime.errors import CaptureStateError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from npu_graph_runtime.device import GraphDevice, Stream


@contextlib.contextmanager
def native_capture(
    device: GraphDevice,
    graph: Any,
    *,
    native_pool: Callable[[], object],
    stream: Stream,
    error_mode: str,
    end_allocation: Callable[[object], object],
) -> Iterator[None]:
    """Capture what the block issues; see `GraphDevice.capture`.

    Args:
        device: that the graph is of.
        graph: a ``torch.npu.NPUGraph`` or ``torch.cuda.CUDAGraph``, empty.
        native_pool: returns the device's handle of the pool; called when nothing refuses the
            capture any more.
        stream: the capture stream.
        error_mode: which threads' unsafe calls break the capture.
        end_allocation: ends, of a pool, what the capture began in the allocator, where the device
            refuses the end of the capture. torch_npu 2.10 and torch.cuda do not do that by
            themselves: they then take no further capture, and do not empty the cache; and no
            torch_npu frees the pool. Raises ``RuntimeError`` where nothing is open.

    Raises:
        CaptureStateError: the stream is capturing.
        RuntimeError: the device refuses.
    """
    with device.use_stream(stream):
        if device.is_capturing():
            # torch_npu would prepare its allocator first and not undo that when it is refused.
            raise CaptureStateError(
                f"beginning a capture on {device.name}: {stream} is capturing, expected no "
                "capture under way, since captures do not nest; end it first"
            )
        pool = native_pool()
        graph.capture_begin(pool=pool, capture_error_mode=error_mode)
        try:
            try:
                yield
            except BaseException:
                # The capture has to be ended to make the stream usable, and that fails too when
                # the device has already invalidated it: the error of the body says why.
                with contextlib.suppress(RuntimeError):
                    _end(graph, pool, end_allocation)
                raise
            _end(graph, pool, end_allocation)
        except BaseException:
            graph.reset()
            raise


def _end(graph: Any, pool: object, end_allocation: Callable[[object], object]) -> None:
    try:
        graph.capture_end()
    except RuntimeError:
        with contextlib.suppress(RuntimeError):
            end_allocation(pool)
        raise
