"""Dropout, and functions of random numbers that are neither plain distributions nor sampling."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import torch_npu
from torch.nn import functional

FLOATS = [torch.bfloat16, torch.float16, torch.float32]
COUNT = 20_000


@pytest.mark.parametrize("dtype", FLOATS)
def test_dropout_keeps_its_share_and_scales_what_it_keeps(dtype: torch.dtype) -> None:
    torch_npu.npu.manual_seed(3)
    values = torch.full((COUNT,), 3.0, dtype=dtype).to("npu")
    kept = functional.dropout(values, 0.25).cpu().float()
    # Five standard deviations of the number of values kept.
    spread = 5 * math.sqrt(COUNT * 0.25 * 0.75)
    assert abs(int((kept != 0).sum()) - 0.75 * COUNT) < spread
    assert set(kept.tolist()) == {0.0, 4.0}


def test_dropout_of_equal_seeds_is_equal_and_of_others_differs() -> None:
    values = torch.ones(500).to("npu")
    drawn = []
    for seed in (1, 1, 2):
        torch_npu.npu.manual_seed(seed)
        drawn.append(functional.dropout(values, 0.5).cpu())
    assert torch.equal(drawn[0], drawn[1])
    assert not torch.equal(drawn[0], drawn[2])


def test_gradient_of_dropout_uses_the_mask_of_the_forward_pass() -> None:
    values = torch.ones(1000, device="npu", requires_grad=True)
    result = functional.dropout(values, 0.5)
    torch.autograd.backward(result.sum())
    assert values.grad is not None
    assert torch.equal(values.grad.cpu(), result.detach().cpu())


def test_dropout_keeps_what_bernoulli_of_the_same_seed_draws() -> None:
    torch_npu.npu.manual_seed(5)
    kept = functional.dropout(torch.ones(500).to("npu"), 0.5).cpu() != 0
    torch_npu.npu.manual_seed(5)
    drawn = torch.empty(500, device="npu").bernoulli_(0.5).cpu()
    assert torch.equal(kept, drawn != 0)


def test_dropout_of_nothing_is_nothing() -> None:
    assert functional.dropout(torch.ones(0, 3).to("npu"), 0.5).cpu().shape == (0, 3)


def test_random_leaky_relu_keeps_its_slopes_within_the_bounds() -> None:
    torch_npu.npu.manual_seed(5)
    values = torch.linspace(-2, -1, 400)
    for inplace in (False, True):
        slopes = functional.rrelu(values.to("npu"), 0.1, 0.3, True, inplace).cpu() / values
        assert slopes.min() >= 0.1 - 1e-6
        assert slopes.max() <= 0.3 + 1e-6
        assert slopes.std() > 0.03
    fixed = functional.rrelu(values.to("npu"), 0.1, 0.3).cpu()
    torch.testing.assert_close(fixed, values * 0.2)


def test_exponential_values_have_the_mean_and_share_of_their_rate(conformance: Any) -> None:
    torch_npu.npu.manual_seed(7)
    values = torch_npu.npu_sim_exponential_(torch.zeros(COUNT).to("npu"), 2.0).cpu()
    assert values.min() >= 0
    assert abs(values.mean().item() - 0.5) < 5 * 0.5 / math.sqrt(COUNT)
    above = (values > 0.5).double().mean().item()
    assert abs(above - math.exp(-1)) < 5 * math.sqrt(0.25 / COUNT)


def kept_bits(mask: torch.Tensor) -> int:
    """Count the set bits of the first COUNT of a mask of bytes."""
    bits = (mask.cpu().unsqueeze(-1) >> torch.arange(8)) & 1
    return int(bits.flatten()[:COUNT].sum())


def test_generated_mask_keeps_its_share_of_bits() -> None:
    torch_npu.npu.manual_seed(3)
    generate: Any = torch.ops.npu.npu_dropout_gen_mask
    masks = [generate([COUNT // 4, 4], 0.25, device="npu").cpu() for _ in range(2)]
    assert masks[0].numel() * 8 >= COUNT
    for mask in masks:
        assert abs(kept_bits(mask) - 0.75 * COUNT) < 5 * math.sqrt(COUNT * 0.25 * 0.75)
    assert not torch.equal(masks[0], masks[1])


def test_captured_dropout_draws_another_mask_in_every_replay() -> None:
    values = torch.ones(COUNT).to("npu")
    graph = torch_npu.npu.NPUGraph()
    with torch_npu.npu.graph(graph):
        result, _ = torch.native_dropout(values, 0.25, train=True)
    drawn = []
    for _ in range(2):
        graph.replay()
        torch_npu.npu.synchronize()
        drawn.append(result.cpu())
        kept = int((drawn[-1] != 0).sum())
        assert abs(kept - 0.75 * COUNT) < 5 * math.sqrt(COUNT * 0.25 * 0.75)
    assert not torch.equal(drawn[0], drawn[1])
