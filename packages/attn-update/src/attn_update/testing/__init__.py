"""Test support: a device model that runs queued work in an order that the test chooses."""

from attn_update.testing.scheduled_device import DeadlockError, ScheduledDevice
from attn_update.testing.scheduled_operators import ScheduledOperators
from attn_update.testing.scheduled_stream import (
    ScheduledEvent,
    ScheduledExternalEvent,
    ScheduledGraph,
    ScheduledStream,
)

__all__ = [
    "DeadlockError",
    "ScheduledDevice",
    "ScheduledEvent",
    "ScheduledExternalEvent",
    "ScheduledGraph",
    "ScheduledOperators",
    "ScheduledStream",
]
