"""The capture session, inside which graphs may be captured."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import gc
import pickle
import time
import traceback as tracebacks
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from npu_graph_runtime.capturing.breakable_capture import SegmentRecorder
from npu_graph_runtime.capturing.native.native_comparison import find_native_comparison
from npu_graph_runtime.device import SnapshotDevice
from npu_graph_runtime.errors import (
    CaptureSessionError,
    FeatureNotSupportedError,
    GraphRuntimeError,
    OutOfDeviceMemoryError,
)
from npu_graph_runtime.failures.diagnosis import diagnose, is_of_device
from npu_graph_runtime.observer import CaptureSessionClosed, CaptureSessionOpened
from npu_graph_runtime.torch_internals import abandon_dispatch_mode

if TYPE_CHECKING:
    import weakref
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractContextManager
    from os import PathLike
    from types import TracebackType

    import torch
    from typing_extensions import Self

    from npu_graph_runtime.capturing.guarding.capture_guard import GuardedRun
    from npu_graph_runtime.capturing.marked_call import MarkedCall
    from npu_graph_runtime.capturing.native.native_comparison import NativeComparison
    from npu_graph_runtime.capturing.watching.capture_watch import CaptureWatch
    from npu_graph_runtime.device import DeviceGraph, GraphDevice, Stream
    from npu_graph_runtime.graph_context import CallContext
    from npu_graph_runtime.observer import RuntimeObserver


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Capture:
    """The result of one capture.

    Attributes:
        graph: the captured graph.
        result: the result of the captured call. Its tensors have no values until the first replay;
            their memory belongs to the pool.
        seconds: host time of the capture.
        warmup_seconds: host time of the warm-up runs before it.
    """

    graph: DeviceGraph
    result: Any
    seconds: float
    warmup_seconds: float


class BreakListener(Protocol):
    """Receives the calls of marked functions."""

    def call_eagerly(self, call: MarkedCall) -> Any:
        """Call a function that runs eagerly and return its result."""

    def call_named(self, name: str, call: MarkedCall) -> Any:
        """Call a function whose work has a name and return its result."""


class CaptureSession:
    """Allows captures by the callables of one context, on one stream, into one pool.

    While it is open, its stream is the current stream of the thread. Warm-up runs, captures and
    eager functions between captured pieces are therefore ordered without further synchronisation.
    Garbage collection is paused, because a finaliser that frees a device object during a capture
    would break it, and because a collection for each of hundreds of pieces is slow. However the
    session ends, it restores the stream, the garbage collector and the context.

    Enter it on the thread that captures. A context has at most one open session.

    After a failed capture you can capture again, such as a smaller size after one that ran out of
    memory: the next capture first returns the memory of the failed one to the device. The frames of
    an :class:`~npu_graph_runtime.errors.OutOfDeviceMemoryError` have no local variables any more,
    because they would keep that memory alive while you handle the error.

    Args:
        device: device that captures and replays.
        context: the context of the callables that may capture.
        pool: a memory pool of ``device`` for all graphs of the session, for instance that of an
            earlier session; by default a new one.
        stream: the capture stream; by default a new one. Graphs that share a pool should also share
            the stream, so that the allocator can reuse their memory.
        after_segment: in a breakable capture, called each time a captured segment has ended and was
            replayed, before the next eager function. Use it for a barrier between ranks whose
            captures take different times and whose eager functions run collectives. If it raises,
            the capture ends. Replays do not call it.
        observer: notified when the session opens and closes, with memory figures.
        memory_snapshot: a file to which all blocks of the allocator are written when the session
            ends, also after an error, for pytorch.org/memory_viz. Needs a `SnapshotDevice`.

    Attributes:
        device: as given.
        pool: the shared pool; its memory lives as long as a graph captured into it.
        stream: the capture stream.
        after_segment: as given.
        capturing: what is being captured now, or ``None`` between captures.
        num_graphs: number of graphs captured so far.
        attempt: a distinct object for each capture that was begun, including failed ones.
        num_run: number of parts that the latest breakable capture has run, including failed ones:
            segments, and functions between them.
        memory_made: memory allocated inside captures, by the identity of its storage.

    Raises:
        FeatureNotSupportedError: The device does not support snapshots.
        CaptureSessionError: The session was entered twice, inside another session of the context,
            or while the device is capturing.
    """

    def __init__(
        self,
        device: GraphDevice,
        context: CallContext,
        pool: object = None,
        stream: Stream | None = None,
        *,
        after_segment: Callable[[], object] | None = None,
        observer: RuntimeObserver | None = None,
        memory_snapshot: str | PathLike[str] | None = None,
    ) -> None:
        if memory_snapshot is not None and not isinstance(device, SnapshotDevice):
            raise FeatureNotSupportedError(
                f"opening a capture session on {device.name}: a memory snapshot is wanted, and the "
                "device has none, expected memory_snapshot(); pass memory_snapshot=None"
            )
        self.device = device
        self.pool: object = device.create_memory_pool() if pool is None else pool
        self.stream: Stream = device.create_stream() if stream is None else stream
        self.num_graphs = 0
        self.attempt: object = None
        self.num_run = 0
        self.memory_made: dict[int, weakref.ref[torch.UntypedStorage]] = {}
        self._context = context
        self.after_segment = after_segment
        self._observer = observer
        self._memory_snapshot = memory_snapshot
        self.capturing: str | None = None
        self._has_failed = False
        self._warmup_bytes = 0
        self._listener: BreakListener | None = None
        self._collector: tuple[bool, bool] | None = None
        self._former_stream: Stream | None = None
        self._current: AbstractContextManager[object] | None = None
        self._opened: float | None = None

    def __enter__(self) -> Self:
        if self._context.capture_session is not None:
            raise CaptureSessionError(
                "opening a capture session: the context already has an open one, expected none; "
                "close it first, or capture inside it"
            )
        if self.device.is_capturing():
            raise CaptureSessionError(
                f"opening a capture session on {self.device.name}: the current stream is "
                "capturing, expected no capture; open the session before anything is captured"
            )
        try:
            self._open()
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(
        self,
        exception_type: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            self.device.synchronize()
        except GraphRuntimeError:
            if exception is None:
                raise
        except RuntimeError as error:
            # After an exception the device may fail too; the first error says why.
            if exception is None:
                subject = f"on {self.device.name}"
                raise diagnose(error, doing="closing a capture session", subject=subject) from error
        finally:
            self._close()

    @functools.cached_property
    def native_comparison(self) -> NativeComparison | None:
        """Compares inputs of replays in C; ``None`` if it cannot be compiled."""
        return find_native_comparison()

    def capture(
        self,
        call: Callable[[], Any],
        *,
        subject: str,
        warmup_runs: int = 0,
        is_breakable: bool = False,
        watch: CaptureWatch | None = None,
        guard: GuardedRun | None = None,
    ) -> Capture:
        """Capture one call into a new graph of the shared pool.

        Args:
            call: launches the work. It runs ``warmup_runs`` times eagerly and once for the capture,
                in which the device runs nothing.
            subject: what is captured, for messages.
            warmup_runs: eager runs before the capture.
            is_breakable: end the graph before each function marked by
                :func:`~npu_graph_runtime.runs_eagerly`, and begin another one after it. Each graph
                is replayed once as soon as it is captured, so the result is written.
            watch: records the memory that the capture allocates and uses; provided by
                `GraphedCallable`.
            guard: runs the call once more before the capture, and finds work that cannot be
                captured; provided by `GraphedCallable`.

        Raises:
            CaptureSessionError: The session is not open, a capture is already running, or the
                exception of an eager function was caught.
            UncapturableError: ``guard`` found work that cannot be captured.
            DeviceError: The device rejected the capture; raised from the device's own error.
            Exception: Any other error of ``call``, unchanged.
        """
        if self._context.capture_session is not self:
            raise CaptureSessionError(
                f"capturing {subject}: the capture session is closed, expected an open one; "
                "capture inside `with CaptureSession(...)`"
            )
        if self.capturing is not None:
            raise CaptureSessionError(
                f"capturing {subject}: {self.capturing} is being captured, expected no capture "
                "under way, since captures do not nest; give the inner callable another run mode"
            )
        if self._has_failed:
            self._return_memory()
        self.capturing = subject
        self.attempt = object()
        self.num_run = 0
        try:
            return self._capture(call, subject, warmup_runs, is_breakable, watch, guard)
        except BaseException as error:
            self._has_failed = True
            if isinstance(error, OutOfDeviceMemoryError):
                _clear_frames(error)
            raise
        finally:
            self.capturing = None
            self._listener = None

    def call_eagerly(self, call: MarkedCall) -> Any:
        """Call a function between two segments, if a breakable capture is running.

        It is one marked by :func:`~npu_graph_runtime.runs_eagerly`.
        """
        return call.run() if self._listener is None else self._listener.call_eagerly(call)

    def call_named(self, name: str, call: MarkedCall) -> Any:
        """Call a function whose work has a name, in a breakable capture if one is running.

        It is one marked by :func:`~npu_graph_runtime.runs_captured`.
        """
        return call.run() if self._listener is None else self._listener.call_named(name, call)

    @contextlib.contextmanager
    def told_to(self, listener: BreakListener) -> Iterator[None]:
        """Capture nothing in the block; a listener receives calls of eager and named functions.

        Use it to follow a call without capturing it. The session is not entered.
        """
        before, self._context.capture_session = self._context.capture_session, self
        self._listener, self.capturing = listener, "nothing: a call is compared with its graphs"
        try:
            yield
        finally:
            self._listener = self.capturing = None
            self._context.capture_session = before

    def _capture(
        self,
        call: Callable[[], Any],
        subject: str,
        warmup_runs: int,
        is_breakable: bool,
        watch: CaptureWatch | None,
        guard: GuardedRun | None,
    ) -> Capture:
        started = time.perf_counter()
        doing = "warming up"
        try:
            runs = [call] * warmup_runs
            if guard is not None:
                runs.append(functools.partial(self._guarded, guard, call, is_breakable))
            if runs:
                self._warm_up(runs)
            warmed_up = time.perf_counter()
            doing = "capturing"
            if watch is not None:
                watch.begin()
            graph, result = self._captured(call, subject, is_breakable, watch)
        except GraphRuntimeError:
            raise
        except RuntimeError as error:
            if not is_of_device(error):
                raise
            raise diagnose(error, doing=doing, subject=subject) from error
        finished = time.perf_counter()
        return Capture(
            graph=graph,
            result=result,
            seconds=finished - warmed_up,
            warmup_seconds=warmed_up - started,
        )

    def _captured(
        self,
        call: Callable[[], Any],
        subject: str,
        is_breakable: bool,
        watch: CaptureWatch | None,
    ) -> tuple[DeviceGraph, Any]:
        if is_breakable:
            self._listener = recorder = SegmentRecorder(self, subject, watch)
            try:
                segmented, result = recorder.record(call)
            finally:
                self.num_run = recorder.num_run
            self.num_graphs += segmented.num_graphs
            return segmented, result
        graph = self.device.create_graph()
        watched = contextlib.nullcontext() if watch is None else watch.memory
        capture = self.device.capture(graph, pool=self.pool, stream=self.stream)
        try:
            with capture, watched:
                result = call()
        except BaseException as error:
            # An interrupt may have come just as one of them was entered or left.
            if watch is not None:
                abandon_dispatch_mode(watch.memory)
            capture.__exit__(type(error), error, error.__traceback__)
            raise
        self.num_graphs += 1
        return graph, result

    def _guarded(self, guard: GuardedRun, call: Callable[[], Any], is_breakable: bool) -> None:
        self._listener = guard if is_breakable else None
        try:
            guard.run(call)
        finally:
            self._listener = None

    def _warm_up(self, runs: Sequence[Callable[[], Any]]) -> None:
        """Run the calls, and return the memory that this takes where it is needed again.

        The allocator keeps memory of warm-up runs and uses none of it for a capture.
        """
        before = self.device.memory_figures().reserved
        for call in runs:
            call()
        figures = self.device.memory_figures()
        self._warmup_bytes += max(0, figures.reserved - before)
        if figures.free < self._warmup_bytes:
            self._return_memory()

    def _return_memory(self) -> None:
        """Return all unused memory to the device."""
        self.device.synchronize()
        if self._has_failed:
            # Collection is held off, and an exception is often in a cycle with its frames.
            gc.collect()
        self.device.empty_cache()
        self._has_failed, self._warmup_bytes = False, 0

    def _open(self) -> None:
        """Begin everything that `_close` ends. Each step is noted first, because of interrupts."""
        self._former_stream = self.device.current_stream()
        self._context.capture_session = self
        gc.collect()
        # A host that froze objects itself wants them to stay frozen, and unfreezing knows only all.
        self._collector = gc.isenabled(), gc.get_freeze_count() == 0
        gc.disable()
        if self._collector[1]:
            gc.freeze()
        self.device.synchronize()
        self.device.empty_cache()
        if self._observer is not None:
            self._opened = time.perf_counter()
            self._observer.observe(CaptureSessionOpened(memory=self.device.memory_figures()))
        current = self.device.use_stream(self.stream)
        current.__enter__()
        self._current = current

    def _close(self) -> None:
        """End everything that is open, the context last; called again after an interrupt."""
        try:
            self._leave_stream()
            self._report_closed()
            self._save_snapshot()
        finally:
            if self._collector is not None:
                was_enabled, is_frozen = self._collector
                if is_frozen:
                    gc.unfreeze()
                if was_enabled:
                    gc.enable()
                self._collector = None
            self._context.capture_session = None

    def _leave_stream(self) -> None:
        # Where an interrupt came into entering, there is nothing that could be left.
        current, self._current = self._current, None
        if current is not None:
            current.__exit__(None, None, None)
        if self._former_stream is not None and self.device.current_stream() != self._former_stream:
            self.device.use_stream(self._former_stream).__enter__()

    def _report_closed(self) -> None:
        started, self._opened = self._opened, None
        if self._observer is None or started is None:
            return
        self._observer.observe(
            CaptureSessionClosed(
                num_graphs=self.num_graphs,
                seconds=time.perf_counter() - started,
                memory=self.device.memory_figures(),
            )
        )

    def _save_snapshot(self) -> None:
        if self._memory_snapshot is not None and isinstance(self.device, SnapshotDevice):
            snapshot = self.device.memory_snapshot()
            Path(self._memory_snapshot).write_bytes(pickle.dumps(snapshot))


def _clear_frames(error: BaseException | None) -> None:
    """Clear the local variables of the frames that raised an error and its causes."""
    while error is not None:
        tracebacks.clear_frames(error.__traceback__)
        error = error.__cause__
