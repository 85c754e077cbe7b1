"""An engine that takes graphs and updates one by one is guarded as a runner of npu-compile is."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest

import cann_sim
from attn_update import RecordingError, StepParameters, UnknownNameError, UpdateLane
from hand_composed.composed_engine import KEY, LENGTHS, OTHER, ROWS, Engine, parameters
from npu_graph_runtime import GraphKey
from npu_graph_runtime.errors import GraphNotCapturedError

if TYPE_CHECKING:
    from npu_graph_runtime import NpuDevice


def step_of(key: GraphKey, lengths: list[int]) -> StepParameters:
    return StepParameters(key=key, groups=parameters(lengths))


@pytest.mark.parametrize("is_run_before", [False, True])
def test_plan_of_a_released_graph_launches_nothing(device: NpuDevice, is_run_before: bool) -> None:
    engine = Engine(device)
    plan, other = engine.capture(KEY), engine.capture(OTHER)
    if is_run_before:
        engine.assert_right(plan)
    engine.graphed.release(KEY)
    before = cann_sim.counters()

    with pytest.raises(GraphNotCapturedError, match="no graph is captured under this key"):
        engine.lane.run(plan, step_of(KEY, [5, 6]), partial(engine.call, KEY))

    device.synchronize()
    after = cann_sim.counters() - before
    assert (after.replays, after.task_updates) == (0, 0)
    engine.assert_right(other)


@pytest.mark.parametrize("is_run_before", [False, True])
def test_records_and_plan_of_a_released_graph_do_not_pass_to_its_next_capture(
    device: NpuDevice, is_run_before: bool
) -> None:
    engine = Engine(device)
    old = engine.capture(KEY)
    if is_run_before:
        engine.assert_right(old)
    engine.graphed.release(KEY)
    with pytest.raises(RecordingError, match="release it first, with its graph"):
        engine.capture(KEY)
    engine.recorder.release(KEY)
    new = engine.capture(KEY)

    before = cann_sim.counters()
    with pytest.raises(UnknownNameError, match="the key was released after this plan was compiled"):
        engine.lane.run(old, step_of(KEY, [5, 6]), partial(engine.call, KEY))

    after = cann_sim.counters() - before
    assert (after.replays, after.task_updates) == (0, 0)
    engine.assert_right(new)


def test_capture_while_a_worker_still_updates_is_right_or_refused(device: NpuDevice) -> None:
    engine = Engine(device)
    engine.lane = UpdateLane(device, worker=True)
    first = engine.capture(KEY)
    for index in range(8):
        engine.lane.run(first, step_of(KEY, LENGTHS[index % 3]), partial(engine.call, KEY))
        key = GraphKey(num_tokens=ROWS, extra=(index,))
        engine.assert_right(engine.capture(key))
        engine.assert_right(first)
    engine.lane.close()


def test_failed_capture_leaves_nothing_that_the_next_one_meets(device: NpuDevice) -> None:
    engine = Engine(device)
    attend = engine.model.attend

    def fail(**call: object) -> object:
        attend(**call)
        raise ValueError("the model failed after its attention was recorded")

    engine.model.attend = fail
    with pytest.raises(ValueError, match="the model failed"):
        engine.capture(KEY)
    assert engine.graphed.captured_keys == ()
    assert engine.recorder.keys == ()

    engine.model.attend = attend
    engine.assert_right(engine.capture(KEY))
