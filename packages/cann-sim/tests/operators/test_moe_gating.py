"""The choice of experts against float64."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch_npu
from hypothesis import given, settings
from hypothesis import strategies as st

FLOATS = [torch.bfloat16, torch.float16, torch.float32]


def distinct(rows: int, experts: int, dtype: torch.dtype, seed: int = 0) -> torch.Tensor:
    """Return logits whose order no rounding changes, in rows of their own order."""
    steps = torch.linspace(-3, 3, experts)
    generator = torch.Generator().manual_seed(seed)
    shuffled = [steps[torch.randperm(experts, generator=generator)] for _ in range(rows)]
    return (torch.stack(shuffled) if rows else torch.empty(0, experts)).to(dtype)


@given(
    rows=st.integers(1, 5),
    experts=st.integers(1, 40),
    share=st.floats(0, 1),
    dtype=st.sampled_from(FLOATS),
    masked=st.booleans(),
)
@settings(max_examples=20)
def test_gating_softmax_chooses_the_largest(
    conformance: Any, rows: int, experts: int, share: float, dtype: torch.dtype, masked: bool
) -> None:
    k = max(1, round(share * experts))
    x = distinct(rows, experts, dtype)
    finished = (torch.arange(rows) % 2 == 0) if masked else None
    weights, chosen, order = torch_npu.npu_moe_gating_top_k_softmax(
        x.to("npu"), None if finished is None else finished.to("npu"), k
    )
    values, places = x.double().softmax(-1).topk(k, -1)
    conformance.close(weights.cpu(), values, ulps=16)
    if finished is not None:
        places = places.masked_fill(finished[:, None], experts)
    assert torch.equal(chosen.cpu(), places.int())
    assert torch.equal(order.cpu(), torch.arange(rows * k).view(k, rows).T.int())


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("renorm", [0, 1])
def test_gating_softmax_v2_normalises_before_or_after(
    conformance: Any, dtype: torch.dtype, renorm: int
) -> None:
    x = distinct(6, 32, dtype).view(2, 3, 32)
    weights, chosen, softmax = torch_npu.npu_moe_gating_top_k_softmax_v2(
        x.to("npu"), k=4, renorm=renorm, output_softmax=True
    )
    whole = x.double().softmax(-1)
    values, places = (whole if renorm == 0 else x.double()).topk(4, -1)
    conformance.close(weights.cpu(), values if renorm == 0 else values.softmax(-1), ulps=16)
    assert torch.equal(chosen.cpu(), places.int())
    if renorm == 0:
        conformance.close(softmax.cpu(), whole, ulps=16)


def test_gating_among_equals_takes_the_first() -> None:
    _, chosen, _ = torch_npu.npu_moe_gating_top_k_softmax(torch.zeros(2, 8).to("npu"), None, 3)
    assert chosen.cpu().tolist() == [[0, 1, 2]] * 2


def gate(
    x: torch.Tensor,
    bias: torch.Tensor | None,
    k: int,
    groups: tuple[int, int, int],
    norm: int,
    factor: float,
    *,
    renorm: int = 0,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Grouped choice in float64; groups are (chosen, all, mode)."""
    chosen, count, mode = groups
    normal = x.double().sigmoid() if norm == 1 else x.double().softmax(-1)
    biased = normal if bias is None else normal + bias.double()
    grouped = biased.view(*biased.shape[:-1], count, -1)
    strength = grouped.amax(-1) if mode == 0 else grouped.topk(2, -1).values.sum(-1)
    kept = torch.zeros_like(strength, dtype=torch.bool).scatter(
        -1, strength.topk(chosen, -1).indices, value=True
    )
    places = grouped.masked_fill(~kept.unsqueeze(-1), -torch.inf).flatten(-2).topk(k, -1).indices
    values = normal.gather(-1, places)
    if norm == 1 or renorm:
        values = values / (values.sum(-1, keepdim=True) + 1e-20)
    return values * factor, places


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("norm", [0, 1])
@pytest.mark.parametrize("groups", [(1, 1, 0), (4, 8, 1), (3, 8, 0)])
@pytest.mark.parametrize("biased", [True, False])
def test_gating_top_k_chooses_within_the_best_groups(
    conformance: Any, dtype: torch.dtype, norm: int, groups: tuple[int, int, int], biased: bool
) -> None:
    x = distinct(5, 64, dtype)
    bias = distinct(1, 64, dtype, seed=7)[0] if biased else None
    # What float32 and float64 may order differently is left out by the bias, whose steps are large.
    weights, chosen, normal = torch_npu.npu_moe_gating_top_k(
        x.to("npu"),
        6,
        bias=None if bias is None else bias.to("npu"),
        k_group=groups[0],
        group_count=groups[1],
        group_select_mode=groups[2],
        norm_type=norm,
        out_flag=True,
        routed_scaling_factor=2.5,
    )
    values, places = gate(x, bias, 6, groups, norm, 2.5)
    assert torch.equal(chosen.cpu(), places.int())
    conformance.close(weights.cpu(), values, ulps=32)
    expected = x.double().sigmoid() if norm == 1 else x.double().softmax(-1)
    conformance.close(normal.cpu(), expected, ulps=16)


@pytest.mark.parametrize("norm", [0, 1])
def test_gating_top_k_weights_add_up_to_one(conformance: Any, norm: int) -> None:
    x = distinct(5, 64, torch.float32)
    weights, chosen, _ = torch_npu.npu_moe_gating_top_k(x.to("npu"), 6, renorm=1, norm_type=norm)
    values, places = gate(x, None, 6, (1, 1, 0), norm, 1.0, renorm=1)
    assert torch.equal(chosen.cpu(), places.int())
    conformance.close(weights.cpu(), values, ulps=32)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"k": 33}, "argument 'k'"),
        ({"k_group": 9}, "argument 'kGroup'"),
        ({"group_count": 7}, "argument 'groupCount'"),
        ({"group_count": 32, "k_group": 32}, "argument 'groupCount'"),
        ({"renorm": 2}, "argument 'renorm'"),
        ({"norm_type": 2}, "argument 'normType'"),
        ({"group_select_mode": 2}, "argument 'groupSelectMode'"),
    ],
)
def test_gating_top_k_refuses(changes: dict[str, Any], message: str) -> None:
    x = torch.zeros(2, 64).to("npu")
    arguments = {"k": 6, "k_group": 4, "group_count": 8, "norm_type": 1, **changes}
    with pytest.raises(RuntimeError, match=rf"aclnnMoeGatingTopK: {message}"):
        torch_npu.npu_moe_gating_top_k(x, **arguments)


@pytest.mark.absent_in_torch_npu("2.10", reason="the operator has no input_ids")
def test_gating_looks_experts_up_by_token(conformance: Any) -> None:
    x = distinct(4, 16, torch.float32)
    table = torch.tensor([[3, 1], [5, 0], [7, 15]])
    tokens = torch.tensor([2, 0, 1, 2])
    weights, chosen, _ = torch_npu.npu_moe_gating_top_k(
        x.to("npu"), 2, input_ids=tokens.to("npu"), tid2eid=table.to("npu"), norm_type=1
    )
    places = table[tokens]
    values = x.double().sigmoid().gather(-1, places)
    assert torch.equal(chosen.cpu(), places.int())
    conformance.close(weights.cpu(), values / values.sum(-1, keepdim=True), ulps=16)
