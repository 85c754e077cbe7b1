"""The real torch_npu on simulated CANN: captured attention follows every step's lengths."""

from __future__ import annotations

import gc
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
import torch

import cann_sim
from attn_update import (
    AttnUpdateError,
    DeadTensorError,
    LaneError,
    PlanError,
    Recorder,
    StepParameterError,
    StepParameters,
    UnknownNameError,
    UpdateError,
    UpdateLane,
    UpdatePlan,
)
from attn_update.kinds.kind import needs_update
from npu_graph_testing.attention import PagedModel, assert_layers_equal, draw_lengths
from npu_graph_testing.attention.cases import CaseModel, all_kinds, find_case
from npu_graph_testing.attention.paged_model import COLUMNS, LONGEST

if TYPE_CHECKING:
    from collections.abc import Callable

    from npu_graph_runtime import NpuDevice


def npu() -> Any:
    return vars(torch)["npu"]


def num_synchronisations() -> int:
    return cann_sim.counters().synchronisations


def num_launches() -> int:
    now = cann_sim.counters()
    return now.launches + now.captured_launches + now.updated_launches + now.replays


@pytest.mark.parametrize("kind", ["fused_infer_attention_v1", "fused_infer_attention_v2"])
@pytest.mark.parametrize("layout", ["TND", "BSH"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_steps_with_the_host_ahead_equal_the_eager_operator(
    npu_device: NpuDevice, dtype: torch.dtype, layout: str, kind: str
) -> None:
    random = Random(1)
    model = PagedModel(device=npu_device, dtype=dtype, layout=layout, kind_name=kind)
    model.capture(2, 4)
    lane = UpdateLane(npu_device, updater="operators")
    tables = {
        key: [torch.randint(0, 8, (key, COLUMNS)).int().to("npu") for _ in range(3)]
        for key in (2, 4)
    }

    for _ in range(25):
        before = num_synchronisations()
        burst = []
        for _ in range(4):
            key = random.choice([2, 4])
            lengths, table = draw_lengths(random, key), random.choice(tables[key])
            model.inputs[key]["block_table"].copy_(table)
            burst.append((key, lengths, table, model.step(lane, key, lengths)))
        assert num_synchronisations() == before
        for key, lengths, table, outputs in burst:
            model.inputs[key]["block_table"].copy_(table)
            assert_layers_equal(outputs, model.eager(key, lengths))


def test_two_recorders_interleaved_on_one_lane_do_not_disturb_each_other(
    npu_device: NpuDevice,
) -> None:
    random = Random(2)
    target = PagedModel(device=npu_device, num_layers=4, seed=100)
    draft = PagedModel(device=npu_device, num_layers=1, seed=200)
    target.capture(2, 4)
    draft.capture(2, 4)
    lane = UpdateLane(npu_device, updater="operators")

    for _ in range(50):
        burst = []
        for _ in range(4):
            model, key = random.choice([target, draft]), random.choice([2, 4])
            lengths = draw_lengths(random, key)
            burst.append((model, key, lengths, model.step(lane, key, lengths)))
        for model, key, lengths, outputs in burst:
            assert_layers_equal(outputs, model.eager(key, lengths))


def test_a_replay_without_updates_gives_the_captured_lengths(npu_device: NpuDevice) -> None:
    model = PagedModel(device=npu_device)
    model.capture(2)
    other = npu_device.create_stream()

    model.graphs[2].replay()
    for update in model.plans[2].updates:
        update.event.record(other)
    npu_device.synchronize()

    assert_layers_equal(model.outputs[2], model.eager(2, [1, 1]))
    assert not torch.equal(model.outputs[2][0].cpu(), model.eager(2, [9, 30])[0].cpu())


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"key": 4}, StepParameterError),
        ({"groups": {}}, StepParameterError),
        ({"actual_seq_lengths": [1, 2, 2]}, StepParameterError),
        ({"actual_seq_lengths": [2, 1]}, StepParameterError),
        ({"actual_seq_lengths": [1, 1]}, StepParameterError),
        ({"actual_seq_lengths_kv": [5]}, StepParameterError),
        ({"actual_seq_lengths_kv": [5, -1]}, StepParameterError),
        ({"actual_seq_lengths_kv": [5, LONGEST + 1]}, StepParameterError),
        ({"context_lens": [5, 5]}, StepParameterError),
    ],
)
def test_a_mistake_launches_nothing_and_the_next_step_is_right(
    npu_device: NpuDevice, change: dict[str, Any], error: type[AttnUpdateError]
) -> None:
    model = PagedModel(device=npu_device)
    model.capture(2)
    lane = UpdateLane(npu_device, updater="operators")
    groups = {"default": {**model.lengths(2, [5, 6])}}
    key = change.pop("key", 2)
    groups = change.pop("groups", {"default": {**groups["default"], **change}})
    before = num_launches()

    with pytest.raises(error):
        lane.run(model.plans[2], StepParameters(key=key, groups=groups), model.graphs[2].replay)

    assert num_launches() == before
    assert_layers_equal(model.step(lane, 2, [7, 8]), model.eager(2, [7, 8]))


def test_a_step_after_release_or_with_a_freed_cache_launches_nothing(npu_device: NpuDevice) -> None:
    model = PagedModel(device=npu_device)
    model.capture(2, 4)
    lane = UpdateLane(npu_device, updater="operators")
    model.step(lane, 2, [7, 8])
    npu_device.synchronize()
    model.recorder.release(4)
    before = num_launches()
    with pytest.raises(UnknownNameError):
        model.step(lane, 4, [1, 2, 3, 4])
    model.caches.clear()
    with pytest.raises(DeadTensorError, match=r"layers\.0"):
        model.step(lane, 2, [7, 8])
    assert num_launches() == before


def release(model: PagedModel, lane: UpdateLane) -> None:
    model.recorder.release(4)
    model.step(lane, 4, [1, 2, 3, 4])


def run_on_closed_lane(model: PagedModel) -> None:
    lane = UpdateLane(model.device, updater="operators")
    lane.close()
    model.step(lane, 4, [1, 2, 3, 4])


MISTAKES: dict[str, tuple[type[AttnUpdateError], Callable[[PagedModel, UpdateLane], object]]] = {
    "unknown key": (UnknownNameError, lambda model, _: UpdatePlan.compile(model.recorder, 8)),
    "missing layer": (
        PlanError,
        lambda model, _: UpdatePlan.compile(model.recorder, 2, layers=["layers.7"]),
    ),
    "layer too many": (
        PlanError,
        lambda model, _: UpdatePlan.compile(model.recorder, 2, layers=["layers.0", "layers.1"]),
    ),
    "plan of another key": (
        StepParameterError,
        lambda model, lane: lane.run(
            model.plans[4], model.parameters(2, [5, 6]), model.graphs[4].replay
        ),
    ),
    "replay of another key": (
        LaneError,
        lambda model, lane: lane.run(
            model.plans[2], model.parameters(2, [5, 6]), model.graphs[4].replay
        ),
    ),
    "plan of a released key": (UnknownNameError, release),
    "closed lane": (LaneError, lambda model, _: run_on_closed_lane(model)),
    "another lane": (
        LaneError,
        lambda model, _: UpdateLane(model.device, updater="operators").run(
            model.plans[2], model.parameters(2, [5, 6]), model.graphs[2].replay
        ),
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_around_a_step_launches_nothing_and_the_next_step_is_right(
    npu_device: NpuDevice, mistake: str
) -> None:
    error, make = MISTAKES[mistake]
    model, lane = PagedModel(device=npu_device), UpdateLane(npu_device, updater="operators")
    model.capture(2, 4)
    model.step(lane, 2, [3, 4])
    npu_device.synchronize()
    before = num_launches()

    with pytest.raises(error):
        make(model, lane)

    assert num_launches() == before
    assert_layers_equal(model.step(lane, 2, [7, 8]), model.eager(2, [7, 8]))


@pytest.mark.parametrize("updates_first", [False, True])
@pytest.mark.parametrize("failing", range(3))
@pytest.mark.parametrize("fused", [False, True])
def test_a_failing_update_is_named_and_the_next_hundred_steps_are_right(
    npu_device: NpuDevice,
    fail_before: Callable[[UpdatePlan], None],
    fused: bool,
    failing: int,
    updates_first: bool,
) -> None:
    random = Random(3)
    # Launched directly: through the task queue an operator fails later and without a name.
    model = PagedModel(device=npu_device, fused=fused)
    model.capture(2)
    lane = UpdateLane(npu_device, updater="operators")
    assert_layers_equal(model.step(lane, 2, [5, 6]), model.eager(2, [5, 6]))
    broken = UpdatePlan.compile(model.recorder, 2, fused=fused)
    broken.updates[failing].launch["block_size"] = 17
    if updates_first:
        fail_before(broken)

    with pytest.raises(UpdateError) as caught:
        lane.run(broken, model.parameters(2, [7, 8]), model.graphs[2].replay)

    assert caught.value.layer_name == f"layers.{failing}"
    assert caught.value.operator == "npu::npu_fused_infer_attention_score.out"
    for _ in range(25):
        burst = [
            (lengths := draw_lengths(random, 2), model.step(lane, 2, lengths)) for _ in range(4)
        ]
        for lengths, outputs in burst:
            assert_layers_equal(outputs, model.eager(2, lengths))


def test_workspace_is_allocated_at_capture_and_never_in_a_step(npu_device: NpuDevice) -> None:
    model = PagedModel(device=npu_device)
    model.capture(2, 4)
    lane = UpdateLane(npu_device, updater="operators")
    npu_device.synchronize()
    # What earlier tests left in cycles must not be freed in between.
    gc.collect()
    allocated = npu().memory_allocated()
    npu().reset_peak_memory_stats()

    for lengths in ([7, 8], [9, 10], [LONGEST, LONGEST]):
        lane.run(model.plans[2], model.parameters(2, lengths), model.graphs[2].replay)

    assert npu().max_memory_allocated() == allocated
    assert model.recorder.workspace.num_buffers == 1


def test_workspace_of_all_kinds_and_keys_is_one_buffer_of_the_pool(npu_device: NpuDevice) -> None:
    names = ("v1 decode", "v2 sinks", "latent_attention_v2 TND padded", "v1 causal")
    models = [
        CaseModel(device=npu_device, case=find_case(name), kinds=all_kinds(), num_layers=2)
        for name in names
    ]
    recorder, pool = Recorder(npu_device, all_kinds()), npu_device.create_memory_pool()

    def attention(key: int) -> None:
        for name, model in zip(names, models, strict=True):
            for layer in range(model.num_layers):
                arguments = model.arguments(key, layer, model.captured_step(key))
                recorder.attention(f"{name}.{layer}", model.kind_name, arguments, group=name)

    for key in (2, 4):
        with recorder.recording(f"warm-up {key}"):
            attention(key)
    graphs = {key: npu_device.create_graph() for key in (2, 4)}
    for key, graph in graphs.items():
        with recorder.recording(key), npu_device.capture(graph, pool=pool):
            attention(key)

    needed = {
        kind.workspace_bytes(model.arguments(key, 0, model.captured_step(key)))
        for model in models
        for key in graphs
        if needs_update(kind := recorder.kinds[model.kind_name])
    }
    assert recorder.workspace.num_buffers == 1
    assert recorder.workspace.allocated_bytes == max(needed) > min(needed)
    (address,) = {
        update.launch["workspace"].data_ptr()
        for key in graphs
        for update in UpdatePlan.compile(recorder, key).updates
    }
    (segment,) = (
        segment
        for segment in npu().memory_snapshot()
        if 0 <= address - segment["address"] < segment["total_size"]
    )
    assert segment["segment_pool_id"] == pool


@pytest.mark.parametrize("fused", [False, True])
def test_a_device_without_direct_streams_gives_the_same_values(
    device_without_direct_streams: NpuDevice, fused: bool
) -> None:
    random = Random(4)
    model = PagedModel(device=device_without_direct_streams, fused=fused)
    model.capture(2, 4)
    lane = UpdateLane(device_without_direct_streams)
    assert (model.plans[2].updates[0].fused is not None) == fused

    for _ in range(15):
        before = num_synchronisations()
        burst = []
        for _ in range(4):
            key = random.choice([2, 4])
            lengths = draw_lengths(random, key)
            burst.append((key, lengths, model.step(lane, key, lengths)))
        assert num_synchronisations() == before
        for key, lengths, outputs in burst:
            assert_layers_equal(outputs, model.eager(key, lengths))


def test_replay_of_another_graph_is_refused_and_launches_nothing(npu_device: NpuDevice) -> None:
    """It would wait for events that nobody records, until the stream times out (507046)."""
    model = PagedModel(device=npu_device)
    model.capture(2, 4)
    lane, lengths = UpdateLane(npu_device), {key: draw_lengths(Random(key), key) for key in (2, 4)}
    before = cann_sim.counters().replays

    with pytest.raises(LaneError, match="running a step of key 2: the replay is that of another"):
        lane.run(model.plans[2], model.parameters(2, lengths[2]), model.graphs[4].replay)

    assert cann_sim.counters().replays == before
    for key in (2, 4):
        lane.run(model.plans[key], model.parameters(key, lengths[key]))
        assert_layers_equal(model.outputs[key], model.eager(key, lengths[key]))
    assert cann_sim.counters().replays == before + 2
    lane.close()


def test_layer_in_which_a_replay_waits_is_found_by_its_event(npu_device: NpuDevice) -> None:
    model, updates = PagedModel(device=npu_device), npu_device.create_stream()
    model.capture(2)
    records = [*model.recorder.records(2).records.values()]

    model.graphs[2].replay()
    records[0].event.record(updates)
    with pytest.raises(RuntimeError) as raised:
        npu_device.synchronize()
    waiting = model.recorder.layers_waiting(str(raised.value))
    for record in records[1:]:
        record.event.record(updates)
    npu_device.synchronize()

    assert waiting == ((2, "layers.1"),)
    assert model.recorder.layers_waiting("stream 3 waits for 0x10 and 0xffffffff") == ()
