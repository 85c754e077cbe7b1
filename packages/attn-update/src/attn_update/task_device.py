"""The device interface: what this package requires of a device, and optional features.

All are protocols. The objects of `torch.npu` implement `Stream`, `Event` and `ExternalEvent` as
they are; `npu_graph_runtime`'s devices implement `TaskDevice`. This package imports neither.

Every device must implement `TaskDevice`. If it also implements `AddressedDevice`,
`DirectLaunchDevice` or `FusedUpdateDevice`, the lane detects this and updates are faster. If a
thread must be bound to the device before it launches, the device has a method `bind_thread`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from contextlib import AbstractContextManager

    from torch import Tensor

__all__ = [
    "AddressedDevice",
    "DirectLaunchDevice",
    "Event",
    "ExternalEvent",
    "FusedUpdateDevice",
    "GuardingDevice",
    "Stream",
    "TaskDevice",
]


class Stream(Protocol):
    """A queue of device work that runs in order."""

    def wait_event(self, event: Event, /) -> None:
        """Make all later work of this stream wait for the event, on the device."""

    def wait_stream(self, stream: Stream, /) -> None:
        """Make all later work of this stream wait for the present work of `stream`."""

    def record_event(self, event: Event | None = None, /) -> Event:
        """Record the event, or a new one, after the present work of this stream."""

    def synchronize(self) -> None:
        """Block the host until the stream is empty."""

    def query(self) -> bool:
        """Return whether the stream is empty."""


class Event(Protocol):
    """A point in a stream that other streams can wait for."""

    def record(self, stream: Stream | None = None, /) -> None:
        """Record the event after all work of the stream (default: the current one)."""

    def wait(self, stream: Stream | None = None, /) -> None:
        """Make all later work of the stream (default: the current one) wait for the event."""

    def query(self) -> bool:
        """Return whether the recorded work is done."""

    def synchronize(self) -> None:
        """Block the host until the recorded work is done."""


class ExternalEvent(Protocol):
    """An event that a captured graph waits for and that is set from outside the graph.

    It is a device word: `wait` blocks the stream until the word is one and sets it to zero,
    `record` sets it to one. One record serves one wait.
    """

    def wait(self, stream: Stream, /) -> None:
        """Make all later work of the stream wait until the event is recorded."""

    def reset(self, stream: Stream, /) -> None:
        """Unset the event, in the order of the stream, if `wait` does not do so itself."""

    def record(self, stream: Stream, /) -> None:
        """Set the event after all work of the stream."""


class TaskDevice(Protocol):
    """The part of a device that records and updates captured launches."""

    def current_stream(self) -> Stream:
        """Return the stream on which this thread launches operators."""

    def create_stream(self, *, priority: int = 0) -> Stream:
        """Return a new stream; a lower number is a higher priority."""

    def use_stream(self, stream: Stream) -> AbstractContextManager[object]:
        """Launch on `stream` inside the context."""

    def create_event(self) -> Event:
        """Return a new event."""

    def create_external_event(self) -> ExternalEvent:
        """Return a new external event, unset."""

    def begin_task_group(self, stream: Stream) -> None:
        """Begin to collect the launches captured on `stream` into a task group."""

    def end_task_group(self, stream: Stream) -> object:
        """End the task group and return its handle, which only this device understands."""

    def begin_task_update(self, stream: Stream, handle: object) -> None:
        """Begin to update a task group: launches on `stream` replace the captured arguments."""

    def end_task_update(self, stream: Stream) -> None:
        """End the update, which takes effect in the order of `stream`."""

    def is_capturing(self) -> bool:
        """Return whether the current stream is being captured."""

    def weak_reference(self, tensor: Tensor) -> Tensor:
        """Return a tensor of the same memory that does not keep the memory alive."""


@runtime_checkable
class AddressedDevice(Protocol):
    """A device that provides addresses of its functions and objects, for updaters to call.

    These are addresses of public C functions of CANN and of the objects they accept, so neither
    side needs the headers or libraries of torch_npu. Use them only for a stream that launches
    directly: with a launch queue, they would overtake the queued work.
    """

    def use_stream(self, stream: Stream) -> AbstractContextManager[object]:
        """Launch on `stream` inside the context."""

    def native_calls(self) -> Mapping[str, int]:
        """Return the addresses of the functions that update task groups and order streams.

        Returns:
            Maps names of C functions (acl/acl_rt.h of CANN 8) to addresses:
            ``aclmdlRICaptureTaskUpdateBegin``, ``aclmdlRICaptureTaskUpdateEnd``,
            ``aclrtCreateEventExWithFlag``, ``aclrtRecordEvent``, ``aclrtStreamWaitEvent`` and
            ``aclrtDestroyEvent``; and ``aclrtValueWrite`` if external events are words of
            memory, which it sets; otherwise they are events and are recorded. Empty if the
            device's libraries lack one.
        """

    def kernel_calls(self, names: Sequence[str]) -> Mapping[str, int]:
        """Return the addresses of functions of CANN's operator library, and one of torch_npu.

        Args:
            names: Names of C functions, such as ``aclnnFusedInferAttentionScoreV3`` or
                ``aclCreateIntArray``.

        Returns:
            Maps names to addresses of the same functions that torch_npu would call, without those
            that it would not find. Also ``describe_tensor``, a C++ function of ``const
            at::Tensor&`` that returns a new ``aclTensor`` of it. Empty if this device is not known
            to run the operators by these kernels; torch then calls them.
        """

    def stream_address(self, stream: Stream) -> int:
        """Return the address of a stream, valid as long as the stream.

        Everything this thread queued before for the stream has then reached the device, unless
        the stream launches directly.
        """

    def task_group_address(self, handle: object) -> int:
        """Return the address of a task group, valid as long as its graph."""

    def external_event_address(self, event: ExternalEvent) -> int:
        """Return the address that sets the external event, valid as long as the event."""


@runtime_checkable
class DirectLaunchDevice(Protocol):
    """A device with streams without a launch queue.

    torch_npu passes launches to the device on a second thread (``TASK_QUEUE_ENABLE=1``, its
    default). Beginning and ending a task update must then wait for that thread to catch up, twice
    per layer, which costs more than the update; and a launch that the operator rejects fails
    later, when the layer is unknown. A stream without the queue has neither problem, but it must
    not wait for an event whose recording is still in the queue. The queue is therefore flushed once
    per step, which the replay would have to do anyway.
    """

    def create_direct_stream(self) -> Stream:
        """Return a stream whose launches reach the device before the call returns."""

    def flush_launches(self) -> None:
        """Wait until everything this thread queued has been passed to the device, not run by it."""


@runtime_checkable
class FusedUpdateDevice(Protocol):
    """A device that may begin, launch, end and record an update in one call.

    torch_npu has such a call for some operators; it saves three passes through Python per layer.
    Only the device may use it, because it is private to torch_npu.
    """

    def fused_update(self, operator: str) -> Callable[..., object] | None:
        """Return the fused call for an operator, or None.

        Args:
            operator: The qualified name, such as ``npu::npu_fused_infer_attention_score.out``.

        Returns:
            A function of (stream, handle, external event, **arguments of the operator) that
            updates the task group on the stream, which is also the current one, and then records
            the event on it.
        """


class ExpectedStep(Protocol):
    """The step that each thread is about to replay.

    Attributes:
        step: The step set by a lane; None if nothing is expected.
    """

    step: object


@runtime_checkable
class GuardingDevice(Protocol):
    """A device whose graphs call back before they are replayed.

    A step whose replay belongs to another graph is then rejected before anything is launched,
    whatever function replays it. Without this, such a replay waits forever for events that nobody
    sets.
    """

    @property
    def expected_replay(self) -> ExpectedStep:
        """What the calling thread is about to replay."""

    def guard_replays(self, refusal: Callable[[object], str | None]) -> bool:
        """Call back before each replay of the graph that this thread is capturing.

        Args:
            refusal: Returns why the replay is rejected, or None. Its argument is the ``step`` of
                `expected_replay`. It does not keep the graph alive.

        Returns:
            Whether there is such a graph; False if somebody else captures.
        """


def bind_thread(device: TaskDevice) -> None:
    """Bind the calling thread to the device before it launches there, if the device needs it.

    Devices that are current per thread and not per process have a method ``bind_thread``, such as
    `npu_graph_runtime.NpuDevice`.
    """
    bind: Callable[[], None] | None = getattr(device, "bind_thread", None)
    if bind is not None:
        bind()
