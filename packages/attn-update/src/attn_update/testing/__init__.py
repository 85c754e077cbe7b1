"""Test support: a device model that runs queued work in an order that the test chooses."""

from attn_update.testing.captured_model import (
    CaptureDevice,
    CapturedModel,
    ReplayableGraph,
    assert_layers_equal,
)
from attn_update.testing.paged_model import PagedModel, draw_lengths
from attn_update.testing.scheduled_device import DeadlockError, ScheduledDevice
from attn_update.testing.scheduled_operators import ScheduledOperators
from attn_update.testing.scheduled_stream import (
    ScheduledEvent,
    ScheduledExternalEvent,
    ScheduledGraph,
    ScheduledStream,
)
from attn_update.testing.writing_device import WritingDevice

__all__ = [
    "CaptureDevice",
    "CapturedModel",
    "DeadlockError",
    "PagedModel",
    "ReplayableGraph",
    "ScheduledDevice",
    "ScheduledEvent",
    "ScheduledExternalEvent",
    "ScheduledGraph",
    "ScheduledOperators",
    "ScheduledStream",
    "WritingDevice",
    "assert_layers_equal",
    "draw_lengths",
]
