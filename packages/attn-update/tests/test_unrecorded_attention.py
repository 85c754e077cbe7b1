"""Attention that a graph would replay with the lengths of its capture is refused."""

from __future__ import annotations

import inspect
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
import torch

from attn_update import AutomaticRecording, RecordingError, UpdateLane, UpdatePlan
from npu_graph_testing.attention import PagedModel, assert_layers_equal, draw_lengths
from npu_graph_testing.attention.cases import CaseModel, find_case

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from npu_graph_runtime import NpuDevice

OPERATORS = {
    "fused_infer_attention_v1": "npu_fused_infer_attention_score",
    "fused_infer_attention_v2": "npu_fused_infer_attention_score_v2",
}


def capture(model: PagedModel, call: Callable[[], object], **given: Any) -> None:
    call()
    graph = model.device.create_graph()
    with (
        model.recorder.recording("key", graph=graph, **given),
        model.device.capture(graph, pool=model.pool),
    ):
        call()
    model.graphs["key"] = graph  # type: ignore[index]


def call_operator(model: PagedModel, **change: Any) -> torch.Tensor:
    given: dict[str, Any] = {**model.arguments(2, 0, [5, 6]), **change}
    operator = getattr(torch.ops.npu, OPERATORS[model.kind_name])
    output: torch.Tensor = operator(**given)[0]
    return output


@pytest.mark.parametrize("kind", OPERATORS)
def test_unrecorded_attention_is_refused_at_the_line_that_calls_it(
    npu_device: NpuDevice, kind: str
) -> None:
    model = PagedModel(device=npu_device, kind_name=kind)
    lines, first = inspect.getsourcelines(call_operator)
    called = first + next(i for i, line in enumerate(lines) if "operator(**given)" in line)

    with pytest.raises(RecordingError) as raised:
        capture(model, lambda: call_operator(model))

    message = str(raised.value)
    assert f"npu::{OPERATORS[kind]}, called at {__file__.rpartition('/')[2]}:{called}" in message
    assert all(name in message for name in model.step_arguments(2, [5, 6]))
    assert model.recorder.keys == ()
    npu_device.synchronize()
    model.capture(2)
    lane = UpdateLane(npu_device)
    assert_layers_equal(model.step(lane, 2, [7, 8]), model.eager(2, [7, 8]))


def test_unrecorded_attention_inside_a_custom_operator_is_refused(
    npu_device: NpuDevice, hidden: str
) -> None:
    model = PagedModel(device=npu_device)
    given = model.arguments(2, 0, [5, 6])
    tensors = [given[name] for name in ("query", "key", "value", "block_table")]
    operator = getattr(torch.ops.unrecorded_attention, hidden)
    with pytest.raises(RecordingError, match="npu_fused_infer_attention_score"):
        capture(model, lambda: operator(*tensors))


@pytest.fixture
def hidden() -> Iterator[str]:
    library: Any = torch.library.Library("unrecorded_attention", "FRAGMENT")  # type: ignore[no-untyped-call]
    library.define("hidden(Tensor query, Tensor key, Tensor value, Tensor table) -> Tensor")

    def attention(
        query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, table: torch.Tensor
    ) -> torch.Tensor:
        model_like: dict[str, Any] = {
            "query": query,
            "key": key,
            "value": value,
            "block_table": table,
            "block_size": key.shape[1],
            "input_layout": "TND",
            "num_heads": query.shape[1],
            "num_key_value_heads": key.shape[2] // query.shape[2],
            "actual_seq_lengths": [1, 2],
            "actual_seq_lengths_kv": [5, 6],
        }
        output: torch.Tensor = torch.ops.npu.npu_fused_infer_attention_score(**model_like)[0]
        return output

    library.impl("hidden", attention, "CompositeExplicitAutograd")
    yield "hidden"
    library._destroy()


def test_unrecorded_paged_attention_is_refused(npu_device: NpuDevice) -> None:
    model = CaseModel(device=npu_device, case=find_case("paged attention"))
    given = model.arguments(2, 0, model.captured_step(2))
    operator: Any = torch.ops.atb._npu_paged_attention
    lens, out = torch.tensor([1, 1], dtype=torch.int32), torch.zeros_like(given["query"])  # type: ignore[arg-type]
    graph, pool = npu_device.create_graph(), npu_device.create_memory_pool()
    with (
        pytest.raises(RecordingError, match=r"_npu_paged_attention.*\(context_lens\)"),
        model.recorder.recording(2),
        npu_device.capture(graph, pool=pool),
    ):
        operator(**{**given, "context_lens": lens, "out": out})


@pytest.mark.parametrize("outer", [False, True])
def test_attention_that_is_recorded_automatically_is_not_refused(
    npu_device: NpuDevice, outer: bool
) -> None:
    model = PagedModel(device=npu_device)
    call_operator(model)
    mode, graph = AutomaticRecording(model.recorder), npu_device.create_graph()
    recording = model.recorder.recording(2, graph=graph)
    contexts = (mode, recording) if outer else (recording, mode)
    with contexts[0], contexts[1], npu_device.capture(graph, pool=model.pool):
        model.outputs[2] = [call_operator(model)]
    model.plans[2] = plan = UpdatePlan.compile(model.recorder, 2)
    lane, random = UpdateLane(npu_device), Random(0)
    for _ in range(3):
        lengths = draw_lengths(random, 2)
        lane.run(plan, model.parameters(2, lengths))
        assert_layers_equal(model.outputs[2], model.eager(2, lengths)[:1])


def test_attention_without_lengths_on_the_host_has_nothing_to_update(
    npu_device: NpuDevice,
) -> None:
    model = PagedModel(device=npu_device)
    query = model.random(2, 4, 3, 16)
    operator = torch.ops.npu.npu_fused_infer_attention_score
    found = []

    def call() -> None:
        found.append(operator(query, query, query, num_heads=4, input_layout="BNSD", scale=0.25)[0])

    capture(model, call)
    model.graphs["key"].replay()  # type: ignore[index]
    written = found[-1].clone()
    expected = operator(query, query, query, num_heads=4, input_layout="BNSD", scale=0.25)[0]
    assert torch.equal(written.cpu(), expected.cpu())


def test_engine_that_updates_some_attention_itself_says_so(npu_device: NpuDevice) -> None:
    model = PagedModel(device=npu_device)
    capture(model, lambda: call_operator(model), allows_unrecorded=True)
    assert model.recorder.keys == ("key",)
