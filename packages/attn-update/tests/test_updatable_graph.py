"""Graphs that torch_npu recorded itself, updated on a lane, on simulated CANN."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

import pytest
import torch

import cann_sim
from attn_update import (
    ArgumentError,
    Recorder,
    RecordingError,
    StepParameterError,
    UnknownNameError,
    UpdatableGraph,
    UpdateLane,
)
from npu_graph_testing.attention import PagedModel, assert_layers_equal, draw_lengths
from npu_graph_testing.attention.cases import CaseModel, find_case

if TYPE_CHECKING:
    from attn_update import UpdaterChoice
    from conftest import CaptureDispatched
    from npu_graph_runtime import NpuDevice

KINDS = ("fused_infer_attention_v1", "fused_infer_attention_v2")


def npu() -> Any:
    return vars(torch)["npu"]


@pytest.mark.parametrize("kind", KINDS)
def test_steps_of_a_dispatched_graph_equal_the_eager_operator(
    npu_device: NpuDevice,
    capture_dispatched: CaptureDispatched,
    kind: str,
    any_updater: UpdaterChoice,
) -> None:
    random = Random(6)
    model = PagedModel(device=npu_device, kind_name=kind)
    model.eager(2, [1, 1])
    lane = UpdateLane(npu_device, updater=any_updater)
    updatable = UpdatableGraph(model.recorder, 2, capture_dispatched(model, 2), lane)
    for _ in range(15):
        before = cann_sim.counters().synchronisations
        burst = []
        for _ in range(4):
            lengths = draw_lengths(random, 2)
            updatable.update(cpu_update_input=[model.lengths(2, lengths)])
            burst.append((lengths, [out.clone() for out in model.outputs[2]]))
        assert cann_sim.counters().synchronisations == before
        for lengths, outputs in burst:
            assert_layers_equal(outputs, model.eager(2, lengths))


def test_layers_take_inputs_of_their_own_and_keep_what_is_left_out(
    npu_device: NpuDevice, capture_dispatched: CaptureDispatched
) -> None:
    model = PagedModel(device=npu_device)
    model.eager(2, [1, 1])
    graph = capture_dispatched(model, 2)
    updatable = UpdatableGraph(model.recorder, 2, graph, UpdateLane(npu_device))
    updatable.update([model.lengths(2, [20, 21])])
    assert_layers_equal(model.outputs[2], model.eager(2, [20, 21]))
    lengths = [[3, 4], [30, 1], [17, 40]]
    updatable.update([{"actual_seq_lengths_kv": each} for each in lengths])
    for layer, each in enumerate(lengths):
        assert_layers_equal([model.outputs[2][layer]], [model.eager(2, each)[layer]])
    updatable.update([{}, {"actual_seq_lengths_kv": [9, 9]}, {}])
    expected = [
        model.eager(2, each)[layer] for layer, each in enumerate([[3, 4], [9, 9], [17, 40]])
    ]
    assert_layers_equal(model.outputs[2], expected)
    updatable.update([{"actual_seq_lengths_kv": [8, 7]}])
    assert_layers_equal(model.outputs[2], model.eager(2, [8, 7]))


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ([], "expected 1 input"),
        ([{}, {}], "found 2"),
        ([{"actual_seq_length_kv": [1, 2]}], "did you mean 'actual_seq_lengths_kv'"),
        ([{"actual_seq_lengths_kv": [1, 2, 3]}], "actual_seq_lengths_kv"),
        ([{"actual_seq_lengths_kv": [1, -2]}], "actual_seq_lengths_kv"),
    ],
)
def test_a_wrong_input_launches_nothing_and_the_next_is_right(
    npu_device: NpuDevice,
    capture_dispatched: CaptureDispatched,
    inputs: list[dict[str, Any]],
    message: str,
) -> None:
    model = PagedModel(device=npu_device)
    model.eager(2, [1, 1])
    updatable = UpdatableGraph(
        model.recorder, 2, capture_dispatched(model, 2), UpdateLane(npu_device)
    )
    before = cann_sim.counters().replays
    with pytest.raises(StepParameterError, match=message):
        updatable.update(inputs)
    assert cann_sim.counters().replays == before
    updatable.update([model.lengths(2, [8, 7])])
    assert_layers_equal(model.outputs[2], model.eager(2, [8, 7]))


def test_a_graph_that_cannot_be_read_is_refused(
    npu_device: NpuDevice, capture_dispatched: CaptureDispatched
) -> None:
    model = PagedModel(device=npu_device)
    model.eager(2, [1, 1])
    lane = UpdateLane(npu_device)
    recorder = Recorder(npu_device)
    with pytest.raises(RecordingError, match="auto_dispatch_capture=True"):
        UpdatableGraph(recorder, 2, npu().NPUGraph(), lane)
    graph = capture_dispatched(model, 2)
    with pytest.raises(RecordingError, match=r"no kind for npu::npu_fused_infer_attention_score"):
        UpdatableGraph(recorder, 2, graph, lane, operators={})
    with pytest.raises(RecordingError, match="two layers are named 'same'"):
        UpdatableGraph(recorder, 2, graph, lane, layer_name=lambda *_: "same")
    assert recorder.keys == ()
    UpdatableGraph(recorder, 2, graph, lane)
    with pytest.raises(RecordingError, match="recorded already"):
        UpdatableGraph(recorder, 2, graph, lane)


def test_a_graph_with_a_workspace_that_is_too_small_is_refused(
    npu_device: NpuDevice, capture_dispatched: CaptureDispatched
) -> None:
    model = PagedModel(device=npu_device)
    model.eager(2, [1, 1])
    graph = capture_dispatched(model, 2)
    record = graph.graph_dispatch_mode.graph_dispatch_records[1]
    enough = record.kwargs["workspace"]
    record.kwargs["workspace"] = enough[:1]
    lane, before = UpdateLane(npu_device), cann_sim.counters().replays
    with pytest.raises(
        ArgumentError, match=r"score\.1' of key 2: expected a workspace of \d+ bytes"
    ):
        UpdatableGraph(model.recorder, 2, graph, lane)
    assert cann_sim.counters().replays == before
    assert model.recorder.keys == ()

    record.kwargs["workspace"] = enough
    updatable = UpdatableGraph(model.recorder, 2, graph, lane)
    updatable.update([model.lengths(2, [8, 7])])
    assert_layers_equal(model.outputs[2], model.eager(2, [8, 7]))


# torch_npu copies lengths deeply, in a way that torch calls deprecated.
@pytest.mark.filterwarnings("ignore:TypedStorage:UserWarning")
def test_steps_of_dispatched_paged_attention_equal_the_eager_operator(
    npu_device: NpuDevice,
) -> None:
    # torch_npu gives this operator no workspace, and its handler knows the lengths by position.
    random = Random(7)
    model = CaseModel(device=npu_device, case=find_case("paged attention"), num_layers=2)
    operator: Any = torch.ops.atb._npu_paged_attention
    model.eager(2, model.captured_step(2))

    def attention() -> list[torch.Tensor]:
        outputs = []
        for layer in range(model.num_layers):
            given = model.arguments(2, layer, {"context_lens": torch.tensor([1, 1]).int()})
            outputs.append(torch.empty_like(given["query"]))  # type: ignore[arg-type]
            operator(**given, out=outputs[-1])
        return outputs

    attention()
    graph = npu().NPUGraph()
    with npu().graph(graph, auto_dispatch_capture=True):
        outputs = attention()
    updatable = UpdatableGraph(model.recorder, 2, graph, UpdateLane(npu_device))
    for _ in range(10):
        drawn = [model.draw(random, 2) for _ in range(3)]
        found = []
        for step in drawn:
            for name, value in step.written.items():
                model.shared[2][name].copy_(value)  # type: ignore[attr-defined]
            updatable.update([{"context_lens": step.step["context_lens"]}])
            found.append([out.clone() for out in outputs])
        for step, outs in zip(drawn, found, strict=True):
            assert_layers_equal(outs, model.expected(step))


def test_target_and_draft_graphs_share_a_recorder_and_a_lane(
    npu_device: NpuDevice, capture_dispatched: CaptureDispatched
) -> None:
    random = Random(10)
    models = [PagedModel(device=npu_device, num_layers=n, seed=n) for n in (3, 1)]
    recorder, lane = Recorder(npu_device), UpdateLane(npu_device)
    updatable = {}
    for number, model in enumerate(models):
        for key in (2, 4):
            model.eager(key, [1] * key)
            graph = capture_dispatched(model, key)
            assert UpdatableGraph.has_records(graph)
            updatable[number, key] = UpdatableGraph(recorder, (number, key), graph, lane)
    for _ in range(12):
        number, key = random.choice(list(updatable))
        lengths = draw_lengths(random, key)
        updatable[number, key].update([models[number].lengths(key, lengths)])
        outputs = [out.clone() for out in models[number].outputs[key]]
        assert_layers_equal(outputs, models[number].eager(key, lengths))
    assert lane.counters.steps == 12


def test_a_released_graph_can_be_captured_again(
    npu_device: NpuDevice, capture_dispatched: CaptureDispatched
) -> None:
    model, lane = PagedModel(device=npu_device), UpdateLane(npu_device)
    model.eager(2, [1, 1])
    for _ in range(3):
        updatable = UpdatableGraph(model.recorder, 2, capture_dispatched(model, 2), lane)
        updatable.update([model.lengths(2, [8, 7])])
        assert_layers_equal(model.outputs[2], model.eager(2, [8, 7]))
        npu_device.synchronize()
        updatable.release()
        updatable.release()
        for num_inputs in (1, 3):
            with pytest.raises(UnknownNameError, match="released"):
                updatable.update([model.lengths(2, [8, 7])] * num_inputs)


def test_a_graph_without_attention_has_no_records(npu_device: NpuDevice) -> None:
    graph = npu().NPUGraph()
    value = torch.ones(4, device=npu_device.torch_device)
    with npu().graph(graph, auto_dispatch_capture=True):
        value += 1
    assert not UpdatableGraph.has_records(graph)
    assert not UpdatableGraph.has_records(npu().NPUGraph())
