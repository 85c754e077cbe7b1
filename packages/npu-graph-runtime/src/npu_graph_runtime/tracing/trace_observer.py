"""Writes an observer's events to a trace: captures, replays with their segments, memory."""

from __future__ import annotations

import collections
import time
from typing import TYPE_CHECKING

from npu_graph_runtime.device import SnapshotDevice
from npu_graph_runtime.observer import (
    CaptureSessionClosed,
    CaptureSessionOpened,
    GraphCaptured,
    GraphMissed,
    GraphReleased,
    GraphReplayed,
    RuntimeEvent,
    SegmentReplayed,
)
from npu_graph_runtime.planning.run_mode_chooser import RunModeChoice

if TYPE_CHECKING:
    from npu_graph_runtime.device import GraphDevice, MemoryFigures, Stream
    from npu_graph_runtime.tracing.trace import Trace

_CAPTURES = "captures"
_MEMORY = "device memory (MiB)"
_MEBIBYTE = 2**20


class TraceObserver:
    """Writes captures, replays, misses and releases to a trace; implements `RuntimeObserver`.

    A replay is drawn on the track of the stream it was queued on, for the host time of queuing it.
    A replay in segments contains its segments and the functions between them. Only the device knows
    what it did and when: see :meth:`Trace.join`. A capture session shows the device's memory as a
    curve, and at its end a snapshot of the allocator, by memory pool.

    Args:
        trace: the trace to write to.
        device: device of the observed callables and sessions.
    """

    def __init__(self, trace: Trace, device: GraphDevice) -> None:
        self._trace = trace
        self._device = device
        self._tracks: dict[Stream, str] = {}
        self._opened: float | None = None

    def observe(self, event: RuntimeEvent, /) -> None:
        """Add an event to the trace; called after the event."""
        now = time.perf_counter()
        if isinstance(event, (GraphReplayed, SegmentReplayed)):
            self._add_replay(event)
        elif isinstance(event, GraphCaptured):
            begin = now - event.seconds - event.warmup_seconds
            captured_from = now - event.seconds
            what = f"{event.name} under {event.key}"
            self._trace.add_span(_CAPTURES, f"capture {what}", begin=begin, end=now)
            self._trace.add_span(_CAPTURES, "warm-up", begin=begin, end=captured_from)
            self._add_memory(self._device.memory_figures(), now)
        elif isinstance(event, CaptureSessionOpened):
            self._opened = now
            self._add_memory(event.memory, now)
        elif isinstance(event, CaptureSessionClosed):
            self._add_memory(event.memory, now)
            self._trace.add_span(
                "capture sessions",
                f"{event.num_graphs} graphs",
                begin=now - event.seconds,
                end=now,
                pools=self._snapshot(),
            )
        elif isinstance(event, RunModeChoice):
            self._trace.add_moment(_CAPTURES, f"chose {event}", at=now)
        else:
            self._add_moment(event, now)

    def _add_replay(self, event: GraphReplayed | SegmentReplayed) -> None:
        stream = self._device.current_stream()
        if stream not in self._tracks:
            self._tracks[stream] = f"replays queued on stream {len(self._tracks) + 1}"
        name, details = f"replay {event.name}", {"key": str(event.key)}
        if isinstance(event, SegmentReplayed):
            name = event.segment
            details["runs"] = "eagerly" if event.runs_eagerly else "captured"
        end = event.began + event.seconds
        self._trace.add_span(self._tracks[stream], name, begin=event.began, end=end, **details)

    def _add_moment(self, event: GraphMissed | GraphReleased, now: float) -> None:
        what = "missed" if isinstance(event, GraphMissed) else "released"
        name = f"{event.name} {what} under {event.key}"
        self._trace.add_moment(_CAPTURES, name, at=now)

    def _add_memory(self, memory: MemoryFigures, now: float) -> None:
        values = {
            "allocated": memory.allocated / _MEBIBYTE,
            "reserved": memory.reserved / _MEBIBYTE,
            "in use outside": (memory.total - memory.free - memory.reserved) / _MEBIBYTE,
        }
        self._trace.add_counter(_MEMORY, values, at=now)

    def _snapshot(self) -> dict[str, dict[str, int]]:
        """Return bytes by memory pool; nothing if the device does not report them."""
        device = self._device
        segments = (
            device.memory_snapshot()["segments"] if isinstance(device, SnapshotDevice) else ()
        )
        pools: dict[str, dict[str, int]] = collections.defaultdict(
            lambda: {"segments": 0, "reserved": 0, "allocated": 0}
        )
        for segment in segments:
            pool = pools[str(segment["segment_pool_id"])]
            pool["segments"] += 1
            pool["reserved"] += segment["total_size"]
            pool["allocated"] += segment["allocated_size"]
        return dict(pools)
