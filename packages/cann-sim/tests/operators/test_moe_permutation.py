"""Sorting tokens by expert and back, with gradients, against the same sums in float64."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch_npu
from hypothesis import given, settings
from hypothesis import strategies as st

from operators.drawn_tensors import random

FLOATS = [torch.bfloat16, torch.float16, torch.float32]


@given(
    count=st.integers(1, 8),
    choices=st.integers(1, 4),
    dtype=st.sampled_from(FLOATS),
    index=st.sampled_from([torch.int32, torch.int64]),
)
@settings(max_examples=15)
def test_permute_and_unpermute_are_inverse(
    conformance: Any, count: int, choices: int, dtype: torch.dtype, index: torch.dtype
) -> None:
    x = random(count, 8, seed=0, dtype=dtype)
    experts = torch.randint(0, 5, (count, choices), generator=torch.Generator().manual_seed(1))
    weights = random(count, choices, seed=2, dtype=dtype)
    rows, places = torch_npu.npu_moe_token_permute(x.to("npu"), experts.to(index).to("npu"))
    order = torch.argsort(experts.flatten(), stable=True)
    assert torch.equal(rows.cpu(), x[order // choices])
    assert torch.equal(places.cpu()[order], torch.arange(count * choices).int())
    back = torch_npu.npu_moe_token_unpermute(rows, places, probs=weights.to("npu")).cpu()
    expected = x.double() * weights.double().sum(1, keepdim=True)
    # The weights of one token may cancel.
    bound = (x.double().abs() * weights.double().abs().sum(1, keepdim=True)).clamp_min(1e-3)
    conformance.close(back, expected, magnitude=bound)


def test_permute_gradients_reach_tokens_and_weights(conformance: Any) -> None:
    x = random(6, 8, seed=0, dtype=torch.float32)
    experts = torch.randint(0, 4, (6, 2), generator=torch.Generator().manual_seed(1))
    weights = random(6, 2, seed=2, dtype=torch.float32)
    own_x, own_weights = x.to("npu").requires_grad_(), weights.to("npu").requires_grad_()
    rows, places = torch_npu.npu_moe_token_permute(own_x, experts.to("npu"))
    scaled = rows * torch.arange(12).float().to("npu").unsqueeze(1)
    back = torch_npu.npu_moe_token_unpermute(scaled, places, probs=own_weights)
    gradients = torch.autograd.grad(back.pow(2).sum(), (own_x, own_weights))
    wide_x, wide_weights = x.double().requires_grad_(), weights.double().requires_grad_()
    order = torch.argsort(experts.flatten(), stable=True)
    permuted = wide_x[order // 2] * torch.arange(12).double().unsqueeze(1)
    inverse = torch.argsort(order)
    joined = (permuted[inverse].view(6, 2, 8) * wide_weights.unsqueeze(-1)).sum(1)
    references = torch.autograd.grad(joined.pow(2).sum(), (wide_x, wide_weights))
    for device, expected in zip(gradients, references, strict=True):
        conformance.close(device.cpu(), expected, ulps=64, magnitude=expected.abs().max())


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("weighted", [True, False])
def test_routing_map_permutes_expert_by_expert(
    conformance: Any, dtype: torch.dtype, weighted: bool
) -> None:
    count, experts = 6, 4
    chosen = torch.stack(
        [torch.randperm(experts, generator=torch.Generator().manual_seed(i))[:2] for i in range(6)]
    )
    routing = torch.zeros(count, experts, dtype=torch.bool).scatter(1, chosen, value=True)
    x = random(count, 8, seed=0, dtype=dtype)
    weights = random(count, experts, seed=2, dtype=dtype)
    rows, own, places = torch_npu.npu_moe_token_permute_with_routing_map(
        x.to("npu"),
        routing.to("npu"),
        probs=weights.to("npu") if weighted else None,
        num_out_tokens=count * 2,
    )
    tokens = torch.tensor([t for e in range(experts) for t in range(count) if routing[t, e]])
    assert torch.equal(rows.cpu(), x[tokens])
    if weighted:
        assert torch.equal(own.cpu(), weights.T[routing.T])
    back = torch_npu.npu_moe_token_unpermute_with_routing_map(
        rows,
        places,
        [count, 8],
        probs=weights.to("npu") if weighted else None,
        routing_map=routing.to("npu"),
    ).cpu()
    share = (weights.double() * routing).sum(1, keepdim=True) if weighted else 2.0
    conformance.close(back, x.double() * share, magnitude=torch.tensor(12.0).double())


def test_routing_map_gradients_reach_tokens_and_weights(conformance: Any) -> None:
    routing = torch.tensor([[1, 0, 1], [0, 1, 1], [0, 0, 1], [1, 1, 1]], dtype=torch.bool)
    x = random(4, 8, seed=0, dtype=torch.float32)
    weights = random(4, 3, seed=2, dtype=torch.float32)
    own_x, own_weights = x.to("npu").requires_grad_(), weights.to("npu").requires_grad_()
    rows, chosen, _ = torch_npu.npu_moe_token_permute_with_routing_map(
        own_x, routing.to("npu"), probs=own_weights, num_out_tokens=8
    )
    gradients = torch.autograd.grad(
        [rows, chosen], [own_x, own_weights], [2 * rows.detach(), 3 * chosen.detach()]
    )
    counts = routing.sum(1, keepdim=True)
    references = (2 * counts * x.double(), 3 * weights.double() * routing)
    for gradient, expected in zip(gradients, references, strict=True):
        conformance.close(gradient.cpu(), expected)


def test_routing_map_with_padding_fills_each_expert() -> None:
    routing = torch.tensor([[1, 0], [1, 1], [1, 1]], dtype=torch.bool)
    x = random(3, 4, seed=0, dtype=torch.float32)
    rows, _, tokens = torch_npu.npu_moe_token_permute_with_routing_map(
        x.to("npu"), routing.to("npu"), num_out_tokens=4, drop_and_pad=True
    )
    assert tokens.cpu().tolist() == [0, 1, 1, 2]
    assert torch.equal(rows.cpu(), x[[0, 1, 1, 2]])


def test_permute_refuses_rows_without_choices() -> None:
    x, experts = torch.ones(4, 8).to("npu"), torch.zeros(3, 2).long().to("npu")
    with pytest.raises(RuntimeError, match=r"aclnnMoeTokenPermute: argument 'indices'"):
        torch_npu.npu_moe_token_permute(x, experts)
