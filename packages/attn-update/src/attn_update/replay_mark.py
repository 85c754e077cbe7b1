"""Marks behind replays, which other streams can wait for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from attn_update.addressed_device import AddressedDevice
    from attn_update.task_device import Stream
    from attn_update.updater import ReplayEvent


class ReplayMark(Protocol):
    """The point on a stream behind a replay; every `attn_update.task_device.Event` is one."""

    def wait(self, stream: Stream, /) -> None:
        """Let all later work of the stream wait for it, on the device."""


class AddressedReplayMark:
    """A mark past the launch queue: it was recorded, and is waited for, at once.

    Args:
        event: Owned by the mark.
        device: Tells the addresses of streams.

    Attributes:
        event: As given.
    """

    __slots__ = ("_device", "event")

    def __init__(self, event: ReplayEvent, device: AddressedDevice) -> None:
        self.event = event
        self._device = device

    def wait(self, stream: Stream, /) -> None:
        """Let all later work of the stream wait for it, on the device.

        Raises:
            RuntimeError: The device refused.
        """
        self.event.wait(self._device.stream_address(stream))
