"""Joining attention over parts of the keys, against attention over all of them in float64."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import torch_npu


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("parts", [1, 3])
def test_parts_join_into_the_whole(conformance: Any, dtype: torch.dtype, parts: int) -> None:
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(parts, 6, 5, generator=generator).double()
    values = torch.randn(parts, 6, 5, 16, generator=generator).double()
    lse = scores.logsumexp(-1).float()
    outputs = (scores.softmax(-1).unsqueeze(-1) * values).sum(2).to(dtype)
    result, joint = torch_npu.npu_attention_update(
        [t.to("npu") for t in lse], [t.to("npu") for t in outputs], 1
    )
    weights = lse.double().softmax(0).unsqueeze(-1)
    expected = (weights * outputs.double()).sum(0)
    conformance.close(result.cpu(), expected, ulps=32, magnitude=torch.tensor(4.0).double())
    conformance.close(
        joint.cpu(), lse.double().logsumexp(0), ulps=32, magnitude=torch.tensor(4.0).double()
    )


def test_part_without_keys_has_no_weight() -> None:
    lse = [torch.tensor([0.5, math.inf]).to("npu"), torch.tensor([math.inf, 0.25]).to("npu")]
    outputs = [torch.ones(2, 8).to("npu"), torch.full((2, 8), 3.0).to("npu")]
    result, _ = torch_npu.npu_attention_update(lse, outputs, 0)
    assert torch.equal(result.cpu(), torch.tensor([[1.0], [3.0]]).expand(2, 8))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("layout", ["SBH", "TND", "NTD"])
def test_ring_update_joins_two_parts(conformance: Any, dtype: torch.dtype, layout: str) -> None:
    lengths, heads, dim = [3, 4], 2, 64
    tokens = sum(lengths)
    generator = torch.Generator().manual_seed(1)
    scores = torch.randn(2, tokens, heads, 9, generator=generator).double()
    largest = scores.amax(-1)
    total = (scores - largest[..., None]).exp().sum(-1)
    outputs = torch.randn(2, tokens, heads, dim, generator=generator).to(dtype)
    share = torch.cat([scores[0], scores[1]], -1).softmax(-1)
    first, second = (part.sum(-1)[..., None] for part in share.chunk(2, -1))
    joined = outputs[0].double() * first + outputs[1].double() * second
    whole = torch.maximum(largest[0], largest[1])
    whole_total = ((largest - whole).exp() * total).sum(0)
    size = torch.tensor(4.0).double()

    def statistic(values: torch.Tensor) -> torch.Tensor:  # from [T, N]
        if layout == "SBH":  # one sequence
            return values.float().t()[None, ..., None].repeat(1, 1, 1, 8)
        if layout == "TND":
            return values.float()[..., None].repeat(1, 1, 8)
        parts = [part.t().flatten() for part in torch.split(values.float(), lengths)]
        return torch.cat(parts).view(tokens, heads)[..., None].repeat(1, 1, 8)

    def output(values: torch.Tensor) -> torch.Tensor:
        return values.flatten(1).unsqueeze(1) if layout == "SBH" else values

    arguments = []
    for part in range(2):
        arguments += [output(outputs[part]), statistic(largest[part]), statistic(total[part])]
    options: dict[str, Any] = {}
    if layout != "SBH":
        options = {
            "actual_seq_qlen": torch.tensor(lengths).cumsum(0).to("npu"),
            "input_layout": "TND",
            "input_softmax_layout": "TND" if layout == "TND" else "",
        }
    results = torch_npu.npu_ring_attention_update(*[a.to("npu") for a in arguments], **options)
    conformance.close(results[0].cpu(), output(joined), ulps=64, magnitude=size)
    assert torch.equal(results[1].cpu(), statistic(whole))
    conformance.close(results[2].cpu(), statistic(whole_total).double(), ulps=64, magnitude=size)
