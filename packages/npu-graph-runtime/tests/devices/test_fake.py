from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
import torch

from npu_graph_runtime import CaptureSession, FakeDevice, GraphContext, GraphDevice
from npu_graph_runtime.device import MemoryFigures
from npu_graph_runtime.diagnosis import diagnose
from npu_graph_runtime.errors import DeadlockError, DeviceError
from npu_graph_testing import DeviceContract

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from npu_graph_runtime.device import DeviceGraph, Stream


def test_fake_device_fits_the_seam(fake: FakeDevice) -> None:
    device: GraphDevice = fake
    assert device.name == "fake:0"
    assert repr(fake) == "<FakeDevice fake:0>"


def test_capture_poisons_what_it_allocated_until_the_first_replay(fake: FakeDevice) -> None:
    x = torch.ones(3)
    graph = fake.create_graph()
    with fake.capture(graph, pool=fake.create_memory_pool()):
        floats, integers, flags = x + 1, x.int() + 1, x > 0
    assert floats.isnan().all()
    assert integers.tolist() == [torch.iinfo(torch.int32).min] * 3
    graph.replay()
    assert floats.tolist() == [2.0] * 3
    assert integers.tolist() == [2] * 3
    assert flags.tolist() == [True] * 3


def test_capture_that_would_write_existing_memory_leaves_it(fake: FakeDevice) -> None:
    cache = torch.zeros(4, 2)
    slots = torch.tensor([1, 3])
    mean, var = torch.zeros(2), torch.ones(2)
    graph = fake.create_graph()
    with fake.capture(graph, pool=fake.create_memory_pool()):
        cache.index_put_((slots,), torch.ones(2, 2))
        # Writes its running statistics and returns new tensors: the mixed case.
        torch.ops.aten._native_batch_norm_legit(cache, None, None, mean, var, True, 0.5, 1e-5)
    assert cache.count_nonzero() == 0
    assert (mean.tolist(), var.tolist()) == ([0.0, 0.0], [1.0, 1.0])
    graph.replay()
    assert cache.tolist() == [[0.0, 0.0], [1.0, 1.0], [0.0, 0.0], [1.0, 1.0]]
    assert mean.tolist() == [0.25, 0.25]


def test_capture_under_inference_mode_replays_outside_it(fake: FakeDevice) -> None:
    graph = fake.create_graph()
    with torch.inference_mode():
        x = torch.ones(2)
        with fake.capture(graph, pool=fake.create_memory_pool()):
            out = (x.view(1, 2) * 2).view(2)
    graph.replay()
    assert out.tolist() == [2.0, 2.0]


def test_capture_of_parameters_that_require_grad_replays(fake: FakeDevice) -> None:
    layer = torch.nn.Linear(2, 2)
    x = torch.ones(1, 2)
    graph = fake.create_graph()
    with fake.capture(graph, pool=fake.create_memory_pool()):
        out = layer(x)
    x.fill_(2)
    graph.replay()
    assert torch.equal(out, layer(x))


def test_capture_copies_list_arguments(fake: FakeDevice) -> None:
    sizes, x = [1, 3], torch.arange(4.0)
    graph = fake.create_graph()
    with fake.capture(graph, pool=fake.create_memory_pool()):
        parts = torch.ops.aten.split_with_sizes_copy(x, sizes)
    sizes[:] = [2, 2]
    graph.replay()
    assert [part.tolist() for part in parts] == [[0.0], [1.0, 2.0, 3.0]]


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("is_inference", [False, True])
def test_capture_records_each_operator_once(
    fake: FakeDevice, context: GraphContext, nested: bool, is_inference: bool
) -> None:
    """Of every form: functional, in place, ``out=``, a view, composite, one that writes besides."""
    x, total, mean, var = torch.full((2, 2), 3.0), torch.zeros(2, 2), torch.ones(2), torch.ones(2)
    graph, pool, stream = fake.create_graph(), fake.create_memory_pool(), fake.create_stream()
    handles: list[object] = []
    with torch.inference_mode(is_inference), contextlib.ExitStack() as stack:
        if nested:
            stack.enter_context(CaptureSession(fake, context, pool, stream))
            stack.enter_context(fake.use_stream(stream))
        with fake.capture(graph, pool=pool, stream=stream):
            fake.begin_task_group(stream)
            y = x.view(4).view(2, 2) * 2
            total.add_(y)
            torch.add(y, 1, out=total)
            torch.ops.aten._native_batch_norm_legit(y, None, None, mean, var, True, 0.5, 1e-5)
            torch.nn.functional.linear(y, y)
            handles.append(fake.end_task_group(stream))
    names = [str(launch.function) for group in handles for launch in group.launches]  # type: ignore[attr-defined]
    assert names == [
        "aten.mul.Tensor",
        "aten.add_.Tensor",
        "aten.add.out",
        "aten._native_batch_norm_legit.default",
        "aten.mm.default",
    ]
    graph.replay()
    graph.replay()
    assert total.tolist() == [[7.0, 7.0], [7.0, 7.0]]
    assert mean.tolist() == [4.75, 4.75]


X, ROWS, MASK = (
    torch.arange(6.0).view(3, 2),
    torch.tensor([2, 0]),
    torch.tensor([True, False, True]),
)
Call = Callable[[], torch.Tensor]


@pytest.mark.parametrize("is_inference", [False, True])
@pytest.mark.parametrize(
    "call",
    [
        lambda: X[ROWS],
        lambda: X[ROWS.int(), ROWS - 1],
        lambda: X[:, ROWS[1:]],
        lambda: X[ROWS, :1],
        lambda: torch.ops.aten._unsafe_index(X, [ROWS]),
        lambda: X[:2].repeat_interleave(ROWS, 0, output_size=2),
    ],
)
def test_capture_takes_what_has_a_known_shape(
    fake: FakeDevice, is_inference: bool, call: Call
) -> None:
    graph = fake.create_graph()
    with (
        torch.inference_mode(is_inference),
        fake.capture(graph, pool=fake.create_memory_pool()),
    ):
        out = call()
    graph.replay()
    assert torch.equal(out, call())


@pytest.mark.parametrize("is_inference", [False, True])
@pytest.mark.parametrize(
    "call",
    [
        lambda: X[MASK],
        lambda: X[MASK.byte().bool()],
        lambda: X[MASK, :1],
        lambda: X.masked_select(MASK[:, None]),
        MASK.nonzero,
        lambda: torch.where(MASK),
        lambda: X[:2].repeat_interleave(ROWS, 0),
        lambda: X.sum().item(),
        lambda: bool(X.sum() > 0),
        lambda: torch.equal(X, X),
    ],
)
def test_capture_refuses_what_the_host_has_to_know(
    fake: FakeDevice, is_inference: bool, call: Call
) -> None:
    with (
        torch.inference_mode(is_inference),
        pytest.raises(RuntimeError, match=r"hands a device value to the host .* 107027"),
        fake.capture(fake.create_graph(), pool=fake.create_memory_pool()),
    ):
        call()


def square(x: torch.Tensor, out: torch.Tensor) -> None:
    torch.mul(x, x, out=out)


def test_capture_looks_through_python_operator(fake: FakeDevice) -> None:
    with torch.library._scoped_library("fake_device_test", "FRAGMENT") as library:
        library.define("opaque(Tensor x, Tensor(a!) out) -> ()")
        library.impl("opaque", square, "CompositeExplicitAutograd")
        x, out = torch.full((2,), 3.0), torch.zeros(2)
        ones, stream = torch.ones(2), fake.create_stream()
        handles: list[object] = []
        graph = fake.create_graph()
        with fake.capture(graph, pool=fake.create_memory_pool(), stream=stream):
            fake.begin_task_group(stream)
            torch.ops.fake_device_test.opaque(x, out)
            handles.append(fake.end_task_group(stream))
        graph.replay()
        assert out.tolist() == [9.0, 9.0]
        lane = fake.create_stream()
        with fake.use_stream(lane):
            fake.begin_task_update(lane, handles[0])
            torch.mul(x, ones, out=out)
            fake.end_task_update(lane)
        graph.replay()
        assert out.tolist() == [3.0, 3.0]


@pytest.mark.parametrize("is_inference", [False, True])
def test_capture_looks_through_composite_operator(fake: FakeDevice, is_inference: bool) -> None:
    """In inference mode torch does not take it apart itself."""
    with torch.library._scoped_library("fake_device_test", "FRAGMENT") as library:
        library.define("composite(Tensor x) -> Tensor")
        library.impl("composite", lambda x: (x + 1) * 2, "CompositeImplicitAutograd")
        stream, handles, graph = fake.create_stream(), [], fake.create_graph()
        with (
            torch.inference_mode(is_inference),
            fake.capture(graph, pool=fake.create_memory_pool(), stream=stream),
        ):
            fake.begin_task_group(stream)
            out = torch.ops.fake_device_test.composite(X)
            handles.append(fake.end_task_group(stream))
        names = [str(launch.function) for launch in handles[0].launches]  # type: ignore[attr-defined]
        assert names == ["aten.add.Tensor", "aten.mul.Tensor"]
        graph.replay()
        assert torch.equal(out, (X + 1) * 2)


def test_eager_operator_on_waiting_stream_runs_after_the_wait(fake: FakeDevice) -> None:
    x, event, stream = torch.zeros(2), fake.create_external_event(), fake.create_stream()
    with fake.use_stream(stream):
        event.wait(stream)
        x.add_(1)
        doubled = x * 2
    assert x.tolist() == [0.0, 0.0]
    event.record(fake.create_stream())
    fake.synchronize()
    assert x.tolist() == [1.0, 1.0]
    assert doubled.tolist() == [2.0, 2.0]


def test_host_read_on_waiting_stream_is_a_deadlock(fake: FakeDevice) -> None:
    x, event, stream = torch.zeros(()), fake.create_external_event(), fake.create_stream()
    with fake.use_stream(stream):
        event.wait(stream)
        with pytest.raises(DeadlockError, match="waits for an external event"):
            x.item()


@pytest.mark.parametrize("what", ["device", "stream", "event"])
def test_wait_nobody_can_satisfy_is_reported_and_dropped(fake: FakeDevice, what: str) -> None:
    event, stream = fake.create_external_event(), fake.create_stream()
    event.wait(stream)
    done = stream.record_event()
    waits = {"device": fake.synchronize, "stream": stream.synchronize, "event": done.synchronize}
    assert not stream.query()
    assert not done.query()
    with pytest.raises(DeadlockError, match=r"never recorded .* with 1 more behind it"):
        waits[what]()
    fake.synchronize()
    assert stream.query()


def test_wait_satisfied_by_other_thread_in_time_is_no_deadlock() -> None:
    import threading

    device = FakeDevice(deadlock_timeout=30.0)
    event, stream, lane = (
        device.create_external_event(),
        device.create_stream(),
        device.create_stream(),
    )
    event.wait(stream)
    thread = threading.Thread(target=event.record, args=(lane,))
    thread.start()
    device.synchronize()
    thread.join()
    assert stream.query()


def test_lane_on_other_thread_releases_each_replay_with_its_own_value() -> None:
    import threading

    device = FakeDevice(deadlock_timeout=30.0)
    x, out, event = torch.ones(2), torch.zeros(2), device.create_external_event()
    main, lane = device.create_stream(), device.create_stream()
    graph = device.create_graph()
    with device.capture(graph, pool=device.create_memory_pool(), stream=main):
        event.wait(main)
        device.begin_task_group(main)
        torch.mul(x, 0.0, out=out)
        handle = device.end_task_group(main)

    def update(factor: float) -> None:
        with device.use_stream(lane):
            device.begin_task_update(lane, handle)
            torch.mul(x, factor, out=out)
            device.end_task_update(lane)
            event.record(lane)

    for factor in (1.0, 2.0, 3.0):
        lane.wait_stream(main)
        thread = threading.Thread(target=update, args=(factor,))
        with device.use_stream(main):
            graph.replay()
            thread.start()
            main.synchronize()
        thread.join()
        assert out.tolist() == [factor] * 2


def test_external_event_waited_for_twice_after_one_record_refused(fake: FakeDevice) -> None:
    event, stream = fake.create_external_event(), fake.create_stream()
    event.record(stream)
    event.wait(stream)
    with pytest.raises(RuntimeError, match="waited for twice"):
        event.wait(stream)
    event.record(stream)
    event.wait(stream)
    fake.synchronize()


def test_kernel_failing_in_replay_is_reported_by_next_synchronisation(fake: FakeDevice) -> None:
    indices, table = torch.zeros(1, dtype=torch.int64), torch.ones(2)
    graph = fake.create_graph()
    with fake.capture(graph, pool=fake.create_memory_pool()):
        out = table.index_select(0, indices)
    indices.fill_(9)
    graph.replay()
    with pytest.raises(RuntimeError, match=r"aten.index_select.default failed.*507015") as caught:
        fake.synchronize()
    assert caught.value.__cause__ is not None
    fake.synchronize()
    indices.fill_(1)
    graph.replay()
    fake.synchronize()
    assert out.tolist() == [1.0]


def refusal(error: BaseException) -> int | None:
    diagnosed = diagnose(error, doing="testing", subject="it")
    assert isinstance(diagnosed, DeviceError)
    return diagnosed.code


def test_refusals_carry_the_codes_of_the_device(fake: FakeDevice) -> None:
    stream, pool = fake.create_stream(), fake.create_memory_pool()
    outside = stream.record_event()
    graph = fake.create_graph()
    codes: list[int | None] = []

    def refused(action: object, *args: object) -> None:
        assert callable(action)
        with pytest.raises(RuntimeError) as caught:
            action(*args)
        codes.append(refusal(caught.value))

    refused(fake.begin_task_update, stream, object())
    refused(fake.end_task_update, stream)
    refused(fake.end_task_group, stream)
    with fake.capture(graph, pool=pool, stream=stream):
        fake.begin_task_group(stream)
        refused(fake.begin_task_group, stream)
        handle = fake.end_task_group(stream)
        refused(outside.wait, stream)
        refused(stream.query)
        refused(outside.query)
        refused(fake.empty_cache)
    lane = fake.create_stream()
    fake.begin_task_update(lane, handle)
    refused(fake.begin_task_update, lane, handle)
    with fake.use_stream(lane):
        torch.ones(1).add_(1)
    refused(fake.end_task_update, lane)
    assert codes == [107017, 107033, 107033, 107033, 107024, 107027, 107027, 107027, 107033, 107040]
    graph.reset()
    refused(fake.begin_task_update, lane, handle)
    assert codes[-1] == 107017


def test_task_update_while_capturing_refused(fake: FakeDevice) -> None:
    stream, pool = fake.create_stream(), fake.create_memory_pool()
    first = fake.create_graph()
    with fake.capture(first, pool=pool, stream=stream):
        fake.begin_task_group(stream)
        handle = fake.end_task_group(stream)
    with (
        fake.capture(fake.create_graph(), pool=pool, stream=stream),
        pytest.raises(RuntimeError, match="107027"),
    ):
        fake.begin_task_update(stream, handle)


def test_task_update_with_other_operator_leaves_group_unchanged(fake: FakeDevice) -> None:
    x, out, stream = torch.ones(2), torch.zeros(2), fake.create_stream()
    graph = fake.create_graph()
    with fake.capture(graph, pool=fake.create_memory_pool(), stream=stream):
        fake.begin_task_group(stream)
        torch.mul(x, 3.0, out=out)
        handle = fake.end_task_group(stream)
    with fake.use_stream(stream):
        fake.begin_task_update(stream, handle)
        torch.add(x, x, out=out)
        with pytest.raises(RuntimeError, match=r"aten.mul.out.*aten.add.out.*107040"):
            fake.end_task_update(stream)
    graph.replay()
    assert out.tolist() == [3.0, 3.0]


def test_capture_ended_with_task_group_open_refused(fake: FakeDevice) -> None:
    stream = fake.create_stream()
    with (
        pytest.raises(RuntimeError, match=r"task group open on stream .*107033"),
        fake.capture(fake.create_graph(), pool=fake.create_memory_pool(), stream=stream),
    ):
        fake.begin_task_group(stream)
    assert not fake.is_capturing()


def test_capture_with_unjoined_stream_refused(fake: FakeDevice) -> None:
    side, x = fake.create_stream(), torch.ones(2)

    def capture() -> None:
        with fake.capture(fake.create_graph(), pool=fake.create_memory_pool()):
            side.wait_stream(fake.current_stream())
            with fake.use_stream(side):
                x.add_(1)

    with pytest.raises(RuntimeError, match="left open, error code is 107025"):
        capture()
    with fake.use_stream(side):
        x.add_(1)
    assert x.tolist() == [2.0, 2.0]


def test_capture_whose_refused_call_was_swallowed_fails_at_its_end(fake: FakeDevice) -> None:
    x = torch.ones(())

    def capture() -> None:
        with (
            fake.capture(fake.create_graph(), pool=fake.create_memory_pool()),
            contextlib.suppress(RuntimeError),
        ):
            float(x)

    with pytest.raises(RuntimeError, match="507903"):
        capture()


def test_event_of_finished_capture_refused(fake: FakeDevice) -> None:
    event = fake.create_event()
    with fake.capture(fake.create_graph(), pool=fake.create_memory_pool()):
        event.record()
    with pytest.raises(RuntimeError, match="107028"):
        event.wait(fake.create_stream())


def test_objects_of_other_devices_refused(fake: FakeDevice) -> None:
    with pytest.raises(TypeError, match="got object, expected a stream"):
        fake.use_stream(object())  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="got a FakeGraph and a object"):
        fake.capture(fake.create_graph(), pool=object())


def test_memory_figures_follow_live_graphs() -> None:
    device = FakeDevice(memory_bytes=1000)
    pool, graph = device.create_memory_pool(), device.create_graph()
    with device.capture(graph, pool=pool):
        torch.zeros(10).view(2, 5).add_(1)
    assert device.memory_figures() == MemoryFigures(allocated=40, reserved=40, free=960, total=1000)
    graph.reset()
    assert device.memory_figures().allocated == 0


def test_weak_reference_of_empty_tensor_is_empty(fake: FakeDevice) -> None:
    weak = fake.weak_reference(torch.empty(0, 3))
    assert weak.shape == (0, 3)


def test_synchronisations_are_counted(fake: FakeDevice) -> None:
    fake.synchronize()
    fake.create_stream().synchronize()
    fake.create_event().synchronize()
    assert fake.num_synchronizations == 3


def test_contract_of_device_without_capture_fails(fake: FakeDevice) -> None:
    class Eager(FakeDevice):
        """Runs work that it should only capture."""

        def capture(
            self, graph: DeviceGraph, *, pool: object, stream: Stream | None = None
        ) -> AbstractContextManager[object]:
            return self.use_stream(self.create_stream())

    contract = DeviceContract()
    with pytest.raises(AssertionError):
        contract.test_capture_runs_nothing(Eager())
    contract.test_capture_runs_nothing(fake)
