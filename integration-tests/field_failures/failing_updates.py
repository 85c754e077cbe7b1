"""Attention inside a graph that is updated wrongly, not at all, or reads memory that is gone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

import cann_sim
from attn_update import (
    ArgumentError,
    DeadTensorError,
    LaneError,
    PlanError,
    Recorder,
    StepParameterError,
    StepParameters,
    UpdatableGraph,
    UpdateError,
    UpdateLane,
    UpdatePlan,
)
from field_failures.field_failure import Failing, field_failure, told
from npu_graph_runtime.diagnosis import diagnose
from npu_graph_runtime.errors import DeviceTimeoutError
from npu_graph_testing.attention import PagedModel

if TYPE_CHECKING:
    from collections.abc import Iterator

    from npu_graph_runtime import NpuDevice

SEQUENCES = 2


def _captured(device: NpuDevice) -> PagedModel:
    model = PagedModel(device=device)
    model.capture(SEQUENCES)
    return model


def _hang(device: NpuDevice, model: PagedModel, recorded: int) -> Iterator[Failing]:
    """Replay with the events of the first layers recorded only; then record the others."""
    updates = device.create_stream()
    records = [*model.recorder.records(SEQUENCES).records.values()]

    def fails() -> object:
        model.graphs[SEQUENCES].replay()
        for record in records[:recorded]:
            record.event.record(updates)
        error = told(RuntimeError, device.synchronize)
        layers = [name for _, name in model.recorder.layers_waiting(str(error))]
        found = diagnose(error, doing="replaying", subject=f"'decode', waiting in {layers}")
        assert isinstance(found, DeviceTimeoutError)
        return found

    yield fails
    for record in records[recorded:]:
        record.event.record(updates)
    device.synchronize()


@field_failure(
    "vllm-ascend#4426",
    "vllm-ascend#4180",
    names=("['layers.0']", "FusedInferAttentionScore", "stream", "507046", "never recorded"),
)
def graph_that_nobody_updates(device: NpuDevice) -> Iterator[Failing]:
    """The decode graph hangs where attention of the first layer waits to be updated."""
    return _hang(device, _captured(device), recorded=0)


@field_failure(
    "vllm-ascend#4535", names=("['layers.2']", "FusedInferAttentionScore", "stream", "507046")
)
def layer_that_is_left_out_of_the_updates(device: NpuDevice) -> Iterator[Failing]:
    """One request hangs: a later layer is not updated."""
    return _hang(device, _captured(device), recorded=2)


def _steps(
    device: NpuDevice, error: type[Exception], arguments: dict[str, Any]
) -> Iterator[Failing]:
    """Run a step whose parameters are wrong; then a right one."""
    model, lane = _captured(device), UpdateLane(device)
    parameters = StepParameters(key=SEQUENCES, groups={"default": arguments})
    replay = model.graphs[SEQUENCES].replay
    yield lambda: told(error, lambda: lane.run(model.plans[SEQUENCES], parameters, replay))
    model.step(lane, SEQUENCES, [3, 4])
    device.synchronize()
    lane.close()


@field_failure("vllm-ascend#6596", "vllm-ascend#6403", names=("actual_seq_lengths", "default"))
def query_lengths_of_the_unpadded_batch(device: NpuDevice) -> Iterator[Failing]:
    """The lengths of the queries end before the tokens of the padded batch do."""
    wrong = {"actual_seq_lengths": [1, 1], "actual_seq_lengths_kv": [5, 6]}
    return _steps(device, StepParameterError, wrong)


@field_failure("vllm-ascend#8107", names=("actual_seq_lengths_kv", "2", "1"))
def fewer_lengths_than_sequences(device: NpuDevice) -> Iterator[Failing]:
    """There are lengths for the requests, and none for the padding."""
    wrong = {"actual_seq_lengths": [1, 2], "actual_seq_lengths_kv": [5]}
    return _steps(device, StepParameterError, wrong)


@field_failure("sglang#22778", names=("actual_seq_lengths_kv", "above 48"))
def length_beyond_the_block_table(device: NpuDevice) -> Iterator[Failing]:
    """Draft tokens continue after the end of the table of blocks."""
    wrong = {"actual_seq_lengths": [1, 2], "actual_seq_lengths_kv": [5, 1_000]}
    return _steps(device, StepParameterError, wrong)


@field_failure("vllm-ascend#4208", "vllm-ascend#4282", names=("layers.1", "fused_infer_attention"))
def update_that_the_device_refuses(device: NpuDevice) -> Iterator[Failing]:
    """A task update of one layer fails; the replay must not wait for it forever."""
    model, lane = _captured(device), UpdateLane(device, updater="operators")

    def fails() -> object:
        with cann_sim.injected_faults("task_update:2"):
            error = told(UpdateError, lambda: model.step(lane, SEQUENCES, [7, 8]))
        assert error.layer_name == "layers.1"
        return f"{error} ({error.layer_name}, {error.operator})"

    yield fails
    device.synchronize()
    lane.close()


@field_failure("vllm-ascend#13600", "vllm-ascend#13639", names=("key 2", "update lane", "order"))
def two_update_streams_for_one_graph(device: NpuDevice) -> Iterator[Failing]:
    """A target and a draft model each have an update stream, and the second overtakes."""
    model = _captured(device)
    first, second = UpdateLane(device), UpdateLane(device)
    model.step(first, SEQUENCES, [3, 4])
    device.synchronize()
    yield lambda: told(LaneError, lambda: model.step(second, SEQUENCES, [4, 5]))
    device.synchronize()
    first.close()
    second.close()


@field_failure("vllm-ascend#7460", names=("key 2", "another graph", "for ever"))
def updates_of_another_graph_than_is_replayed(device: NpuDevice) -> Iterator[Failing]:
    """A batch is padded to one size, and the updates go to the graph of another one."""
    model, lane = PagedModel(device=device), UpdateLane(device)
    model.capture(SEQUENCES, 4)
    parameters = model.parameters(SEQUENCES, [3, 4])
    plan, other = model.plans[SEQUENCES], model.graphs[4].replay
    yield lambda: told(LaneError, lambda: lane.run(plan, parameters, other))
    device.synchronize()
    lane.close()


@field_failure("vllm-ascend#16794", "vllm#44395", names=("'key' of layer 'layers.1'", "freed"))
def cache_that_was_freed(device: NpuDevice) -> Iterator[Failing]:
    """A graph reads memory that its owner has freed, for example while the engine sleeps."""
    model, lane = _captured(device), UpdateLane(device)
    model.step(lane, SEQUENCES, [3, 4])
    device.synchronize()
    model.caches[1] = torch.zeros_like(model.caches[1])
    yield lambda: told(DeadTensorError, lambda: model.step(lane, SEQUENCES, [4, 5]))
    lane.close()


@field_failure("vllm-ascend#8370", names=("softmax_scale", "fused_infer_attention"))
def layer_with_arguments_of_another_kind(device: NpuDevice) -> Iterator[Failing]:
    """Layers of one model call attention in two ways, but are treated alike."""
    model = _captured(device)
    arguments = model.arguments(SEQUENCES, 0, [3, 4])
    arguments["softmax_scale"] = arguments.pop("scale")
    graph = device.create_graph()

    def captures() -> None:
        recording = model.recorder.recording("mixed")
        with recording, device.capture(graph, pool=model.pool):
            model.recorder.attention("layers.3", model.kind_name, arguments)

    yield lambda: told(ArgumentError, captures)


@field_failure("sglang#27371", names=("'draft.layers.0'", "not recorded"))
def draft_layer_that_was_not_recorded(device: NpuDevice) -> Iterator[Failing]:
    """The graph of a target model is planned as if it contained the layers of the draft model."""
    model = _captured(device)
    layers = [f"layers.{index}" for index in range(3)] + ["draft.layers.0"]
    yield lambda: told(
        PlanError, lambda: UpdatePlan.compile(model.recorder, SEQUENCES, layers=layers)
    )


@field_failure("sglang#27371", names=("'draft-2'", "1 input, or 3", "found 2"))
def fewer_inputs_than_launches(device: NpuDevice) -> Iterator[Failing]:
    """A graph of a draft model is updated with one input a draft step, whatever its layers are."""
    model, recorder, lane = PagedModel(device=device), Recorder(device), UpdateLane(device)
    operator = torch.ops.npu.npu_fused_infer_attention_score
    calls = [model.arguments(SEQUENCES, layer, [1, 1]) for layer in range(3)]
    for call in calls:
        operator(**call)
    graph = torch.npu.NPUGraph()  # type: ignore[attr-defined]
    with torch.npu.graph(graph, auto_dispatch_capture=True):  # type: ignore[attr-defined]
        outputs = [operator(**call)[0] for call in calls]
    draft = UpdatableGraph(recorder, "draft-2", graph, lane)
    inputs = [{"actual_seq_lengths_kv": [3, 4]}] * 2
    yield lambda: told(StepParameterError, lambda: draft.update(inputs))
    draft.update([{"actual_seq_lengths_kv": [3, 4]}])
    device.synchronize()
    assert len(outputs) == len(calls)
    draft.release()
    lane.close()


FAILURES = (
    graph_that_nobody_updates,
    layer_that_is_left_out_of_the_updates,
    query_lengths_of_the_unpadded_batch,
    fewer_lengths_than_sequences,
    length_beyond_the_block_table,
    update_that_the_device_refuses,
    two_update_streams_for_one_graph,
    updates_of_another_graph_than_is_replayed,
    cache_that_was_freed,
    layer_with_arguments_of_another_kind,
    draft_layer_that_was_not_recorded,
    fewer_inputs_than_launches,
)
