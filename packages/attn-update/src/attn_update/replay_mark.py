"""Marks behind replays, which other streams can wait for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from attn_update.native_device import NativeUpdateDevice
    from attn_update.native_updater import ReplayEvent
    from attn_update.task_device import Stream


class ReplayMark(Protocol):
    """The point on a stream behind a replay; every `attn_update.task_device.Event` is one."""

    def wait(self, stream: Stream, /) -> None:
        """Let all later work of the stream wait for it, on the device."""


class NativeReplayMark:
    """A mark past the launch queue: it was recorded, and is waited for, at once.

    Args:
        event: Owned by the mark.
        device: Tells the addresses of streams.
    """

    __slots__ = ("_device", "_event")

    def __init__(self, event: ReplayEvent, device: NativeUpdateDevice) -> None:
        self._event = event
        self._device = device

    def wait(self, stream: Stream, /) -> None:
        """Let all later work of the stream wait for it, on the device.

        Raises:
            RuntimeError: The device refused.
        """
        self._event.wait(self._device.stream_address(stream))
