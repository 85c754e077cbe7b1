"""A device in pure Python on CPU tensors, for tests of code that captures and replays."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import itertools
import weakref
from typing import TYPE_CHECKING

import torch

from npu_graph_runtime.device import MemoryFigures
from npu_graph_runtime.devices.fake_graph import (
    FakeGraph,
    FakeMemoryPool,
    FakeTaskGroup,
)
from npu_graph_runtime.devices.fake_recorder import FakeRecorder
from npu_graph_runtime.devices.fake_scheduler import FakeScheduler, Work, device_failure
from npu_graph_runtime.devices.fake_stream import (
    FakeEvent,
    FakeExternalEvent,
    FakeStream,
    own_stream,
)
from npu_graph_runtime.guarded_replays import GuardedReplays

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager
    from random import Random

    from npu_graph_runtime.device import DeviceGraph, Event, ExternalEvent, Stream


class FakeDevice(GuardedReplays):
    """Captures the operators that run on CPU tensors, and runs them again at replay.

    Public test support: it reproduces the order of streams and events, the addresses, and the
    errors of a device. During a capture, existing memory is not written. After it, memory allocated
    in it contains NaN (the smallest value for integer dtypes) until the first replay, so that a
    premature read is noticed. A wait that nothing can satisfy raises
    :class:`~npu_graph_runtime.errors.DeadlockError` at the next synchronisation instead of hanging.

    By default work runs as soon as nothing before it waits. With ``is_held``, work runs only in
    :meth:`advance`, in an order chosen by its random generator. You can thus keep the device any
    number of steps after the host, test any interleaving of its streams, and reproduce it from a
    seed.

    Limits: operators outside :meth:`use_stream` and :meth:`capture` are not seen, so they run at
    once even while the default stream waits; a graph replays its branches in the order of capture;
    memory of a pool is never reused by another graph of it; a graph keeps alive what it reads; only
    one stream captures at a time.

    Args:
        name: name for messages.
        memory_bytes: size of the memory for captures.
        streams: number of streams that all captured graphs together may use.
        deadlock_timeout: seconds for which a synchronisation lets other host threads release a
            stream before it reports a deadlock; 0 for tests with one thread.
        is_held: whether work waits for :meth:`advance`, or for a synchronisation.
        has_launch_queue: whether launches go through a host queue first, as with torch_npu's
            ``TASK_QUEUE_ENABLE=1``, except on direct streams. :meth:`advance` moves a random part
            of it to the streams; a replay, a task update, a query or a synchronisation moves all of
            it. Only with ``is_held``.

    Attributes:
        name: as given.
        torch_device: the CPU.
        default_stream: the stream that is current outside :meth:`use_stream`.
        expected_replay: what the calling thread is about to replay; see `GuardingDevice`.
        stream_identity: the thread's current stream; see `WrappingDevice`.
    """

    def __init__(
        self,
        name: str = "fake:0",
        *,
        memory_bytes: int = 2**36,
        streams: int = 2048,
        deadlock_timeout: float = 0.0,
        is_held: bool = False,
        has_launch_queue: bool = False,
    ) -> None:
        if has_launch_queue and not is_held:
            raise ValueError(
                "making a FakeDevice with has_launch_queue: expected is_held too, as only "
                "advance comes to what stands in the queue; give is_held=True"
            )
        super().__init__()
        self.name = name
        self.torch_device = torch.device("cpu")
        self._memory_bytes = memory_bytes
        self._num_streams = streams
        self._graphs: weakref.WeakSet[FakeGraph] = weakref.WeakSet()
        self._scheduler = FakeScheduler(deadlock_timeout, is_held=is_held)
        self._has_launch_queue = has_launch_queue
        self._pools: weakref.WeakSet[FakeMemoryPool] = weakref.WeakSet()
        self.default_stream = self._scheduler.default_stream = self._new_stream()
        self._capture_stream = self._new_stream()
        self._capture_numbers = itertools.count(1)
        self.stream_identity: Callable[[], object] = self.current_stream

    def __repr__(self) -> str:
        return f"<FakeDevice {self.name}>"

    @property
    def num_synchronizations(self) -> int:
        """How often the host has waited for a stream, an event or the device."""
        return self._scheduler.num_synchronizations

    def current_stream(self) -> Stream:
        """Return the thread's current stream."""
        return self._scheduler.current

    def stream_of(self, identity: object) -> Stream:
        """Return the stream of a result of `stream_identity`."""
        return own_stream(identity, self._scheduler)

    def create_stream(self, *, priority: int = 0) -> Stream:
        """Return a new stream; the priority has no effect."""
        del priority
        return self._new_stream()

    def create_direct_stream(self) -> Stream:
        """Return a new stream whose work bypasses the launch queue."""
        return FakeStream(self._scheduler)

    def flush_launches(self) -> None:
        """Move everything in the launch queue to the streams."""
        self._scheduler.flush()

    def advance(self, random: Random, num_items: int | None = None) -> int:
        """Run work of a device with ``is_held``, in random order.

        Args:
            random: chooses which stream runs next, and how much of the launch queue moves on.
            num_items: number of work items; by default all that can ever run.

        Returns:
            Number of items that ran: fewer than requested if nothing more can run, now or ever.
        """
        return self._scheduler.advance(random, num_items)

    @property
    def is_idle(self) -> bool:
        """Whether no stream has work left; asking does not count as waiting."""
        return self._scheduler.is_idle()

    def use_stream(self, stream: Stream) -> AbstractContextManager[object]:
        """Return a context manager in which ``stream`` is current and its operators are seen."""
        return self._use(own_stream(stream, self._scheduler))

    def create_event(self) -> Event:
        """Return a new event."""
        return FakeEvent(self._scheduler)

    def create_external_event(self) -> ExternalEvent:
        """Return a new external event, unrecorded."""
        return FakeExternalEvent(self._scheduler)

    def begin_task_group(self, stream: Stream) -> None:
        """Begin a task group of the graph that ``stream`` is capturing.

        Raises:
            RuntimeError: the stream is not capturing, or a task group is open.
        """
        on = own_stream(stream, self._scheduler)
        if on.capture is None:
            raise device_failure(107029, f"beginning a task group on {on.name}, not capturing")
        if on.group is not None:
            raise device_failure(107033, f"beginning a task group on {on.name}, which has one open")
        on.group = FakeTaskGroup(on.capture)

    def end_task_group(self, stream: Stream) -> object:
        """End the task group and return its handle.

        Raises:
            RuntimeError: no task group is open.
        """
        on = own_stream(stream, self._scheduler)
        if on.group is None:
            raise device_failure(107033, f"ending a task group on {on.name}, which has none open")
        group, on.group = on.group, None
        return group

    def begin_task_update(self, stream: Stream, handle: object) -> None:
        """Begin to relaunch the work of a task group on ``stream``.

        Raises:
            RuntimeError: The handle belongs to no live graph, the stream is capturing, or an update
                is open on it.
        """
        on = own_stream(stream, self._scheduler)
        if not isinstance(handle, FakeTaskGroup) or not handle.graph.is_alive:
            raise device_failure(107017, "updating a task group that is not of a live graph")
        if not on.is_direct:
            self._scheduler.flush()
        if on.capture is not None:
            raise device_failure(107027, f"updating a task group on {on.name}, which captures")
        if on.update is not None:
            raise device_failure(107033, f"updating a task group on {on.name}, which updates one")
        on.update = (handle, [])

    def end_task_update(self, stream: Stream) -> None:
        """End the update; its arguments take effect in the order of ``stream``.

        Raises:
            RuntimeError: No update is open, or other operators were launched than the group has.
                The group is then unchanged.
        """
        on = own_stream(stream, self._scheduler)
        if on.update is None:
            raise device_failure(107033, f"ending a task update on {on.name}, which has none open")
        (group, launches), on.update = on.update, None
        issued = [str(launch.function) for launch in launches]
        expected = [str(launch.function) for launch in group.launches]
        if issued != expected:
            raise device_failure(
                107040, f"updating a task group of {expected} with {issued}, issued on {on.name}"
            )
        what = f"the update of a task group of {', '.join(issued)}"
        on.issue(Work(what, functools.partial(group.become, launches)))

    def is_capturing(self) -> bool:
        """Return whether the current stream is capturing."""
        return self._scheduler.current.capture is not None

    def weak_reference(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return a tensor on the same memory that does not keep it alive."""
        storage = tensor.untyped_storage()
        if storage.nbytes() == 0:
            return tensor.new_empty(0).as_strided(tensor.shape, tensor.stride())
        memory = (ctypes.c_byte * storage.nbytes()).from_address(storage.data_ptr())
        flat = torch.frombuffer(memory, dtype=tensor.dtype)
        return flat.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())

    def create_memory_pool(self) -> object:
        """Return a new pool."""
        pool = FakeMemoryPool()
        self._pools.add(pool)
        return pool

    def create_graph(self) -> DeviceGraph:
        """Return an empty graph."""
        graph = FakeGraph(self._scheduler)
        self._graphs.add(graph)
        return graph

    def capture(
        self, graph: DeviceGraph, *, pool: object, stream: Stream | None = None
    ) -> AbstractContextManager[object]:
        """Return a context manager that captures into ``graph``; see :class:`GraphDevice`.

        Raises:
            TypeError: The graph, pool or stream belongs to another device.
        """
        if not isinstance(graph, FakeGraph) or not isinstance(pool, FakeMemoryPool):
            raise TypeError(
                f"capturing on {self.name}: got a {type(graph).__name__} and a "
                f"{type(pool).__name__}, expected those made by create_graph and create_memory_pool"
            )
        on = self._capture_stream if stream is None else own_stream(stream, self._scheduler)
        return self._guarding(graph, self._capture(graph, pool, on))

    def synchronize(self) -> None:
        """Block the host until all work is done.

        Raises:
            RuntimeError: Something is being captured, or a kernel failed.
            DeadlockError: A stream waits for something that nothing can signal.
        """
        self._scheduler.synchronize(self.name, self._scheduler.is_idle)

    def empty_cache(self) -> None:
        """Do nothing, except raise an error while capturing.

        Raises:
            RuntimeError: Something is being captured.
        """
        self._scheduler.refuse_while_capturing("emptying the cache")

    def memory_figures(self) -> MemoryFigures:
        """Return the bytes that live graphs use, out of ``memory_bytes``."""
        free = self._available()
        used = self._memory_bytes - free
        return MemoryFigures(allocated=used, reserved=used, free=free, total=self._memory_bytes)

    def free_streams(self) -> int:
        """Return the number of streams that captured graphs may still use.

        Each uses one for every stream that it was captured on, whatever its length.
        """
        return self._num_streams - sum(graph.num_streams for graph in self._graphs)

    def _available(self) -> int:
        return self._memory_bytes - sum(pool.allocated for pool in self._pools)

    def _new_stream(self) -> FakeStream:
        return FakeStream(self._scheduler, is_direct=not self._has_launch_queue)

    def _recorder(self) -> FakeRecorder:
        """Return the recorder of this thread: a dispatch mode has state.

        All uses share it: if a use ends inside an opaque operator, torch restores its recorder
        after the operator, and torch 2.10 does not keep it alive until then.
        """
        thread = self._scheduler.thread
        recorder: FakeRecorder | None = getattr(thread, "recorder", None)
        if recorder is None:
            recorder = thread.recorder = FakeRecorder(self._scheduler, self._available)
        return recorder

    @contextlib.contextmanager
    def _use(self, stream: FakeStream) -> Iterator[None]:
        previous, thread = self._scheduler.current, self._scheduler.thread
        thread.stream = stream
        try:
            with self._recorder():
                yield
        finally:
            thread.stream = previous

    @contextlib.contextmanager
    def _capture(
        self, graph: FakeGraph, pool: FakeMemoryPool, stream: FakeStream
    ) -> Iterator[None]:
        if stream is self.default_stream:
            raise device_failure(107031, "capturing the default stream")
        self._scheduler.refuse_while_capturing(f"beginning to capture {stream.name}")
        if self.free_streams() < 1:
            raise device_failure(207008, f"no stream is left to capture {stream.name}")
        graph.begin(stream, pool)
        self._scheduler.capturing = f"{stream.name} (capture {next(self._capture_numbers)})"
        try:
            try:
                with self._use(stream):
                    yield
            except BaseException:
                # The error of the body says why; that of the end only that it failed.
                with contextlib.suppress(RuntimeError):
                    graph.end()
                raise
            finally:
                self._scheduler.capturing = None
            graph.end()
        except BaseException:
            graph.reset()
            raise
