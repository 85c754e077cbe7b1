"""Cutting distributions down, row by row in plain Python."""

from __future__ import annotations

import pytest
import torch
import torch_npu


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("given", ["k", "p", "both"])
def test_only_the_largest_stay(dtype: torch.dtype, given: str) -> None:
    generator = torch.Generator().manual_seed(0)
    steps = torch.linspace(-4, 4, 40)
    rows = [steps[torch.randperm(40, generator=generator)] for _ in range(5)]
    logits = torch.stack(rows).to(dtype)
    k = torch.tensor([1, 5, 40, 17, 3]).int()
    p = torch.tensor([0.3, 0.999, 0.5, 0.05, 0.9]).to(dtype)
    result = torch_npu.npu_top_k_top_p(
        logits.to("npu"),
        p.to("npu") if given != "k" else None,
        k.to("npu") if given != "p" else None,
    ).cpu()
    for row in range(5):
        order = logits[row].double().argsort(descending=True).tolist()
        kept = order[: int(k[row])] if given != "p" else order
        if given != "k":
            shares = logits[row, kept].double().softmax(0)
            # An element goes where what is at most as large as it has no more than 1 - p.
            rest = 1 - float(p[row])
            tail = shares.flip(0).cumsum(0).flip(0)
            kept = [e for i, e in enumerate(kept) if i == 0 or float(tail[i]) > rest]
        hidden = torch.ones(40, dtype=torch.bool)
        hidden[kept] = False
        assert torch.equal(result[row], logits[row].masked_fill(hidden, -torch.inf))
