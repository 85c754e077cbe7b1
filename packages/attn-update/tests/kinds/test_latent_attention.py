"""Latent attention against the operator itself, called with heads that the test pads."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

import pytest
import torch

import cann_sim
from attn_update import ArgumentError, StepParameterError
from attn_update.kinds.fused_infer_attention import FIA_V2
from attn_update.kinds.latent_attention import LatentAttention, padded_heads
from npu_graph_testing.attention.cases import CaseModel, all_cases, all_kinds

if TYPE_CHECKING:
    from npu_graph_runtime import NpuDevice

CASES = {
    case.name: case
    for case in all_cases()
    if case.kind_name in {"latent_attention_v1", "latent_attention_v2"}
}
QUERY_HEADS = {"TND": 1, "BNSD": 1, "BSND": 2}
OUTPUT_HEADS = {"TND": 1, "BNSD": 1, "BSND": 2, "NTD": 0, "NBSD": 0}


@pytest.mark.parametrize(("heads", "padded"), [(1, 1), (2, 2), (3, 4), (20, 32), (96, 128)])
def test_padded_heads_are_the_next_power_of_two(heads: int, padded: int) -> None:
    assert padded_heads(heads) == padded


def test_scales_of_queries_are_the_graphs_own_as_the_queries_are(npu_device: NpuDevice) -> None:
    case = CASES["latent_attention_v2 int8"]
    model = CaseModel(device=npu_device, case=case, kinds=all_kinds(), num_layers=1)
    given = model.arguments(2, 0, model.captured_step(2))
    assert LatentAttention(family=FIA_V2).persistent_arguments(given) == {
        "key",
        "value",
        "key_rope",
        "block_table",
        "dequant_scale_key",
        "dequant_scale_value",
    }


@pytest.mark.parametrize("name", CASES)
def test_latent_attention_equals_the_operator_on_padded_heads(
    npu_device: NpuDevice, name: str
) -> None:
    model = CaseModel(device=npu_device, case=CASES[name], kinds=all_kinds(), num_layers=1)
    key = model.case.keys[0]
    given: dict[str, Any] = model.arguments(key, 0, model.captured_step(key))
    step = model.case.draw(Random(1), model, key)
    given = {**model.arguments(key, 0, step)}
    found = model.recorder.attention("layers.0", model.kind_name, given)[0]

    is_v1 = model.kind_name.endswith("v1")
    query_layout, _, output_layout = given["input_layout"].partition("_")
    count = "num_heads" if is_v1 else "num_query_heads"
    heads = given[count]
    given[count] = padded_heads(heads)
    for part in ("query", "query_rope", "dequant_scale_query"):
        if part not in given:
            continue
        tensor = given[part]
        shape = list(tensor.shape)
        shape[QUERY_HEADS[query_layout]] = padded_heads(heads) - heads
        given[part] = torch.cat([tensor, tensor.new_zeros(shape)], QUERY_HEADS[query_layout])
    operators: Any = torch.ops.npu
    suffix = "" if is_v1 else "_v2"
    operator = getattr(operators, f"npu_fused_infer_attention_score{suffix}")
    expected = operator(given.pop("query"), given.pop("key"), given.pop("value"), **given)[0]
    expected = expected.narrow(OUTPUT_HEADS[output_layout or query_layout], 0, heads)
    assert found.shape == expected.shape
    assert torch.equal(found.cpu(), expected.cpu())


@pytest.mark.parametrize(
    ("change", "error", "reason"),
    [
        ({"num_heads": 4}, ArgumentError, "expected 4 heads in 'query'.*found 3 in layout TND"),
        ({"num_heads": 0}, ArgumentError, "expected 1 to 128 query heads as 'num_heads', found 0"),
        ({"num_heads": 129}, ArgumentError, "found 129"),
        ({"key_rope": None}, ArgumentError, "'key_rope'.*expected a tensor"),
        ({"input_layout": "BSH"}, ArgumentError, "a layout whose heads are a dimension"),
        ({"out": []}, ArgumentError, "3 heads are padded to 4"),
        ({"actual_seq_lengths": [1, 1]}, StepParameterError, "must be 2"),
        ({"num_head": 3}, ArgumentError, "did you mean 'num_heads'"),
    ],
)
def test_latent_attention_called_wrongly_is_refused_before_any_launch(
    npu_device: NpuDevice, change: dict[str, Any], error: type[Exception], reason: str
) -> None:
    case = CASES["latent_attention_v1 TND padded"]
    model = CaseModel(device=npu_device, case=case, kinds=all_kinds(), num_layers=1)
    given = {**model.arguments(2, 0, model.captured_step(2)), **change}
    with (
        model.recorder.recording("refused"),
        npu_device.capture(npu_device.create_graph(), pool=npu_device.create_memory_pool()),
    ):
        before = cann_sim.counters().captured_launches
        with pytest.raises(error, match=reason):
            model.recorder.attention("layers.0", model.kind_name, given)
        assert cann_sim.counters().captured_launches == before
    model.capture(2)


def test_latent_attention_with_more_query_tokens_than_it_takes_is_refused(
    npu_device: NpuDevice,
) -> None:
    case = CASES["latent_attention_v1 TND_NTD speculative"]
    model = CaseModel(device=npu_device, case=case, kinds=all_kinds(), num_layers=1)
    model.capture(8)
    plan = model.plans[8]
    step = model.captured_step(8)
    plan.check(model.parameters(8, step))

    step["actual_seq_lengths"] = [17, 18, 19, 20, 21, 22, 23, 24]

    with pytest.raises(StepParameterError, match=r"a sequence has 17 query tokens.*at most 16"):
        plan.check(model.parameters(8, step))
