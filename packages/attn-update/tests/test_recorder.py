"""The recorder runs attention eagerly outside a capture and records it inside one."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
import torch

from attn_update import (
    ArgumentError,
    Recorder,
    RecordingError,
    StepParameterError,
    UnknownNameError,
)
from attn_update.errors import CaptureError
from attn_update.kinds import FIA_V1, FusedInferAttention
from npu_graph_testing.attention import PagedModel

if TYPE_CHECKING:
    from conftest import Model
    from npu_graph_runtime import FakeDevice, NpuDevice
    from npu_graph_testing.attention import AttentionOperators


def test_attention_outside_a_capture_runs_at_once(model: Model, device: FakeDevice) -> None:
    out, _ = model.recorder.attention("layer.0", "attention", model.arguments(2, 0, [3, 5]))
    device.synchronize()

    assert torch.equal(out, model.expected(2, [3, 5])[0])
    assert model.recorder.keys == ()


def test_attention_with_out_given_writes_into_it(model: Model, device: FakeDevice) -> None:
    given = [torch.zeros(2, 2, dtype=torch.double), torch.zeros(0)]

    out, _ = model.recorder.attention(
        "layer.0", "attention", {**model.arguments(2, 0, [3, 5]), "out": given}
    )
    device.synchronize()

    assert out is given[0]
    assert torch.equal(given[0], model.expected(2, [3, 5])[0])


def test_attention_captured_is_recorded_under_key_and_layer(model: Model) -> None:
    model.capture(2)

    records = model.recorder.records(2).records

    assert list(records) == ["layer.0", "layer.1", "layer.2"]
    assert {record.key for record in records.values()} == {2}


def test_attention_captured_with_lengths_as_tensors_records_lists(model: Model) -> None:
    arguments = model.arguments(2, 0, [1, 1])
    arguments["actual_seq_lengths_kv"] = torch.tensor([1, 1])
    graph = model.device.create_graph()

    with model.recorder.recording("key"), model.device.capture(graph, pool=model.pool):
        model.recorder.attention("layer.0", "attention", arguments)

    record = model.recorder.records("key").records["layer.0"]
    assert record.arguments["actual_seq_lengths_kv"] == [1, 1]


def refuse(model: Model, layer: str, kind: str, arguments: dict[str, object]) -> int:
    """Capture one launch, which must fail, and return the content of the graph."""
    graph: Any = model.device.create_graph()
    given = model.arguments(2, 0, [1, 1])
    with model.recorder.recording("key"), model.device.capture(graph, pool=model.pool):
        model.recorder.attention("taken", "attention", given)
        before = len(graph._nodes)
        with pytest.raises(Exception) as caught:
            model.recorder.attention(layer, kind, arguments)
        model.outputs["error"] = []
        assert len(graph._nodes) == before, "something was captured before the refusal"
    assert isinstance(caught.value, ValueError | LookupError | RuntimeError)
    raise caught.value


@pytest.mark.parametrize(
    ("layer", "kind", "change", "error", "reason"),
    [
        ("new", "atention", {}, UnknownNameError, "did you mean 'attention'"),
        ("taken", "attention", {}, RecordingError, "recorded already"),
        ("new", "attention", {"block_tabel": None}, ArgumentError, "did you mean 'block_table'"),
        ("new", "attention", {"workspace": None}, ArgumentError, "allocated by the recorder"),
        ("new", "attention", {"key": None}, ArgumentError, "'key' of attention: expected a tensor"),
        ("new", "attention", {"actual_seq_lengths": [1, 3]}, StepParameterError, "must be 2"),
        ("new", "attention", {"actual_seq_lengths_kv": [1, 13]}, StepParameterError, "above 12"),
    ],
)
def test_attention_captured_wrongly_is_refused_before_any_launch(
    model: Model,
    layer: str,
    kind: str,
    change: dict[str, object],
    error: type[Exception],
    reason: str,
) -> None:
    with pytest.raises(error, match=reason):
        refuse(model, layer, kind, {**model.arguments(2, 0, [1, 1]), **change})


def test_attention_captured_outside_recording_is_refused(model: Model) -> None:
    graph: Any = model.device.create_graph()
    arguments = model.arguments(2, 0, [1, 1])

    with (
        model.device.capture(graph, pool=model.pool),
        pytest.raises(RecordingError, match="no recording is under way"),
    ):
        model.recorder.attention("layer.0", "attention", arguments)

    assert graph._nodes == []


def test_attention_of_an_operator_nobody_registered_names_the_remedy(
    device: FakeDevice,
) -> None:
    kind = FusedInferAttention(family=replace(FIA_V1, functional="a::b"))
    recorder = Recorder(device, {"missing": kind})

    with pytest.raises(UnknownNameError, match="import the library that registers it"):
        recorder.attention("layer.0", "missing", {})


def test_attention_failing_inside_its_task_group_closes_the_group(
    model: Model, device: FakeDevice, operators: AttentionOperators
) -> None:
    graph, arguments = device.create_graph(), model.arguments(2, 0, [1, 1])
    operators.failing = {0: RuntimeError("injected")}

    with (
        pytest.raises(CaptureError, match=r"layer 'layer\.0'.*attention\.out.*injected") as caught,
        model.recorder.recording(2),
        device.capture(graph, pool=model.pool),
    ):
        model.recorder.attention("layer.0", "attention", arguments)

    assert caught.value.layer_name == "layer.0"
    assert "closing the task group failed" not in str(caught.value)
    assert model.recorder.keys == ()
    model.capture(2)


def test_recording_of_a_recorded_key_is_refused(model: Model) -> None:
    model.capture(2)

    with pytest.raises(RecordingError, match="release it first"), model.recorder.recording(2):
        pass


def test_recording_inside_a_recording_is_refused(model: Model) -> None:
    with (
        model.recorder.recording(1),
        pytest.raises(RecordingError, match="under way"),
        model.recorder.recording(2),
    ):
        pass


def test_release_of_a_key_allows_to_capture_it_again(model: Model) -> None:
    model.capture(2)

    model.recorder.release(2)

    with pytest.raises(UnknownNameError, match="never recorded, or released"):
        model.recorder.records(2)
    model.capture(2)


def test_workspace_of_several_keys_largest_first_is_one_buffer(model: Model) -> None:
    model.capture(4)
    model.capture(2)

    assert model.recorder.workspace.num_buffers == 1
    assert model.recorder.workspace.allocated_bytes == 4 * 8


def test_workspace_after_a_warm_up_of_the_largest_is_one_buffer(model: Model) -> None:
    with model.recorder.recording("warm-up"):
        model.recorder.attention("layer.0", "attention", model.arguments(4, 0, [1] * 4))

    model.capture(2)
    model.capture(4)

    assert model.recorder.workspace.num_buffers == 1


def test_workspace_of_the_last_released_key_is_let_go(model: Model) -> None:
    model.capture(4)
    model.capture(2)

    model.recorder.release(4)
    assert model.recorder.workspace.num_buffers == 1
    model.recorder.close()

    assert model.recorder.workspace.num_buffers == 0


def test_record_does_not_keep_a_cache_alive(npu_device: NpuDevice) -> None:
    model = PagedModel(device=npu_device, num_layers=1)
    model.capture(2)

    model.caches.clear()

    assert model.recorder.records(2).watch.dead == ["'key' of layer 'layers.0'"]


@pytest.mark.parametrize(
    ("watch_inputs", "dead"), [(False, []), (True, ["'query' of layer 'layers.0'"])]
)
def test_record_of_an_input_that_was_freed_is_seen_where_inputs_are_watched(
    npu_device: NpuDevice, watch_inputs: bool, dead: list[str]
) -> None:
    model = PagedModel(device=npu_device, num_layers=1)
    model.recorder = Recorder(npu_device, watch_inputs=watch_inputs)
    model.capture(2)

    del model.inputs[2]["query"]

    assert model.recorder.records(2).watch.dead == dead


def test_layers_that_wait_are_not_known_of_a_device_without_addresses(model: Model) -> None:
    assert model.recorder.layers_waiting("waits for the event at 0x7f00") == ()
