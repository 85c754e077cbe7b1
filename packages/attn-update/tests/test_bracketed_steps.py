"""Steps whose graph the engine replays itself, between `begin` and `finish`."""

from __future__ import annotations

import threading
from random import Random
from typing import TYPE_CHECKING

import pytest
import torch

import cann_sim
from attn_update import LaneError, StepParameterError, UpdateError, UpdateLane
from npu_graph_testing.attention import PagedModel, assert_layers_equal, draw_lengths

if TYPE_CHECKING:
    from collections.abc import Callable

    from attn_update import UpdatePlan, UpdaterChoice
    from conftest import Model
    from npu_graph_runtime import FakeDevice, NpuDevice
    from npu_graph_testing.attention import AttentionOperators

WAYS = ("run", "bracketed")


def step(
    lane: UpdateLane, model: Model, key: int, lengths: list[int], way: str, seen: list[object]
) -> None:
    """Run one step in one of two ways; `seen` gets the outputs at the end of its replay."""
    plan, parameters = model.plans[key], model.parameters(key, lengths)
    replay = model.observed_replay(key, seen)  # type: ignore[arg-type]
    if way == "run":
        lane.run(plan, parameters, replay)
    else:
        lane.begin(plan, parameters)
        replay()
        lane.finish()


def assert_right(model: Model, key: int, lengths: list[int], outputs: object) -> None:
    assert isinstance(outputs, list)
    for out, expected in zip(outputs, model.expected(key, lengths), strict=True):
        assert torch.equal(out, expected), (key, lengths)


@pytest.mark.parametrize("ways", [("bracketed",), WAYS])
def test_steps_with_any_schedule_see_their_own_lengths(
    make_model: Callable[..., Model], device: FakeDevice, schedule: int, ways: tuple[str, ...]
) -> None:
    random = Random(schedule)
    models = [make_model(num_layers=3), make_model(num_layers=1)]
    lane = UpdateLane(device)
    for model in models:
        model.capture(4)
        model.capture(2)
    queued: list[tuple[Model, int, list[int]]] = []
    seen: list[object] = []
    for _ in range(12):
        model, key = random.choice(models), random.choice([2, 4])
        lengths = [random.randint(0, 12) for _ in range(key)]
        step(lane, model, key, lengths, random.choice(ways), seen)
        queued.append((model, key, lengths))
        device.advance(random, random.randint(0, 200))
    device.advance(random)
    for (model, key, lengths), outputs in zip(queued, seen, strict=True):
        assert_right(model, key, lengths, outputs)
    assert device.num_synchronizations == 0


def assert_next_steps_are_right(
    lane: UpdateLane, model: Model, device: FakeDevice, ways: tuple[str, ...], seed: int
) -> None:
    random, seen = Random(seed), list[object]()
    drawn = [[random.randint(0, 12) for _ in range(2)] for _ in range(20)]
    for lengths in drawn:
        step(lane, model, 2, lengths, random.choice(ways), seen)
        device.advance(random, random.randint(0, 80))
    device.advance(random)
    for lengths, outputs in zip(drawn, seen, strict=True):
        assert_right(model, 2, lengths, outputs)


@pytest.mark.parametrize("failing", range(3))
def test_an_update_that_fails_half_way_releases_the_graph(
    model: Model,
    device: FakeDevice,
    operators: AttentionOperators,
    failing: int,
    schedule: int,
) -> None:
    model.capture(2)
    lane = UpdateLane(device)
    random = Random(schedule)
    step(lane, model, 2, [2, 3], "bracketed", [])
    operators.failing = {failing: RuntimeError("injected")}
    with pytest.raises(UpdateError, match="injected"):
        step(lane, model, 2, [4, 5], "bracketed", [])
    device.advance(random, random.randint(0, 200))
    assert_next_steps_are_right(lane, model, device, ("bracketed",), schedule)
    assert device.num_synchronizations == 0


def test_wrong_parameters_before_a_replay_launch_nothing(model: Model, device: FakeDevice) -> None:
    plan, lane = model.capture(2), UpdateLane(device)
    with pytest.raises(StepParameterError):
        lane.begin(plan, model.parameters(2, [1, 99]))
    assert device.is_idle
    assert_next_steps_are_right(lane, model, device, ("bracketed",), 0)


@pytest.mark.parametrize("is_queued", [False, True])
def test_an_abandoned_step_never_hangs(model: Model, device: FakeDevice, is_queued: bool) -> None:
    plan, lane = model.capture(2), UpdateLane(device)
    for _ in range(3):
        lane.begin(plan, model.parameters(2, [4, 5]))
        if is_queued:
            model.graphs[2].replay()
        lane.abandon()
        assert_next_steps_are_right(lane, model, device, ("bracketed",), 1)
    assert lane.counters.failures == (3 if is_queued else 0)


@pytest.mark.parametrize("end", [UpdateLane.abandon, UpdateLane.close])
def test_an_open_step_is_released_where_no_thread_can_start(
    model: Model,
    device: FakeDevice,
    monkeypatch: pytest.MonkeyPatch,
    end: Callable[[UpdateLane], None],
) -> None:
    def refuse(*_: object) -> None:
        raise RuntimeError("can't create new thread at interpreter shutdown")

    plan, lane = model.capture(2), UpdateLane(device)
    lane.begin(plan, model.parameters(2, [4, 5]))
    model.graphs[2].replay()
    with monkeypatch.context() as patch:
        patch.setattr("attn_update.lane.update_lane.start_new_thread", refuse)
        end(lane)
    lane.close()
    device.synchronize()
    assert_next_steps_are_right(UpdateLane(device), model, device, ("bracketed",), 1)


def test_a_step_that_was_never_finished_is_an_error_and_the_next_is_right(
    model: Model, device: FakeDevice
) -> None:
    plan, lane = model.capture(2), UpdateLane(device)
    lane.begin(plan, model.parameters(2, [4, 5]))
    model.graphs[2].replay()
    with pytest.raises(LaneError, match="never finished"):
        lane.run(plan, model.parameters(2, [6, 7]), model.graphs[2].replay)
    device.synchronize()
    assert_next_steps_are_right(lane, model, device, WAYS, 2)


def test_another_thread_does_not_take_an_open_step_away(model: Model, device: FakeDevice) -> None:
    plan, lane = model.capture(2), UpdateLane(device)
    lane.begin(plan, model.parameters(2, [4, 5]))
    errors: list[BaseException] = []

    def other() -> None:
        try:
            lane.run(plan, model.parameters(2, [6, 7]), model.graphs[2].replay)
        except LaneError as error:
            errors.append(error)

    thread = threading.Thread(target=other)
    thread.start()
    thread.join(60)
    assert "another thread" in str(errors[0])
    model.graphs[2].replay()
    lane.finish()
    device.synchronize()
    assert_right(model, 2, [4, 5], model.outputs[2])


def test_close_releases_an_open_step(model: Model, device: FakeDevice) -> None:
    plan, lane = model.capture(2), UpdateLane(device)
    lane.begin(plan, model.parameters(2, [4, 5]))
    model.graphs[2].replay()
    lane.close()
    device.synchronize()
    with pytest.raises(LaneError, match="closed"):
        lane.finish()


def test_a_bracketed_step_after_a_failed_one_updates_first(
    model: Model, device: FakeDevice, fail_before: Callable[[UpdatePlan], None]
) -> None:
    plan, lane = model.capture(2), UpdateLane(device)
    step(lane, model, 2, [2, 3], "bracketed", [])
    fail_before(plan)
    lane.begin(plan, model.parameters(2, [4, 5]))
    model.graphs[2].replay()
    # Set again by the updates already: the replay waits for nothing that `finish` would do.
    device.synchronize()
    assert_right(model, 2, [4, 5], model.outputs[2])
    lane.finish()
    assert_next_steps_are_right(lane, model, device, ("bracketed",), 3)


@pytest.mark.parametrize("worker", [False, True])
def test_bracketed_steps_on_simulated_cann_equal_the_eager_operator(
    npu_device: NpuDevice, any_updater: UpdaterChoice, worker: bool
) -> None:
    random = Random(9)
    model = PagedModel(device=npu_device)
    model.capture(2, 4)
    lane = UpdateLane(npu_device, updater=any_updater, worker=worker)
    for _ in range(8):
        before, burst = cann_sim.counters().synchronisations, []
        for _ in range(4):
            key = random.choice([2, 4])
            lengths = draw_lengths(random, key)
            lane.begin(model.plans[key], model.parameters(key, lengths))
            model.graphs[key].replay()
            lane.finish()
            burst.append((key, lengths, [out.clone() for out in model.outputs[key]]))
        assert cann_sim.counters().synchronisations == before
        lane.drain()
        for key, lengths, outputs in burst:
            assert_layers_equal(outputs, model.eager(key, lengths))


def test_a_failure_on_simulated_cann_is_raised_and_the_next_step_is_right(
    npu_device: NpuDevice, any_updater: UpdaterChoice
) -> None:
    model = PagedModel(device=npu_device)
    model.capture(2)
    lane = UpdateLane(npu_device, updater=any_updater)

    def run(lengths: list[int]) -> None:
        lane.begin(model.plans[2], model.parameters(2, lengths))
        model.graphs[2].replay()
        lane.finish()

    for number in range(3):
        run([5, 6])
        with (
            cann_sim.injected_faults(f"task_update:{number + 1}"),
            pytest.raises(UpdateError),
        ):
            run([7, 8 + number])
        npu_device.synchronize()
        run([9, 10])
        assert_layers_equal(model.outputs[2], model.eager(2, [9, 10]))
