"""Automatic recording on simulated CANN: a model that calls torch_npu's operator, unchanged."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

import pytest
import torch

from attn_update import (
    AutomaticRecording,
    RecordingError,
    StepParameterError,
    StepParameters,
    UnknownNameError,
    UpdateLane,
    UpdatePlan,
)
from attn_update.kinds import default_kinds
from attn_update.recording.recorder import Recorder
from npu_graph_testing.attention import PagedModel, assert_layers_equal, draw_lengths

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from npu_graph_runtime import NpuDevice

OPERATORS = {
    "fused_infer_attention_v1": "npu_fused_infer_attention_score",
    "fused_infer_attention_v2": "npu_fused_infer_attention_score_v2",
}


def call_operator(model: PagedModel, key: int, lengths: list[int]) -> list[torch.Tensor]:
    """Call attention as a model does that knows nothing of this package."""
    operator = getattr(torch.ops.npu, OPERATORS[model.kind_name])
    outputs = []
    for layer in range(model.num_layers):
        given: dict[str, Any] = model.arguments(key, layer, lengths)
        positional = [given.pop(name) for name in ("query", "key", "value")]
        outputs.append(operator(*positional, **given)[0])
    return outputs


def capture(model: PagedModel, key: int, mode: AutomaticRecording) -> UpdatePlan:
    model.graphs[key] = graph = model.device.create_graph()
    with model.recorder.recording(key), mode:
        call_operator(model, key, [1] * key)
        with model.device.capture(graph, pool=model.pool):
            model.outputs[key] = call_operator(model, key, [1] * key)
    model.plans[key] = UpdatePlan.compile(model.recorder, key)
    return model.plans[key]


@pytest.mark.parametrize("kind", OPERATORS)
def test_automatically_recorded_steps_equal_the_eager_operator(
    npu_device: NpuDevice, kind: str
) -> None:
    random = Random(5)
    model = PagedModel(device=npu_device, kind_name=kind)
    mode = AutomaticRecording(model.recorder)
    for key in (4, 2):
        plan = capture(model, key, mode)
        names = [update.layer_name for update in plan.updates]
        assert names == [f"{OPERATORS[kind]}.{layer}" for layer in range(3)]
    lane = UpdateLane(npu_device)
    for _ in range(20):
        key = random.choice([2, 4])
        lengths = draw_lengths(random, key)
        outputs = model.step(lane, key, lengths)
        assert_layers_equal(outputs, call_operator(model, key, lengths))


def test_layer_names_and_groups_are_the_callers(npu_device: NpuDevice) -> None:
    model = PagedModel(device=npu_device, num_layers=2)
    mode = AutomaticRecording(
        model.recorder,
        layer_name=lambda operator, position: f"{operator}@{position}",
        group=lambda name: "even" if name.endswith("0") else "odd",
    )
    plan = capture(model, 2, mode)
    operator = "npu::npu_fused_infer_attention_score"
    assert [update.layer_name for update in plan.updates] == [f"{operator}@0", f"{operator}@1"]
    lane = UpdateLane(npu_device)
    groups = {"even": model.lengths(2, [5, 6]), "odd": model.lengths(2, [30, 2])}
    with pytest.raises(StepParameterError, match="even"):
        lane.run(plan, model.parameters(2, [5, 6]), model.graphs[2].replay)
    parameters = StepParameters(key=2, groups={name: dict(groups[name]) for name in groups})
    lane.run(plan, parameters, model.graphs[2].replay)
    assert_layers_equal(model.outputs[2][:1], model.eager(2, [5, 6])[:1])
    assert_layers_equal(model.outputs[2][1:], model.eager(2, [30, 2])[1:])


def test_explicit_attention_inside_the_mode_is_recorded_once(npu_device: NpuDevice) -> None:
    model = PagedModel(device=npu_device)
    graph = npu_device.create_graph()
    with AutomaticRecording(model.recorder), model.recorder.recording(2):
        model.eager(2, [1, 1])
        with npu_device.capture(graph, pool=model.pool):
            model.eager(2, [1, 1])
    assert list(model.recorder.records(2).records) == ["layers.0", "layers.1", "layers.2"]


def test_one_name_for_two_layers_is_refused(npu_device: NpuDevice) -> None:
    model = PagedModel(device=npu_device)
    mode = AutomaticRecording(model.recorder, layer_name=lambda operator, _: operator)
    with pytest.raises(RecordingError, match="recorded already"):
        capture(model, 2, mode)
    assert model.recorder.keys == ()


def test_outside_a_recording_operators_run_untouched(npu_device: NpuDevice) -> None:
    model = PagedModel(device=npu_device)
    with AutomaticRecording(model.recorder):
        outputs = call_operator(model, 2, [5, 6])
    assert_layers_equal(outputs, model.eager(2, [5, 6]))
    assert model.recorder.keys == ()


@pytest.fixture(params=["custom_op", "implementation", "nested", "without_returns"])
def opaque_call(
    request: pytest.FixtureRequest, npu_device: NpuDevice
) -> Iterator[Callable[[PagedModel, int, list[int]], list[torch.Tensor]]]:
    """Attention hidden in a custom operator that gets the layer's number, as in engines."""
    called: dict[str, Any] = {}
    make_library: Any = torch.library.Library
    library = make_library("attn_update_tests", "FRAGMENT")

    def inside(query: torch.Tensor, layer: int) -> torch.Tensor:
        model: PagedModel = called["model"]
        given: dict[str, Any] = model.arguments(called["key"], layer, called["lengths"])
        given["query"] = query
        outputs: tuple[torch.Tensor, ...] = torch.ops.npu.npu_fused_infer_attention_score(**given)
        return outputs[0]

    name = f"attention_{request.param}"
    schema = f"{name}(Tensor query, int layer) -> Tensor"
    if request.param == "custom_op":
        own = torch.library.custom_op(f"attn_update_tests::{name}", inside, mutates_args=())
        called["own"] = own
    elif request.param == "without_returns":
        library.define(f"{name}(Tensor query, int layer, Tensor(a!) out) -> ()")

        def write(query: torch.Tensor, layer: int, out: torch.Tensor) -> None:
            out.copy_(inside(query, layer))

        library.impl(name, write, "PrivateUse1")
    else:
        library.define(schema)
        library.impl(name, inside, "PrivateUse1")
    operator = getattr(torch.ops.attn_update_tests, name)
    if request.param == "nested":
        library.define(f"outer_{schema}")
        library.impl(f"outer_{name}", operator, "CompositeExplicitAutograd")
        operator = getattr(torch.ops.attn_update_tests, f"outer_{name}")

    def call(model: PagedModel, key: int, lengths: list[int]) -> list[torch.Tensor]:
        called.update(model=model, key=key, lengths=lengths)
        model.arguments(key, 0, lengths)
        query = model.inputs[key]["query"]
        if request.param != "without_returns":
            return [operator(query, layer) for layer in range(model.num_layers)]
        outputs = [torch.empty_like(query) for _ in range(model.num_layers)]
        for layer, out in enumerate(outputs):
            operator(query, layer, out)
        return outputs

    yield call
    library._destroy()


def test_attention_inside_an_opaque_operator_is_recorded(
    npu_device: NpuDevice,
    opaque_call: Callable[[PagedModel, int, list[int]], list[torch.Tensor]],
) -> None:
    model = PagedModel(device=npu_device)
    model.graphs[2] = graph = npu_device.create_graph()
    with model.recorder.recording(2), AutomaticRecording(model.recorder):
        opaque_call(model, 2, [1, 1])
        with npu_device.capture(graph, pool=model.pool):
            model.outputs[2] = opaque_call(model, 2, [1, 1])
    plan = model.plans[2] = UpdatePlan.compile(model.recorder, 2)
    assert [update.layer_name for update in plan.updates] == [
        f"npu_fused_infer_attention_score.{layer}" for layer in range(3)
    ]
    lane = UpdateLane(npu_device)
    for lengths in ([7, 30], [8, 31], [48, 1]):
        assert_layers_equal(model.step(lane, 2, lengths), model.eager(2, lengths))


def test_an_operator_with_a_kind_of_another_is_refused(npu_device: NpuDevice) -> None:
    recorder = Recorder(npu_device, default_kinds())
    operator = "npu::npu_fused_infer_attention_score"
    with pytest.raises(RecordingError, match="is for npu::npu_fused_infer_attention_score_v2"):
        AutomaticRecording(recorder, operators={operator: "fused_infer_attention_v2"})
    with pytest.raises(UnknownNameError, match="fused_infer_attention_v1"):
        AutomaticRecording(recorder, operators={operator: "fused_infer_attention"})
