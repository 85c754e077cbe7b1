"""Graphs, memory pools and task groups of the fake device."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from npu_graph_runtime.capturing.tensor_leaves import tensor_leaves
from npu_graph_runtime.devices.fake_scheduler import device_failure
from npu_graph_runtime.torch_internals import no_dispatch

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from npu_graph_runtime.devices.fake_scheduler import FakeScheduler, Work
    from npu_graph_runtime.devices.fake_stream import FakeStream
    from npu_graph_runtime.torch_internals import OpOverload


class Launch:
    """One operator call that can be run again with the same arguments.

    Tensors among the arguments are read at their addresses. Each run overwrites ``outputs``
    with the results; an operator that writes its arguments has none.

    Attributes:
        function: the operator overload.
    """

    __slots__ = ("_args", "_kwargs", "_outputs", "function")

    def __init__(
        self,
        function: OpOverload[..., Any],
        args: Sequence[object],
        kwargs: Mapping[str, object],
        outputs: Sequence[torch.Tensor],
    ) -> None:
        self.function = function
        self._args = args
        self._kwargs = kwargs
        self._outputs = outputs

    def run(self) -> bool:
        """Run the operator and return true."""
        # Outputs made in inference mode may only be written in inference mode.
        with torch.inference_mode():
            results = self.function(*self._args, **self._kwargs)
            if self._outputs:
                for output, (_, result) in zip(
                    self._outputs, tensor_leaves(results, ""), strict=True
                ):
                    output.copy_(result)
        return True

    def become(self, other: Launch) -> None:
        """Copy arguments and outputs from another call of the same operator."""
        self._args = other._args
        self._kwargs = other._kwargs
        self._outputs = other._outputs


class FakeTaskGroup:
    """The launches of a graph between the begin and the end of a task group, in order."""

    def __init__(self, graph: FakeGraph) -> None:
        self.graph = graph
        self.launches: list[Launch] = []

    def become(self, launches: Sequence[Launch]) -> bool:
        """Copy arguments and outputs from other calls of the same operators, and return true."""
        for launch, changed in zip(self.launches, launches, strict=True):
            launch.become(changed)
        return True


class FakeMemoryPool:
    """The memory that captured graphs share; counts the bytes of live ones, and reuses none."""

    def __init__(self) -> None:
        self.allocated = 0


class FakeGraph:
    """A graph of a fake device, for one capture; created by ``FakeDevice.create_graph``.

    Keeps the memory of all tensors made during its capture until it is reset.

    Attributes:
        nbytes: bytes of these tensors.
    """

    def __init__(self, scheduler: FakeScheduler) -> None:
        self.nbytes = 0
        self._scheduler = scheduler
        self._nodes: list[Work] = []
        self._memory: dict[int, torch.Tensor] = {}
        self._pool: FakeMemoryPool | None = None
        self._origin: FakeStream | None = None
        self._last: dict[FakeStream, int] = {}
        self._joined: dict[FakeStream, int] = {}
        self._state = "empty"

    @property
    def is_alive(self) -> bool:
        """Whether the graph is captured and not reset."""
        return self._state == "captured"

    @property
    def num_streams(self) -> int:
        """Streams that the graph uses: those that it was captured on, until it is reset."""
        return len(self._last) if self._state in {"capturing", "captured", "invalidated"} else 0

    def replay(self) -> None:
        """Launch the captured work on the current stream.

        Raises:
            RuntimeError: The graph was never captured or is reset, or the stream is capturing.
        """
        if self._state != "captured":
            raise device_failure(107029, f"replaying a graph that is {self._state}")
        stream = self._scheduler.current
        with self._scheduler.lock:
            if stream.capture is not None:
                raise device_failure(107027, f"replaying a graph on {stream.name}, which captures")
            for node in self._nodes:
                stream.issue(node)
            self._scheduler.flush()

    def reset(self) -> None:
        """Release the captured work and its memory."""
        with self._scheduler.lock:
            if self._pool is not None:
                self._pool.allocated -= self.nbytes
            self._nodes = []
            self._memory = {}
            self.nbytes = 0
            self._pool = None
            self._state = "reset"

    def begin(self, stream: FakeStream, pool: FakeMemoryPool) -> None:
        """Begin to capture the stream.

        Raises:
            RuntimeError: the graph is not empty.
        """
        if self._state != "empty":
            raise device_failure(107026, f"capturing into a graph that is {self._state}")
        self._state = "capturing"
        self._pool = pool
        self._origin = stream
        self._last = {stream: 0}
        stream.capture = self

    def end(self) -> None:
        """End the capture, and overwrite the memory it allocated, because nothing has run yet.

        Raises:
            RuntimeError: An illegal call invalidated the capture, a stream was not joined, or a
                task group is open.
        """
        state, self._state = self._state, "broken"
        streams = list(self._last)
        groups = [stream.name for stream in streams if stream.group is not None]
        for stream in streams:
            stream.capture = None
            stream.group = None
        if state == "invalidated":
            raise device_failure(507903, "ending a capture that an illegal call has invalidated")
        if groups:
            raise device_failure(107033, f"ending a capture with a task group open on {groups[0]}")
        for stream in streams[1:]:
            if self._joined.get(stream, -1) < self._last[stream]:
                raise device_failure(
                    107025, f"ending a capture on {streams[0].name} that {stream.name} left open"
                )
        for tensor in self._memory.values():
            poison(tensor)
        self._state = "captured"

    def invalidate(self) -> None:
        """Let the end of the capture fail."""
        self._state = "invalidated"

    def append(self, stream: FakeStream, node: Work) -> None:
        """Add work of a captured stream."""
        self._nodes.append(node)
        self._last[stream] = len(self._nodes)

    def own(self, tensor: torch.Tensor) -> None:
        """Keep the memory of a tensor that was made during the capture."""
        address = tensor.untyped_storage().data_ptr()
        if address not in self._memory and self._pool is not None:
            self._memory[address] = tensor
            num_bytes = tensor.untyped_storage().nbytes()
            self.nbytes += num_bytes
            self._pool.allocated += num_bytes

    def mark(self, stream: FakeStream) -> int:
        """Return the position in the graph up to which a stream has launched work."""
        return self._last[stream]

    def join(self, stream: FakeStream, recorded_on: FakeStream, mark: int) -> None:
        """Make a stream wait for captured work of another, and capture it from now on.

        Raises:
            RuntimeError: The capture is over, or the stream is in another capture.
        """
        if self._state != "capturing" or stream.capture not in {None, self}:
            raise device_failure(
                107028, f"{stream.name} waits for an event that belongs to another capture"
            )
        if stream.capture is None:
            stream.capture = self
            self._last[stream] = mark
        if stream is self._origin:
            self._joined[recorded_on] = max(mark, self._joined.get(recorded_on, -1))


def poison(tensor: torch.Tensor) -> None:
    """Overwrite a tensor's whole memory with NaN, or the smallest value of an integer dtype."""
    with no_dispatch():  # at once, whatever the current stream waits for
        whole = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
        whole = whole.set_(tensor.untyped_storage())
        if tensor.dtype.is_floating_point or tensor.dtype.is_complex:
            whole.fill_(float("nan"))
        elif tensor.dtype is torch.bool:
            whole.fill_(value=True)
        else:
            whole.fill_(torch.iinfo(tensor.dtype).min)
