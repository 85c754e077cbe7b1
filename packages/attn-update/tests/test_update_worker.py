"""A lane whose worker thread launches the updates: the same values, errors that come later."""

from __future__ import annotations

import subprocess
import sys
import threading
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
import torch

import cann_sim
from attn_update import (
    LaneError,
    StepParameterError,
    UpdateError,
    UpdateLane,
    UpdatePlan,
)
from npu_graph_runtime import NpuDevice
from npu_graph_testing.attention import PagedModel, assert_layers_equal, draw_lengths

if TYPE_CHECKING:
    from collections.abc import Callable

    from attn_update import UpdaterChoice
    from conftest import CheckBurst, RefusingEvents


@pytest.mark.parametrize("updates_first", [False, True])
def test_steps_of_a_worker_with_the_host_ahead_equal_the_eager_operator(
    npu_device: NpuDevice,
    any_updater: UpdaterChoice,
    check_burst: CheckBurst,
    updates_first: bool,
    fail_before: Callable[[UpdatePlan], None],
) -> None:
    random = Random(5)
    models = [PagedModel(device=npu_device, seed=seed) for seed in (0, 100)]
    for model in models:
        model.capture(2, 4)
    lane = UpdateLane(npu_device, updater=any_updater, worker=True)
    for _ in range(15):
        if updates_first:
            fail_before(random.choice(models).plans[2])
        check_burst(lane, models, random)
    assert lane.counters.steps == 60
    assert lane.counters.updater_steps == (0 if any_updater == "operators" else 60)
    lane.close()


def test_a_worker_launches_updates_in_its_own_thread(npu_device: NpuDevice) -> None:
    model = PagedModel(device=npu_device)
    model.capture(2)
    lane = UpdateLane(npu_device, updater="operators", worker=True)
    plan = UpdatePlan.compile(model.recorder, 2, fused=False)
    threads: set[threading.Thread] = set()
    for update in plan.updates:
        call = update.call

        def note(*, call: Any = call, **launch: Any) -> object:
            threads.add(threading.current_thread())
            return call(**launch)

        object.__setattr__(update, "call", note)
    lane.run(plan, model.parameters(2, [7, 8]), model.graphs[2].replay)
    lane.drain()
    (thread,) = threads
    assert thread is not threading.current_thread()
    assert thread.is_alive()
    lane.close()
    assert not thread.is_alive()


@pytest.mark.parametrize("failing", range(3))
def test_a_failure_of_a_worker_is_raised_by_the_next_call_and_the_steps_after_it_are_right(
    npu_device: NpuDevice, any_updater: UpdaterChoice, failing: int
) -> None:
    random = Random(6)
    model = PagedModel(device=npu_device)
    model.capture(2)
    lane = UpdateLane(npu_device, updater=any_updater, worker=True)
    assert_layers_equal(model.step(lane, 2, [5, 6]), model.eager(2, [5, 6]))
    broken = UpdatePlan.compile(model.recorder, 2)
    broken.updates[failing].launch["block_size"] = 17
    lane.run(broken, model.parameters(2, [7, 8]), model.graphs[2].replay)
    with pytest.raises(UpdateError, match="throw all results of key 2 away") as caught:
        lane.drain()
    assert caught.value.layer_name == f"layers.{failing}"
    for _ in range(25):
        drawn = [draw_lengths(random, 2) for _ in range(4)]
        burst = [(lengths, model.step(lane, 2, lengths)) for lengths in drawn]
        for lengths, outputs in burst:
            assert_layers_equal(outputs, model.eager(2, lengths))
    lane.close()


def test_a_replay_that_failed_after_it_was_queued_ends(
    npu_device: NpuDevice, any_updater: UpdaterChoice
) -> None:
    model = PagedModel(device=npu_device)
    model.capture(2)
    lane = UpdateLane(npu_device, updater=any_updater, worker=True)
    assert_layers_equal(model.step(lane, 2, [5, 6]), model.eager(2, [5, 6]))
    busy = torch.randn(500, 500, device=npu_device.torch_device)
    npu_device.synchronize()
    # The device is far behind: the replay before still waits for its updates.
    for _ in range(40):
        busy = busy @ busy
    model.step(lane, 2, [7, 8])

    def replay() -> None:
        model.graphs[2].replay()
        raise RuntimeError("too late")

    with pytest.raises(RuntimeError, match="too late"):
        lane.run(model.plans[2], model.parameters(2, [9, 10]), replay)
    npu_device.synchronize()
    for lengths in ([11, 12], [13, 12]):
        assert_layers_equal(model.step(lane, 2, lengths), model.eager(2, lengths))
    lane.close()


def test_a_wait_that_is_refused_in_the_thread_releases_the_graph(
    npu_device: NpuDevice, refusing: RefusingEvents
) -> None:
    model = PagedModel(device=npu_device)
    model.capture(2)
    lane = UpdateLane(npu_device, updater=refusing, worker=True)
    assert_layers_equal(model.step(lane, 2, [5, 6]), model.eager(2, [5, 6]))
    lane.drain()
    refusing.refused = True
    lane.run(model.plans[2], model.parameters(2, [7, 8]), model.graphs[2].replay)
    with pytest.raises(RuntimeError, match="the device refused"):
        lane.drain()
    refusing.refused = False
    npu_device.synchronize()
    for lengths in ([7, 8], [9, 8]):
        assert_layers_equal(model.step(lane, 2, lengths), model.eager(2, lengths))
    lane.close()


class _NoThreads(NpuDevice):
    """A device that no other thread can be bound to."""

    def bind_thread(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            raise RuntimeError("no context for this thread")


def test_a_thread_that_cannot_be_bound_is_an_error_of_the_lanes_making(
    npu_device: NpuDevice,
) -> None:
    before = set(threading.enumerate())
    with pytest.raises(RuntimeError, match="no context for this thread"):
        UpdateLane(_NoThreads(npu_device.index), worker=True)
    assert set(threading.enumerate()) == before


SCRIPT = """
import sys
import torch
from attn_update import UpdateLane
from npu_graph_testing.attention import PagedModel
from npu_graph_runtime import NpuDevice

device = NpuDevice(0)
torch.npu.config.allow_internal_format = False
torch.npu.set_compile_mode(jit_compile=False)
model = PagedModel(device=device, num_layers=40)
with device.use_stream(device.create_stream()):
    model.capture(2)
    lane = UpdateLane(device, updater=sys.argv[1], worker=True)
    for step in range(20):
        lane.run(model.plans[2], model.parameters(2, [1 + step, 2]), model.graphs[2].replay)
"""


@pytest.mark.parametrize("name", ["operators", "kernels", "native"])
def test_a_process_that_leaves_its_lane_open_ends_well(name: str) -> None:
    command = [sys.executable, "-m", "cann_sim", "run", "--", sys.executable, "-c", SCRIPT, name]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "deadlock" not in done.stderr
    assert "terminate" not in done.stderr


def test_steps_queued_after_a_failure_end_and_the_next_are_right(
    npu_device: NpuDevice,
) -> None:
    model = PagedModel(device=npu_device)
    model.capture(2)
    lane = UpdateLane(npu_device, updater="operators", worker=True)
    broken = UpdatePlan.compile(model.recorder, 2)
    broken.updates[1].launch["block_size"] = 17
    held, seen = threading.Event(), threading.Event()
    call = broken.updates[0].fused

    def wait_and_call(*arguments: Any, **launch: Any) -> object:
        seen.set()
        assert held.wait(120)
        assert call is not None
        return call(*arguments, **launch)

    object.__setattr__(broken.updates[0], "fused", wait_and_call)
    for lengths in ([7, 8], [9, 10], [11, 12]):
        lane.run(broken, model.parameters(2, lengths), model.graphs[2].replay)
    assert seen.wait(120)
    held.set()
    with pytest.raises(UpdateError):
        lane.drain()
    npu_device.synchronize()
    before = cann_sim.counters().replays
    with pytest.raises(StepParameterError):
        model.step(lane, 2, [7, -8])
    assert cann_sim.counters().replays == before
    assert_layers_equal(model.step(lane, 2, [7, 8]), model.eager(2, [7, 8]))
    lane.close()


def test_parameters_that_do_not_fit_are_refused_by_run_itself(npu_device: NpuDevice) -> None:
    model = PagedModel(device=npu_device)
    model.capture(2)
    lane = UpdateLane(npu_device, worker=True)
    before = cann_sim.counters().replays
    with pytest.raises(StepParameterError):
        model.step(lane, 2, [7, -8])
    assert cann_sim.counters().replays == before
    lane.close()
    with pytest.raises(LaneError, match="closed"):
        model.step(lane, 2, [7, 8])


def test_close_raises_what_failed_and_ends_the_thread(npu_device: NpuDevice) -> None:
    model = PagedModel(device=npu_device)
    model.capture(2)
    lane = UpdateLane(npu_device, updater="operators", worker=True)
    broken = UpdatePlan.compile(model.recorder, 2)
    broken.updates[0].launch["block_size"] = 17
    lane.run(broken, model.parameters(2, [7, 8]), model.graphs[2].replay)
    with pytest.raises(UpdateError, match=r"layers\.0"):
        lane.close()
    npu_device.synchronize()


def test_replays_on_changing_streams_keep_their_order(
    npu_device: NpuDevice, any_updater: UpdaterChoice
) -> None:
    random = Random(7)
    model = PagedModel(device=npu_device)
    model.capture(2)
    lane = UpdateLane(npu_device, updater=any_updater)
    streams = [npu_device.create_stream() for _ in range(3)]
    for _ in range(10):
        drawn = [draw_lengths(random, 2) for _ in range(4)]
        outputs = []
        for lengths in drawn:
            with npu_device.use_stream(random.choice(streams)):
                # Only the last outputs are looked at: nothing keeps a replay on another stream
                # from overwriting the earlier ones.
                outputs = model.step(lane, 2, lengths)
        npu_device.synchronize()
        assert_layers_equal(outputs, model.eager(2, drawn[-1]))


def test_a_lane_that_is_dropped_ends_its_thread(npu_device: NpuDevice) -> None:
    before = set(threading.enumerate())
    lane = UpdateLane(npu_device, worker=True)
    (thread,) = set(threading.enumerate()) - before
    del lane
    thread.join(timeout=120)
    assert not thread.is_alive()
