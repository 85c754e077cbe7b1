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
