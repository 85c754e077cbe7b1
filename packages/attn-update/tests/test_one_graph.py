"""A step replays the graph of its own key, and once: whatever function replays."""

from __future__ import annotations

import gc
import threading
import weakref
from functools import partial
from typing import TYPE_CHECKING

import pytest

import cann_sim
from attn_update import LaneError, UpdateLane
from npu_graph_testing.attention import PagedModel, assert_layers_equal

if TYPE_CHECKING:
    from collections.abc import Callable

    from npu_graph_runtime import NpuDevice


def make_model(device: NpuDevice) -> PagedModel:
    model = PagedModel(device=device)
    model.capture(2, 4)
    return model


def assert_works(model: PagedModel, lane: UpdateLane) -> None:
    for key, lengths in ((2, [7, 8]), (4, [1, 2, 3, 4]), (2, [3, 40])):
        assert_layers_equal(model.step(lane, key, lengths), model.eager(key, lengths))


def replay_of(model: PagedModel, key: int) -> None:
    model.graphs[key].replay()


def twice(replay: Callable[[], None]) -> None:
    replay()
    replay()


@pytest.mark.parametrize("worker", [False, True])
@pytest.mark.parametrize("after_steps", [False, True])
def test_closure_that_replays_another_graph_is_refused_before_anything_is_launched(
    npu_device: NpuDevice, after_steps: bool, worker: bool
) -> None:
    model, other = make_model(npu_device), make_model(npu_device)
    lane = UpdateLane(npu_device, worker=worker)
    if after_steps:
        assert_works(model, lane)
        assert_works(other, lane)
        lane.drain()
    before = cann_sim.counters()

    for each, key in ((model, 4), (other, 4), (other, 2)):
        expected = f"running a step of key 2: the replay is that of another graph, of key {key}"
        closure = partial(replay_of, each, key)
        with pytest.raises(LaneError, match=expected):
            lane.run(model.plans[2], model.parameters(2, [5, 6]), closure)

    assert cann_sim.counters().replays == before.replays
    assert cann_sim.counters().task_updates == before.task_updates
    assert lane.counters.failures == 0
    assert_works(model, lane)
    assert_works(other, lane)


def test_step_whose_replay_ran_something_else_updates_nothing(npu_device: NpuDevice) -> None:
    """Its updates would set events that nobody waits for, and the next step would not wait."""
    model, lane = make_model(npu_device), UpdateLane(npu_device)
    assert_works(model, lane)
    before = cann_sim.counters().task_updates

    with pytest.raises(LaneError, match="the replay did not replay the graph"):
        lane.run(model.plans[2], model.parameters(2, [5, 6]), lambda: model.eager(2, [5, 6]))

    assert cann_sim.counters().task_updates == before
    assert_works(model, lane)


def test_graph_that_is_replayed_twice_in_a_step_is_refused_the_second_time(
    npu_device: NpuDevice,
) -> None:
    model, lane = make_model(npu_device), UpdateLane(npu_device)

    with pytest.raises(LaneError, match="replayed a second time"):
        lane.run(model.plans[2], model.parameters(2, [5, 6]), lambda: twice(model.graphs[2].replay))

    npu_device.synchronize()
    assert_works(model, lane)


def test_bracketed_step_refuses_the_replay_of_another_graph(npu_device: NpuDevice) -> None:
    model, lane = make_model(npu_device), UpdateLane(npu_device)
    lane.begin(model.plans[2], model.parameters(2, [5, 6]))
    with pytest.raises(RuntimeError, match="of another graph, of key 4"):
        model.graphs[4].replay()
    with pytest.raises(LaneError, match="the replay did not replay the graph"):
        lane.finish()
    with pytest.raises(LaneError, match="none was begun"):
        lane.abandon()
    npu_device.synchronize()
    assert_works(model, lane)


def test_threads_with_lanes_of_their_own_do_not_refuse_each_other(npu_device: NpuDevice) -> None:
    models = [make_model(npu_device) for _ in range(2)]
    lanes = [UpdateLane(npu_device) for _ in models]
    streams = [npu_device.create_stream() for _ in models]
    both, errors = threading.Barrier(2), list[BaseException]()

    def serve(index: int) -> None:
        npu_device.bind_thread()
        model, lane = models[index], lanes[index]

        def replay() -> None:
            # Both are inside a step now.
            both.wait(30)
            model.graphs[2].replay()

        try:
            with npu_device.use_stream(streams[index]):
                for _ in range(20):
                    lane.run(model.plans[2], model.parameters(2, [5, 6]), replay)
        except BaseException as error:  # noqa: BLE001 - looked at by the test
            errors.append(error)
            both.abort()

    threads = [threading.Thread(target=serve, args=(index,)) for index in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    npu_device.synchronize()


def test_replay_on_another_thread_than_its_begin_is_that_of_the_step(
    npu_device: NpuDevice,
) -> None:
    model, lane = make_model(npu_device), UpdateLane(npu_device)
    stream = npu_device.current_stream()

    def replay() -> None:
        npu_device.bind_thread()
        with npu_device.use_stream(stream):
            model.graphs[2].replay()

    lane.begin(model.plans[2], model.parameters(2, [5, 6]))
    thread = threading.Thread(target=replay)
    thread.start()
    thread.join()
    lane.finish()
    assert_layers_equal(model.outputs[2], model.eager(2, [5, 6]))
    assert_works(model, lane)


def test_guarded_graph_is_freed_with_its_last_reference(npu_device: NpuDevice) -> None:
    model = make_model(npu_device)
    reference = weakref.ref(model.graphs[2])
    gc.disable()
    try:
        del model.graphs[2]
        assert reference() is None
    finally:
        gc.enable()
