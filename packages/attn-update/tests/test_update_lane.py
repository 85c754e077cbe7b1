"""A lane replays and updates in order, whatever the device does meanwhile."""

from __future__ import annotations

import threading
from random import Random
from typing import TYPE_CHECKING

import pytest
import torch

from attn_update import (
    LaneError,
    StepParameterError,
    StepParameters,
    UpdateError,
    UpdateLane,
    UpdatePlan,
)
from npu_graph_runtime.errors import DeadlockError

if TYPE_CHECKING:
    from collections.abc import Callable

    from conftest import Model
    from npu_graph_runtime import FakeDevice
    from npu_graph_runtime.device import Stream
    from npu_graph_testing.attention import AttentionOperators


def draw_lengths(random: Random, key: int) -> list[int]:
    return [random.randint(0, 12) for _ in range(key)]


def assert_steps(model: Model, steps: list[tuple[int, list[int]]], seen: list[object]) -> None:
    assert len(seen) == len(steps)
    for (key, lengths), outputs in zip(steps, seen, strict=True):
        assert isinstance(outputs, list)
        for out, expected in zip(outputs, model.expected(key, lengths), strict=True):
            assert torch.equal(out, expected), (key, lengths)


@pytest.mark.parametrize("device", ["no_queue", "launch_queue", "launch_queue_only"], indirect=True)
@pytest.mark.parametrize("updates_first", [False, True])
def test_run_with_any_schedule_gives_every_step_its_own_lengths(
    make_model: Callable[..., Model],
    device: FakeDevice,
    schedule: int,
    updates_first: bool,
    fail_before: Callable[[UpdatePlan], None],
) -> None:
    # Two models (target and draft) with two graph keys each, on one lane, the device up to four
    # steps after the host, its streams interleaved by chance.
    random = Random(schedule)
    models = [make_model(num_layers=3), make_model(num_layers=1)]
    lane = UpdateLane(device)
    for model in models:
        model.capture(4)
        model.capture(2)
    queued: list[list[tuple[int, list[int]]]] = [[], []]
    ends = []
    seen: list[list[list[torch.Tensor]]] = [[], []]

    for _ in range(12):
        index = random.randrange(2)
        key = random.choice([2, 4])
        model, lengths = models[index], draw_lengths(random, key)
        replay = model.observed_replay(key, seen[index])
        if updates_first and random.random() < 0.5:
            fail_before(model.plans[key])
        lane.run(model.plans[key], model.parameters(key, lengths), replay)
        queued[index].append((key, lengths))
        ends.append(device.current_stream().record_event())
        while sum(not end.query() for end in ends) > 4:
            if not device.advance(random, random.randint(1, 100)):
                break
        device.advance(random, random.randint(0, 200))
    device.advance(random)
    assert device.is_idle

    for model, steps, outputs in zip(models, queued, seen, strict=True):
        assert_steps(model, steps, list(outputs))
    assert device.num_synchronizations == 0


def seed_protocol_step(model: Model, key: int, lengths: list[int], update_stream: Stream) -> None:
    """Replay, then update without waiting for the previous replay: no order by events."""
    plan, device = model.plans[key], model.device
    (values,) = plan.check(model.parameters(key, lengths)).values
    model.graphs[key].replay()
    with device.use_stream(update_stream):
        for update in plan.updates:
            device.begin_task_update(update_stream, update.handle)
            update.call(**{**update.launch, **values})
            device.end_task_update(update_stream)
            update.event.record(update_stream)


def test_protocol_without_synchronisation_fails_under_some_schedule(
    make_model: Callable[..., Model], device: FakeDevice
) -> None:
    # The check above can fail: the protocol of the engines, without the host synchronisation that
    # saves it, hangs or gives wrong values as soon as the host runs ahead.
    outcomes = set()
    for seed in range(30):
        random, model = Random(seed), make_model(num_layers=2)
        model.capture(2)
        stream = device.create_stream()
        steps = [(2, draw_lengths(random, 2)) for _ in range(4)]
        seen: list[list[torch.Tensor]] = []
        for _, lengths in steps:
            seed_protocol_step(model, 2, lengths, stream)
            with device.use_stream(device.current_stream()):
                seen.append([out.clone() for out in model.outputs[2]])
            device.advance(random, random.randint(0, 60))
        device.advance(random)
        try:
            device.synchronize()
            assert_steps(model, steps, list(seen))
            outcomes.add("right")
        except DeadlockError:
            outcomes.add("deadlock")
        except AssertionError:
            outcomes.add("wrong value")

    assert outcomes >= {"deadlock", "wrong value"}


def test_run_without_an_update_would_give_the_stale_output(
    model: Model, device: FakeDevice
) -> None:
    plan = model.capture(2)
    graph = model.graphs[2]

    graph.replay()
    for update in plan.updates:
        update.event.record(device.create_stream())
    device.synchronize()

    assert torch.equal(model.outputs[2][0], model.expected(2, [1, 1])[0])


@pytest.mark.parametrize("updates_first", [False, True])
@pytest.mark.parametrize("failing", range(3))
def test_run_with_a_failing_update_names_it_and_the_next_steps_are_right(
    model: Model,
    device: FakeDevice,
    operators: AttentionOperators,
    failing: int,
    updates_first: bool,
    fail_before: Callable[[UpdatePlan], None],
) -> None:
    random = Random(failing)
    plan = model.capture(2)
    lane = UpdateLane(device)
    lane.run(plan, model.parameters(2, [2, 3]), model.graphs[2].replay)
    if updates_first:
        fail_before(plan)
    operators.failing = {failing: RuntimeError("injected")}

    with pytest.raises(UpdateError, match="injected") as caught:
        lane.run(plan, model.parameters(2, [4, 5]), model.graphs[2].replay)
    assert caught.value.layer_name == f"layer.{failing}"
    assert caught.value.operator == model.kind.operator

    steps = [(2, draw_lengths(random, 2)) for _ in range(30)]
    seen: list[list[torch.Tensor]] = []
    for _, lengths in steps:
        lane.run(plan, model.parameters(2, lengths), model.observed_replay(2, seen))
        device.advance(random, random.randint(0, 80))
    device.advance(random)
    assert_steps(model, steps, list(seen))
    assert device.num_synchronizations == 0


@pytest.mark.parametrize("updates_first", [False, True])
def test_run_after_a_failed_step_skips_nothing(
    model: Model,
    device: FakeDevice,
    operators: AttentionOperators,
    updates_first: bool,
    fail_before: Callable[[UpdatePlan], None],
) -> None:
    plan, lane = model.capture(2), UpdateLane(device)
    lane.run(plan, model.parameters(2, [2, 3]), model.graphs[2].replay)
    if updates_first:
        fail_before(plan)
    operators.failing = {1: RuntimeError("injected")}
    with pytest.raises(UpdateError):
        lane.run(plan, model.parameters(2, [4, 5]), model.graphs[2].replay)
    seen: list[list[torch.Tensor]] = []

    # The same as before the failure, when layer 0 had already been given other lengths.
    lane.run(plan, model.parameters(2, [2, 3]), model.observed_replay(2, seen))
    device.synchronize()

    assert_steps(model, [(2, [2, 3])], list(seen))


@pytest.mark.parametrize("is_queued", [False, True])
def test_run_with_a_failing_replay_never_hangs_and_the_next_steps_are_right(
    model: Model, device: FakeDevice, is_queued: bool
) -> None:
    random = Random(3)
    plan = model.capture(2)
    lane = UpdateLane(device)

    def fail() -> None:
        if is_queued:
            model.graphs[2].replay()
        raise KeyError("replay")

    for _ in range(5):
        with pytest.raises(KeyError, match="replay"):
            lane.run(plan, model.parameters(2, [4, 5]), fail)
        steps = [(2, draw_lengths(random, 2)) for _ in range(5)]
        seen: list[list[torch.Tensor]] = []
        for _, lengths in steps:
            lane.run(plan, model.parameters(2, lengths), model.observed_replay(2, seen))
            device.advance(random, random.randint(0, 80))
        device.advance(random)
        assert_steps(model, steps, list(seen))


def test_run_with_wrong_parameters_launches_nothing(model: Model, device: FakeDevice) -> None:
    plan = model.capture(2)
    lane = UpdateLane(device)

    with pytest.raises(StepParameterError):
        lane.run(plan, model.parameters(2, [1, 99]), model.graphs[2].replay)

    assert device.is_idle
    lane.run(plan, model.parameters(2, [1, 9]), model.graphs[2].replay)
    device.synchronize()
    assert torch.equal(model.outputs[2][1], model.expected(2, [1, 9])[1])


def test_run_with_the_same_lengths_again_updates_nothing_and_stays_right(
    model: Model, device: FakeDevice
) -> None:
    plan = model.capture(2)
    lane = UpdateLane(device)
    lengths = [[2, 3], [2, 3], [2, 4], [2, 4], [2, 3]]
    seen: list[list[torch.Tensor]] = []

    for item in lengths:
        lane.run(plan, model.parameters(2, item), model.observed_replay(2, seen))
    device.synchronize()

    assert_steps(model, [(2, item) for item in lengths], list(seen))
    assert (lane.counters.steps, lane.counters.updates, lane.counters.skipped) == (5, 9, 6)


def test_run_with_lists_reused_by_the_caller_keeps_its_values(
    model: Model, device: FakeDevice
) -> None:
    plan = model.capture(2)
    lane = UpdateLane(device)
    lengths, seen = [2, 3], list[list[torch.Tensor]]()

    lane.run(plan, model.parameters(2, lengths), model.observed_replay(2, seen))
    lengths[:] = [5, 6]
    lane.run(plan, model.parameters(2, lengths), model.observed_replay(2, seen))
    device.synchronize()

    assert_steps(model, [(2, [2, 3]), (2, [5, 6])], list(seen))


def test_run_with_rebound_block_tables_reads_each_step_its_own(
    make_model: Callable[..., Model], device: FakeDevice
) -> None:
    model = make_model(rebind_block_table=True)
    model.capture(2)
    plan, lane = UpdatePlan.compile(model.recorder, 2), UpdateLane(device)
    tables = [torch.full((2, 3), block, dtype=torch.int32) for block in range(4)]
    seen: list[list[torch.Tensor]] = []

    for table in tables:
        group = {"actual_seq_lengths": [1, 2], "actual_seq_lengths_kv": [3, 4]}
        step = StepParameters(key=2, groups={"default": {**group, "block_table": table}})
        lane.run(plan, step, model.observed_replay(2, seen))
    device.synchronize()

    for table, outputs in zip(tables, seen, strict=True):
        model.inputs[2]["block_table"] = table
        assert torch.equal(outputs[0], model.expected(2, [3, 4])[0])


def test_run_on_the_stream_of_the_lane_is_refused(model: Model, device: FakeDevice) -> None:
    plan, lane = model.capture(2), UpdateLane(device)
    stream = lane._issuer.stream  # type: ignore[union-attr]

    with device.use_stream(stream), pytest.raises(LaneError, match="update lane's own"):
        lane.run(plan, model.parameters(2, [2, 3]), model.graphs[2].replay)

    assert stream.query()


def test_run_inside_a_replay_is_refused(model: Model, device: FakeDevice) -> None:
    plan, lane = model.capture(2), UpdateLane(device)

    with pytest.raises(LaneError, match="inside a step"):
        lane.run(
            plan,
            model.parameters(2, [2, 3]),
            lambda: lane.run(plan, model.parameters(2, [2, 3]), model.graphs[2].replay),
        )


def test_run_by_a_second_lane_of_the_same_key_is_refused(model: Model, device: FakeDevice) -> None:
    plan, lane = model.capture(2), UpdateLane(device)
    lane.run(plan, model.parameters(2, [2, 3]), model.graphs[2].replay)

    with pytest.raises(LaneError, match="another update lane"):
        UpdateLane(device).run(plan, model.parameters(2, [2, 3]), model.graphs[2].replay)


@pytest.mark.parametrize("worker", [False, True])
def test_lane_updates_the_keys_of_a_closed_one(
    model: Model, device: FakeDevice, schedule: int, worker: bool
) -> None:
    random = Random(schedule)
    seen: list[list[torch.Tensor]] = []
    steps: list[tuple[int, list[int]]] = []
    plan = model.capture(2)
    for _ in range(3):
        lane = UpdateLane(device, worker=worker)
        for _ in range(2):
            lengths = draw_lengths(random, 2)
            steps.append((2, lengths))
            lane.run(plan, model.parameters(2, lengths), model.observed_replay(2, seen))
        lane.close()
    device.synchronize()

    assert_steps(model, steps, [*seen])


def test_lane_updates_the_keys_of_one_closed_after_a_failed_step(
    model: Model, device: FakeDevice
) -> None:
    plan, lane = model.capture(2), UpdateLane(device)
    with pytest.raises(StepParameterError):
        lane.run(plan, StepParameters(key=2, groups={}), model.graphs[2].replay)
    lane.begin(plan, model.parameters(2, [2, 3]))
    model.graphs[2].replay()
    lane.close()

    seen: list[list[torch.Tensor]] = []
    UpdateLane(device).run(plan, model.parameters(2, [4, 5]), model.observed_replay(2, seen))
    device.synchronize()
    assert_steps(model, [(2, [4, 5])], [*seen])


def test_run_after_close_is_refused(model: Model, device: FakeDevice) -> None:
    plan, lane = model.capture(2), UpdateLane(device)
    lane.close()

    with pytest.raises(LaneError, match="closed"):
        lane.run(plan, model.parameters(2, [2, 3]), model.graphs[2].replay)


def test_run_by_two_threads_queues(model: Model, device: FakeDevice) -> None:
    plan, lane = model.capture(2), UpdateLane(device)
    entered, leave, second_done = threading.Event(), threading.Event(), threading.Event()

    def slow_replay() -> None:
        entered.set()
        assert leave.wait(120)
        model.graphs[2].replay()

    def first() -> None:
        lane.run(plan, model.parameters(2, [2, 3]), slow_replay)

    def second() -> None:
        lane.run(plan, model.parameters(2, [4, 5]), model.graphs[2].replay)
        second_done.set()

    threads = [threading.Thread(target=first), threading.Thread(target=second)]
    threads[0].start()
    assert entered.wait(120)
    threads[1].start()
    assert not second_done.wait(0.05)
    leave.set()
    for thread in threads:
        thread.join(120)
    device.synchronize()

    assert lane.counters.steps == 2
    assert torch.equal(model.outputs[2][0], model.expected(2, [4, 5])[0])
