"""Adding up the rows of experts against float64."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch_npu

from operators.drawn_tensors import random

FLOATS = [torch.bfloat16, torch.float16, torch.float32]
TOKENS, CHOICES, WIDTH, EXPERTS = 6, 3, 16, 4


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("mode", [0, 2])
@pytest.mark.parametrize("given", ["scales", "skips", "all"])
def test_finalize_sums_the_choices(
    conformance: Any, dtype: torch.dtype, mode: int, given: str
) -> None:
    rows = random(TOKENS * CHOICES, WIDTH, seed=0, dtype=dtype)
    places = torch.randperm(TOKENS * CHOICES, generator=torch.Generator().manual_seed(1)).int()
    places[3] = -1
    scales = random(TOKENS, CHOICES, seed=2, dtype=dtype)
    skip1, skip2 = (random(TOKENS, WIDTH, seed=s, dtype=dtype) for s in (3, 4))
    bias = random(EXPERTS, WIDTH, seed=5, dtype=dtype)
    experts = torch.randint(0, EXPERTS, (TOKENS, CHOICES)).int()
    has_skips, has_bias = given != "scales", given == "all"
    result = torch_npu.npu_moe_finalize_routing(
        rows.to("npu"),
        skip1.to("npu") if has_skips else None,
        skip2.to("npu") if has_skips else None,
        bias.to("npu") if has_bias else None,
        scales.to("npu"),
        places.to("npu"),
        experts.to("npu") if has_bias else None,
        mode,
    ).cpu()
    expected = (skip1.double() + skip2.double()) if has_skips else torch.zeros(TOKENS, WIDTH)
    expected = expected.double().clone()
    for token in range(TOKENS):
        for choice in range(CHOICES):
            number = token * CHOICES + choice if mode == 2 else choice * TOKENS + token
            place = int(places[number])
            row = rows[place].double() if place >= 0 else torch.zeros(WIDTH).double()
            if has_bias:
                row = row + bias[experts[token, choice]].double()
            expected[token] += scales[token, choice].double() * row
    conformance.close(result, expected, magnitude=torch.tensor(12.0).double())


def test_finalize_with_a_capacity_reads_a_table() -> None:
    rows = random(EXPERTS, 5, WIDTH, seed=0, dtype=torch.float32)
    places = torch.randperm(TOKENS * 2, generator=torch.Generator().manual_seed(1)).int()
    ones = torch.ones(TOKENS, 2)
    result = torch_npu.npu_moe_finalize_routing(
        rows.to("npu"), None, None, None, ones.to("npu"), places.to("npu"), None, 3
    ).cpu()
    flat = rows.view(-1, WIDTH)
    assert torch.allclose(result, flat[places.view(TOKENS, 2).long()].sum(1))


def test_finalize_refuses_a_second_skip_alone() -> None:
    rows, skip = torch.ones(4, 8).to("npu"), torch.ones(4, 8).to("npu")
    places = torch.arange(4).int().to("npu")
    with pytest.raises(RuntimeError, match="expected skip1 beside it"):
        torch_npu.npu_moe_finalize_routing(
            rows, None, skip, None, torch.ones(4, 1).to("npu"), places, None, 0
        )
