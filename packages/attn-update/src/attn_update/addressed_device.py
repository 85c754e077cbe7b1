"""The seam to a device whose calls updaters can make themselves.

What crosses it are addresses of public C functions of CANN and of the objects they take, so neither
side needs the headers or libraries of torch_npu. They are only right for a stream that launches
directly: past a launch queue they would overtake what stands in it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from contextlib import AbstractContextManager

    from attn_update.task_device import ExternalEvent, Stream, TaskDevice


@runtime_checkable
class AddressedDevice(Protocol):
    """A device that tells the addresses of its calls and objects."""

    def use_stream(self, stream: Stream) -> AbstractContextManager[object]:
        """Launch on `stream` inside the context."""

    def native_calls(self) -> Mapping[str, int]:
        """Return the addresses of the functions that update task groups and order streams.

        Returns:
            From the names of C functions (acl/acl_rt.h of CANN 8) to addresses:
            ``aclmdlRICaptureTaskUpdateBegin``, ``aclmdlRICaptureTaskUpdateEnd``,
            ``aclrtCreateEventExWithFlag``, ``aclrtRecordEvent``, ``aclrtStreamWaitEvent`` and
            ``aclrtDestroyEvent``; and ``aclrtValueWrite`` where external events are words of
            memory, which are set by it, else they are events and are recorded. Empty if the
            device's libraries lack one.
        """

    def kernel_calls(self, names: Sequence[str]) -> Mapping[str, int]:
        """Return the addresses of functions of CANN's operator library, and one of torch_npu.

        Args:
            names: Of C functions, such as ``aclnnFusedInferAttentionScoreV3`` or
                ``aclCreateIntArray``.

        Returns:
            From names to addresses, of the very functions that torch_npu would call; those that
            it would not find are left out. Further ``describe_tensor``, a C++ function of
            ``const at::Tensor&`` that returns a new ``aclTensor`` of it. Empty where this device
            is not known to run the operators by these kernels; they are then called by torch.
        """

    def stream_address(self, stream: Stream) -> int:
        """Return the address of a stream, valid as long as the stream.

        What this thread queued before for the stream has been handed to the device by then, unless
        the stream launches directly.
        """

    def task_group_address(self, handle: object) -> int:
        """Return the address of a task group, valid as long as its graph."""

    def external_event_address(self, event: ExternalEvent) -> int:
        """Return the address that sets the external event, valid as long as the event."""


def find_native_calls(device: TaskDevice) -> tuple[AddressedDevice, Mapping[str, int]] | None:
    """Return the device and its calls if it can be driven natively, else None."""
    if not isinstance(device, AddressedDevice):
        return None
    calls = device.native_calls()
    return (device, calls) if calls else None
