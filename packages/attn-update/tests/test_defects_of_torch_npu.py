"""Defects of torch_npu's own updates, and of SGLang's use of them, each with a test.

Read in `torch_npu/npu/graphs.py`, npugraph_ex and SGLang's NPU graph runner; on simulated CANN.
"""

from __future__ import annotations

import threading
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
import torch

import cann_sim
from attn_update import (
    RecordingError,
    StepParameterError,
    UpdatableGraph,
    UpdateError,
    UpdateLane,
    UpdatePlan,
)
from npu_graph_testing.attention import PagedModel, assert_layers_equal, draw_lengths
from npu_graph_testing.attention.cases import CaseModel, all_kinds, find_case

if TYPE_CHECKING:
    from conftest import CaptureDispatched
    from npu_graph_runtime import NpuDevice


def npu() -> Any:
    return vars(torch)["npu"]


def case_model(device: NpuDevice, name: str, **given: Any) -> CaseModel:
    return CaseModel(device=device, case=find_case(name), kinds=all_kinds(), **given)


def test_unknown_update_key_is_refused_and_not_ignored(
    npu_device: NpuDevice, capture_dispatched: CaptureDispatched
) -> None:
    # NPUGraph.update drops names that the captured call does not have: lengths stay as they were.
    model = PagedModel(device=npu_device)
    model.eager(2, [1, 1])
    graph = capture_dispatched(model, 2)
    updatable = UpdatableGraph(model.recorder, 2, graph, UpdateLane(npu_device))
    before = cann_sim.counters().replays
    with pytest.raises(StepParameterError, match="no step argument 'actual_seq_kvlen'"):
        updatable.update([{"actual_seq_kvlen": [5, 6]}])
    assert cann_sim.counters().replays == before


def test_failed_update_ends_its_task_update(npu_device: NpuDevice) -> None:
    # NPUGraph.update leaves the task update open when the operator raises.
    model, lane = (
        PagedModel(device=npu_device, fused=False),
        UpdateLane(npu_device, updater="operators"),
    )
    model.capture(2)
    broken = UpdatePlan.compile(model.recorder, 2, fused=False)
    broken.updates[1].launch["block_size"] = 17
    with pytest.raises(UpdateError, match=r"layers\.1"):
        lane.run(broken, model.parameters(2, [5, 6]), model.graphs[2].replay)
    assert_layers_equal(model.step(lane, 2, [7, 8]), model.eager(2, [7, 8]))


def test_failed_update_after_its_replay_leaves_nothing_waiting(npu_device: NpuDevice) -> None:
    # SGLang joins the updating thread after the replay: an error there leaves a waiting replay.
    model, lane = PagedModel(device=npu_device), UpdateLane(npu_device, updater="operators")
    model.capture(2)
    with cann_sim.injected_faults("task_update:1"), pytest.raises(UpdateError):
        model.step(lane, 2, [5, 6])
    npu_device.synchronize()
    assert_layers_equal(model.step(lane, 2, [7, 8]), model.eager(2, [7, 8]))


def test_lists_may_be_reused_at_once_without_a_fence(npu_device: NpuDevice) -> None:
    # SGLang waits for an event in every step before it may write its host lengths again.
    model, lane = PagedModel(device=npu_device), UpdateLane(npu_device, updater="operators")
    model.capture(2)
    lengths, outputs = [0, 0], []
    before = cann_sim.counters().synchronisations
    drawn = [draw_lengths(Random(seed), 2) for seed in range(4)]
    for values in drawn:
        lengths[:] = values
        outputs.append(model.step(lane, 2, lengths))
    assert cann_sim.counters().synchronisations == before
    for values, found in zip(drawn, outputs, strict=True):
        assert_layers_equal(found, model.eager(2, values))


def test_two_threads_that_update_take_turns(npu_device: NpuDevice) -> None:
    # Two threads on one class-wide update stream failed with 107033, or stalled.
    lane = UpdateLane(npu_device)
    models = [PagedModel(device=npu_device, seed=seed) for seed in (0, 100)]
    for model in models:
        model.capture(2)
    npu_device.synchronize()
    failures: list[BaseException] = []

    def work(model: PagedModel, random: Random) -> None:
        try:
            npu().set_device(0)
            with npu_device.use_stream(npu_device.create_stream()):
                for _ in range(20):
                    lengths = draw_lengths(random, 2)
                    outputs = model.step(lane, 2, lengths)
                    assert_layers_equal(outputs, model.eager(2, lengths))
        except BaseException as error:  # noqa: BLE001 - shown below, in the test's own thread
            failures.append(error)

    threads = [
        threading.Thread(target=work, args=(model, Random(seed)))
        for seed, model in enumerate(models)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=120)
    assert failures == []
    assert not any(thread.is_alive() for thread in threads)


def test_first_captured_of_two_keys_is_updated_and_not_the_last(npu_device: NpuDevice) -> None:
    # npugraph_ex updates the graph that was captured last, whichever is replayed.
    model, lane = PagedModel(device=npu_device), UpdateLane(npu_device)
    model.capture(4)
    model.capture(2)
    for lengths in ([9, 8, 7, 6], [30, 31], [1, 2, 3, 40]):
        outputs = model.step(lane, len(lengths), lengths)
        assert_layers_equal(outputs, model.eager(len(lengths), lengths))


def test_explicit_none_and_dtype_arguments_are_captured(npu_device: NpuDevice) -> None:
    # npugraph_ex raised TypeError for an updatable operator with an explicit None.
    model = case_model(npu_device, "v2 decode", num_layers=1)
    model.shared[2] = model.case.shared(model, 2) | {"atten_mask": None, "query_dtype": None}
    model.capture(2)
    drawn = model.draw(Random(2), 2)
    assert_layers_equal(model.run(UpdateLane(npu_device), drawn), model.expected(drawn))


def test_capturing_a_key_again_leaves_the_others(npu_device: NpuDevice) -> None:
    # npugraph_ex dropped all graphs when one was captured again at its limit.
    model, lane = PagedModel(device=npu_device), UpdateLane(npu_device)
    model.capture(4, 2)
    model.step(lane, 2, [3, 4])
    npu_device.synchronize()
    kept = model.plans[4]
    with pytest.raises(RecordingError, match="release it first"):
        model.capture(2)
    model.recorder.release(2)
    model.capture(2)
    for lengths in ([9, 8, 7, 6], [30, 31]):
        outputs = model.step(lane, len(lengths), lengths)
        assert_layers_equal(outputs, model.eager(len(lengths), lengths))
    assert model.plans[4] is kept
