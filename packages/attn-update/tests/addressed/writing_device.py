"""A device whose C functions record their arguments, for launches by address."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

STREAM = 77
"""The address of its stream."""


class WritingDevice:
    """A `attn_update.AddressedDevice` with one stream, without kernels.

    Handles and events are numbers, which also serve as their addresses.

    Attributes:
        seen: The calls in order, each with the object it was for.
        failing: The call, as in `seen`, that returns 107000; None for none.
    """

    def __init__(self) -> None:
        self.seen: list[tuple[str, int]] = []
        self.failing: tuple[str, int] | None = None
        pointer, integer = ctypes.c_void_p, ctypes.c_int
        self._kept = {
            "aclmdlRICaptureTaskUpdateBegin": ctypes.CFUNCTYPE(integer, pointer, pointer)(
                lambda stream, group: self._note("begin", group, stream)
            ),
            "aclmdlRICaptureTaskUpdateEnd": ctypes.CFUNCTYPE(integer, pointer)(
                lambda stream: self._note("end", 0, stream)
            ),
            "aclrtRecordEvent": ctypes.CFUNCTYPE(integer, pointer, pointer)(
                lambda event, stream: self._note("record", event, stream)
            ),
            "aclrtCreateEventExWithFlag": ctypes.CFUNCTYPE(
                integer, ctypes.POINTER(pointer), ctypes.c_uint32
            )(self._create),
            "aclrtStreamWaitEvent": ctypes.CFUNCTYPE(integer, pointer, pointer)(
                lambda stream, event: self._note("wait", event, stream)
            ),
            "aclrtDestroyEvent": ctypes.CFUNCTYPE(integer, pointer)(
                lambda event: self._note("destroy", event, STREAM)
            ),
        }

    def _create(self, event: Any, flag: int) -> int:
        event[0] = 99
        return self._note("create", flag, STREAM)

    def _note(self, call: str, value: int, stream: int) -> int:
        assert stream == STREAM
        self.seen.append((call, value))
        return 107000 if (call, value) == self.failing else 0

    def native_calls(self) -> dict[str, int]:
        """Return the addresses of the functions."""
        return {
            name: ctypes.cast(call, ctypes.c_void_p).value or 0 for name, call in self._kept.items()
        }

    def kernel_calls(self, names: object) -> dict[str, int]:
        """Return nothing."""
        del names
        return {}

    def use_stream(self, stream: object) -> AbstractContextManager[object]:
        """Refuse: nothing is launched here but by address."""
        raise NotImplementedError

    def stream_address(self, stream: object) -> int:
        """Return that of the only stream."""
        del stream
        return STREAM

    def task_group_address(self, handle: object) -> int:
        """Return the handle."""
        return cast("int", handle)

    def external_event_address(self, event: object) -> int:
        """Return the event."""
        return cast("int", event)
