"""The contract of the device seam, as tests that every implementation has to pass."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar, cast

import pytest
import torch
from torch.multiprocessing.reductions import StorageWeakRef

from npu_graph_runtime.errors import FeatureNotSupportedError

if TYPE_CHECKING:
    from npu_graph_runtime import GraphDevice
    from npu_graph_runtime.device import DeviceGraph, Stream

_Test = TypeVar("_Test", bound=Callable[..., None])


def _of_optional_feature(test: _Test) -> _Test:
    """Skip a test if the device says that it does not support the tested feature."""

    @functools.wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        try:
            test(*args, **kwargs)
        except FeatureNotSupportedError as error:
            pytest.skip(str(error))

    return cast("_Test", run)


class DeviceContract:
    """Tests that every implementation of `GraphDevice` must pass; run with pytest.

    Subclass it as ``Test<Device>`` with a fixture ``device`` that returns the implementation.
    Override :meth:`issue_updatable` if the device can only update certain operators. Tests of task
    groups and external events are skipped if the device raises
    :class:`~npu_graph_runtime.errors.FeatureNotSupportedError` for them.
    """

    @staticmethod
    def issue_updatable(source: torch.Tensor, factor: float, out: torch.Tensor) -> None:
        """Write ``factor * source`` to ``out`` by one launch that a task update can change.

        Args:
            source: float32 vector on the device.
            factor: host argument that the update changes.
            out: like ``source``.
        """
        torch.mul(source, factor, out=out)

    def test_use_stream_body_runs_on_that_stream_in_order(self, device: GraphDevice) -> None:
        """Work on one stream runs in the order in which it was launched."""
        values = torch.ones(4, device=device.torch_device)
        stream = _ready_stream(device)
        with device.use_stream(stream):
            _expect("device.current_stream()", device.current_stream(), stream)
            values.add_(1)
            values.mul_(3)
        _expect("device.current_stream() == stream", device.current_stream() == stream, False)
        stream.synchronize()
        _expect("values.tolist()", values.tolist(), [6.0] * 4)

    def test_use_stream_left_by_exception_restores_stream(self, device: GraphDevice) -> None:
        """The former stream is current again however the body ends."""
        before = device.current_stream()
        with contextlib.suppress(KeyError), device.use_stream(device.create_stream()):
            raise KeyError("left")
        _expect("device.current_stream()", device.current_stream(), before)

    @_of_optional_feature
    def test_event_waited_for_on_other_stream_orders_work(self, device: GraphDevice) -> None:
        """A stream that waits for an event sees the work launched before its record."""
        source = torch.zeros(4, device=device.torch_device)
        copy = torch.zeros(4, device=device.torch_device)
        producer, consumer = _ready_stream(device), device.create_stream()
        gate, done = device.create_external_event(), device.create_event()
        with device.use_stream(producer):
            gate.wait(producer)
            gate.reset(producer)
            source.add_(1)
            done.record(producer)
        with device.use_stream(consumer):
            done.wait(consumer)
            copy.copy_(source)
        gate.record(device.create_stream())
        _expect_values(device, "copy", copy, 1.0)

    @_of_optional_feature
    def test_wait_stream_orders_work(self, device: GraphDevice) -> None:
        """``wait_stream`` waits for the work on the other stream at the time of the call."""
        values = torch.zeros(4, device=device.torch_device)
        first, second = _ready_stream(device), device.create_stream()
        gate = device.create_external_event()
        with device.use_stream(first):
            gate.wait(first)
            gate.reset(first)
            values.add_(1)
        second.wait_stream(first)
        with device.use_stream(second):
            values.mul_(5)
        gate.record(device.create_stream())
        _expect_values(device, "values", values, 5.0)

    def test_event_recorded_and_reached_reports_so(self, device: GraphDevice) -> None:
        """Synchronising with an event makes its query and that of its stream true."""
        stream = device.create_stream()
        event = stream.record_event()
        event.synchronize()
        _expect("event.query()", event.query(), True)
        stream.synchronize()
        _expect("stream.query()", stream.query(), True)

    def test_capture_runs_nothing(self, device: GraphDevice) -> None:
        """A capture does not change memory that existed before."""
        buffer = torch.ones(4, device=device.torch_device)
        graph = _captured(device, lambda: buffer.add_(1))
        _expect_values(device, "buffer", buffer, 1.0)
        graph.replay()
        _expect_values(device, "buffer", buffer, 2.0)

    def test_replay_reads_new_inputs_at_same_addresses(self, device: GraphDevice) -> None:
        """A replay computes with the present values of its input buffers."""
        source = torch.zeros(4, device=device.torch_device)
        out = torch.zeros(4, device=device.torch_device)
        graph = _captured(device, lambda: out.copy_(source * 2 + 1))
        for value in (1.0, 5.0, -3.0):
            source.fill_(value)
            graph.replay()
            _expect_values(device, "out", out, value * 2 + 1)

    def test_replays_of_one_stream_run_in_order(self, device: GraphDevice) -> None:
        """Replays are stream work like any other, without a synchronisation between them."""
        values = torch.zeros(4, device=device.torch_device)
        add = _captured(device, lambda: values.add_(1))
        double = _captured(device, lambda: values.mul_(2))
        stream = _ready_stream(device)
        with device.use_stream(stream):
            for graph in (add, double, add, double):
                graph.replay()
        stream.synchronize()
        _expect("values.tolist()", values.tolist(), [6.0] * 4)

    def test_capture_with_forked_stream_replays_both_branches(self, device: GraphDevice) -> None:
        """Streams joined by events are captured into one graph."""
        source = torch.ones(4, device=device.torch_device)
        left, right = torch.zeros_like(source), torch.zeros_like(source)
        total = torch.zeros_like(source)
        side = device.create_stream()

        def body() -> None:
            side.wait_stream(device.current_stream())
            with device.use_stream(side):
                right.copy_(source * 3)
            left.copy_(source * 2)
            device.current_stream().wait_stream(side)
            total.copy_(left + right)

        graph = _captured(device, body)
        source.fill_(2)
        graph.replay()
        _expect_values(device, "total", total, 10.0)

    def test_graphs_sharing_a_pool_hand_on_tensors(self, device: GraphDevice) -> None:
        """An output of one graph may be the input of the next one of the same pool."""
        pool, stream = device.create_memory_pool(), _ready_stream(device)
        source = torch.ones(4, device=device.torch_device)
        first, second = device.create_graph(), device.create_graph()
        with device.capture(first, pool=pool, stream=stream):
            middle = source + 1
        with device.capture(second, pool=pool, stream=stream):
            out = middle * 10
        for value in (1.0, 4.0):
            source.fill_(value)
            first.replay()
            second.replay()
            _expect_values(device, "out", out, (value + 1) * 10)

    def test_weak_reference_shares_memory_and_layout(self, device: GraphDevice) -> None:
        """A weak reference is the same tensor in all but ownership."""
        tensor = torch.arange(12.0, device=device.torch_device).view(3, 4).t()[1:]
        weak = device.weak_reference(tensor)
        _expect("weak.data_ptr()", weak.data_ptr(), tensor.data_ptr())
        _expect("weak.dtype", weak.dtype, tensor.dtype)
        _expect(
            "weak.shape, weak.stride", (weak.shape, weak.stride()), (tensor.shape, tensor.stride())
        )
        tensor.add_(1)
        device.synchronize()
        _expect("weak.tolist()", weak.tolist(), tensor.tolist())

    def test_weak_reference_alone_does_not_keep_memory(self, device: GraphDevice) -> None:
        """The memory goes with the last strong reference."""
        tensor = torch.zeros(4, device=device.torch_device)
        weak = device.weak_reference(tensor)
        storage = StorageWeakRef(tensor.untyped_storage())  # type: ignore[no-untyped-call]
        _expect("whether the memory is gone", storage.expired(), False)  # type: ignore[no-untyped-call]
        del tensor
        _expect("whether the memory is gone", storage.expired(), True)  # type: ignore[no-untyped-call]
        del weak

    @_of_optional_feature
    def test_external_event_recorded_after_replay_releases_graph(self, device: GraphDevice) -> None:
        """Replay first: the graph waits where it was captured to, until the record."""
        source, out = (
            torch.ones(4, device=device.torch_device),
            torch.zeros(4, device=device.torch_device),
        )
        event, lane = device.create_external_event(), _ready_stream(device)

        def body() -> None:
            event.wait(device.current_stream())
            event.reset(device.current_stream())
            out.copy_(source)

        graph = _captured(device, body)
        for value in (3.0, 4.0, 5.0):
            graph.replay()
            # The graph waits, so what the lane writes before its record is what the graph reads.
            with device.use_stream(lane):
                source.fill_(value)
                event.record(lane)
            _expect_values(device, "out", out, value)

    @_of_optional_feature
    def test_task_update_changes_later_replays_only(self, device: GraphDevice) -> None:
        """A task update takes effect in stream order; replays before it keep the old arguments."""
        source = torch.ones(4, device=device.torch_device)
        out, sums = torch.zeros_like(source), torch.zeros_like(source)
        handles: list[object] = []

        def body() -> None:
            stream = device.current_stream()
            device.begin_task_group(stream)
            self.issue_updatable(source, 2.0, out)
            handles.append(device.end_task_group(stream))
            sums.add_(out)

        graph = _captured(device, body)
        stream = _ready_stream(device)
        with device.use_stream(stream):
            graph.replay()
        stream.synchronize()
        with device.use_stream(stream):
            self._update(device, stream, handles[0], source, 5.0, out)
            graph.replay()
            graph.replay()
        stream.synchronize()
        _expect("out.tolist()", out.tolist(), [5.0] * 4)
        _expect("sums.tolist()", sums.tolist(), [12.0] * 4)

    @_of_optional_feature
    def test_replay_first_update_after_uses_new_arguments(self, device: GraphDevice) -> None:
        """The decode protocol: a device event orders the lane after the previous replay."""
        source = torch.ones(4, device=device.torch_device)
        out, sums = torch.zeros_like(source), torch.zeros_like(source)
        event, lane, main = device.create_external_event(), _ready_stream(device), None
        handles: list[object] = []

        def body() -> None:
            stream = device.current_stream()
            event.wait(stream)
            event.reset(stream)
            device.begin_task_group(stream)
            self.issue_updatable(source, 0.0, out)
            handles.append(device.end_task_group(stream))
            sums.add_(out)

        graph = _captured(device, body)
        main = _ready_stream(device)
        for factor in (1.0, 10.0, 100.0):
            lane.wait_stream(main)
            with device.use_stream(main):
                graph.replay()
            with device.use_stream(lane):
                self._update(device, lane, handles[0], source, factor, out)
                event.record(lane)
        _expect_values(device, "out", out, 100.0)
        _expect("sums.tolist()", sums.tolist(), [111.0] * 4)

    def test_is_capturing_inside_capture_only(self, device: GraphDevice) -> None:
        """``is_capturing`` follows the current stream."""
        seen: list[bool] = []
        buffer = torch.zeros(4, device=device.torch_device)

        def body() -> None:
            seen.append(device.is_capturing())
            buffer.add_(1)

        _expect("device.is_capturing()", device.is_capturing(), False)
        _captured(device, body)
        _expect("is_capturing() in the capture", seen, [True])
        _expect("device.is_capturing()", device.is_capturing(), False)

    def test_capture_without_stream_takes_one_of_its_own(self, device: GraphDevice) -> None:
        """The default stream stays the caller's."""
        before = device.current_stream()
        buffer = torch.zeros(4, device=device.torch_device)
        graph = device.create_graph()
        device.synchronize()
        with device.capture(graph, pool=device.create_memory_pool()):
            _expect("device.current_stream() == before", device.current_stream() == before, False)
            buffer.add_(1)
        _expect("device.current_stream()", device.current_stream(), before)
        graph.replay()
        _expect_values(device, "buffer", buffer, 1.0)

    def test_capture_left_by_exception_propagates_it_and_restores(
        self, device: GraphDevice
    ) -> None:
        """The body's own exception comes out, and the device is as before."""
        before = device.current_stream()
        graph = device.create_graph()
        buffer = torch.zeros(4, device=device.torch_device)
        stream = _ready_stream(device)
        left = KeyError("left")
        raised: list[KeyError] = []
        try:
            with device.capture(graph, pool=device.create_memory_pool(), stream=stream):
                buffer.add_(1)
                _raise(left)
        except KeyError as error:
            raised.append(error)
        _expect("what came out of the block", raised, [left])
        _expect("device.current_stream()", device.current_stream(), before)
        _expect("device.is_capturing()", device.is_capturing(), False)
        _refused(graph.replay)
        _assert_usable(device)

    def test_pool_whose_last_graph_was_reset_is_captured_into_again(
        self, device: GraphDevice
    ) -> None:
        """A pool handle outlives its graphs, however often they all die."""
        pool, stream = device.create_memory_pool(), _ready_stream(device)
        source = torch.ones(4, device=device.torch_device)
        for factor in (2.0, 3.0, 4.0):
            graph, outputs = device.create_graph(), []
            device.synchronize()
            with device.capture(graph, pool=pool, stream=stream):
                outputs.append(source * factor)
            graph.replay()
            _expect_values(device, "outputs[0]", outputs[0], factor)
            outputs.clear()
            graph.reset()

    def test_pool_whose_first_capture_failed_is_captured_into_again(
        self, device: GraphDevice
    ) -> None:
        """A capture that failed leaves the pool usable."""
        pool, stream = device.create_memory_pool(), _ready_stream(device)
        source = torch.ones(4, device=device.torch_device)
        with (
            contextlib.suppress(KeyError),
            device.capture(device.create_graph(), pool=pool, stream=stream),
        ):
            _ = source * 2.0
            raise KeyError("left")
        graph, outputs = device.create_graph(), []
        with device.capture(graph, pool=pool, stream=stream):
            outputs.append(source * 3.0)
        graph.replay()
        _expect_values(device, "outputs[0]", outputs[0], 3.0)

    def test_capture_inside_capture_refused(self, device: GraphDevice) -> None:
        """Captures do not nest on a stream."""
        pool = device.create_memory_pool()

        def nested() -> None:
            stream = device.current_stream()
            with device.capture(device.create_graph(), pool=pool, stream=stream):
                torch.zeros(4, device=device.torch_device).add_(1)

        _refused_while_capturing(device, nested)

    def test_synchronize_while_capturing_refused(self, device: GraphDevice) -> None:
        """The host cannot wait for work that does not run."""
        _refused_while_capturing(device, device.synchronize)

    def test_stream_synchronize_while_capturing_refused(self, device: GraphDevice) -> None:
        """Nor can it for one stream."""
        _refused_while_capturing(device, lambda: device.current_stream().synchronize())

    def test_host_read_while_capturing_refused(self, device: GraphDevice) -> None:
        """A value computed in a capture has no value yet."""
        source = torch.ones((), device=device.torch_device)
        _refused_while_capturing(device, lambda: float(source + 1))

    def test_capture_of_default_stream_refused(self, device: GraphDevice) -> None:
        """The default stream cannot be captured."""
        default = device.current_stream()

        def capture() -> None:
            graph = device.create_graph()
            with device.capture(graph, pool=device.create_memory_pool(), stream=default):
                torch.zeros(4, device=device.torch_device).add_(1)

        _refused(capture)
        _assert_usable(device)

    def test_second_capture_into_graph_refused(self, device: GraphDevice) -> None:
        """A graph is good for one capture, and survives the attempt at another."""
        buffer = torch.zeros(4, device=device.torch_device)
        stream, pool = _ready_stream(device), device.create_memory_pool()
        graph = device.create_graph()

        def capture() -> None:
            with device.capture(graph, pool=pool, stream=stream):
                buffer.add_(1)

        capture()
        _refused(capture)
        graph.replay()
        _expect_values(device, "buffer", buffer, 1.0)

    def test_replay_of_empty_or_reset_graph_refused(self, device: GraphDevice) -> None:
        """There is nothing to replay before the capture and after the reset."""
        _refused(device.create_graph().replay)
        buffer = torch.zeros(4, device=device.torch_device)
        graph = _captured(device, lambda: buffer.add_(1))
        graph.reset()
        _refused(graph.replay)
        _assert_usable(device)

    def test_task_group_outside_capture_refused(self, device: GraphDevice) -> None:
        """A task group belongs to a graph."""
        stream = _ready_stream(device)
        _refused(lambda: device.begin_task_group(stream))
        _assert_usable(device)

    def test_end_of_task_update_without_begin_refused(self, device: GraphDevice) -> None:
        """Begin and end come in pairs."""
        stream = _ready_stream(device)
        _refused(lambda: device.end_task_update(stream))
        _assert_usable(device)

    def test_memory_figures_are_consistent(self, device: GraphDevice) -> None:
        """Figures are bytes, and nest."""
        held = torch.zeros(1024, device=device.torch_device)
        figures = device.memory_figures()
        held_within = figures.allocated <= figures.reserved <= figures.total
        _expect(f"{figures} nest", held_within and figures.allocated >= 0, True)
        _expect(f"{figures} have free ones within all", 0 <= figures.free <= figures.total, True)
        device.empty_cache()
        del held

    def test_captured_graph_takes_streams_until_it_is_reset(self, device: GraphDevice) -> None:
        """A graph returns its streams to the device, if the device reports them."""
        values = torch.ones(4, device=device.torch_device)
        _captured(device, lambda: values.add_(1)).reset()
        device.synchronize()
        before = device.free_streams()
        if before is None:
            return

        graph = _captured(device, lambda: values.add_(1))
        during = device.free_streams()
        graph.reset()

        _expect(
            f"{during} free streams with a graph, {before} without: as many or fewer",
            during is not None and 0 <= during <= before,
            True,
        )
        _expect("device.free_streams()", device.free_streams(), before)

    def _update(
        self,
        device: GraphDevice,
        stream: Stream,
        handle: object,
        source: torch.Tensor,
        factor: float,
        out: torch.Tensor,
    ) -> None:
        device.begin_task_update(stream, handle)
        self.issue_updatable(source, factor, out)
        device.end_task_update(stream)


def _expect(what: str, found: object, expected: object) -> None:
    """Compare, with a message about the difference even without pytest's assertion rewriting."""
    if found != expected:
        raise AssertionError(f"{what} is {found!r}, expected {expected!r}")


def _expect_values(device: GraphDevice, name: str, tensor: torch.Tensor, value: float) -> None:
    """Compare four values with one, after all work of the device."""
    device.synchronize()
    _expect(f"{name}.tolist()", tensor.tolist(), [value] * 4)


def _ready_stream(device: GraphDevice) -> Stream:
    """Return a new stream, after the current one is done."""
    device.synchronize()
    return device.create_stream()


def _captured(device: GraphDevice, body: Callable[[], object]) -> DeviceGraph:
    """Capture a body into a new graph of a pool and stream of its own."""
    graph = device.create_graph()
    stream = _ready_stream(device)
    with device.capture(graph, pool=device.create_memory_pool(), stream=stream):
        body()
    return graph


def _raise(error: Exception) -> None:
    raise error


def _refused(action: Callable[[], object]) -> RuntimeError:
    """Return the error with which the device refuses, or fail."""
    try:
        action()
    except RuntimeError as error:
        return error
    raise AssertionError("the device did not refuse")


def _refused_while_capturing(device: GraphDevice, action: Callable[[], object]) -> None:
    """Try an illegal action inside a capture: its own error comes out, and the device is usable."""
    refusals: list[RuntimeError] = []

    def body() -> None:
        refusals.append(_refused(action))
        raise refusals[0]

    raised = _refused(lambda: _captured(device, body))
    _expect("the error that came out", raised, refusals[0])
    _assert_usable(device)


def _assert_usable(device: GraphDevice) -> None:
    """Capture and replay a small graph, and check that earlier work left nothing behind."""
    _expect("device.is_capturing()", device.is_capturing(), False)
    device.synchronize()
    buffer = torch.zeros(4, device=device.torch_device)
    graph = _captured(device, lambda: buffer.add_(1))
    graph.replay()
    _expect_values(device, "buffer", buffer, 1.0)
