"""Copying tokens to the rows of their experts, against plain Python."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch_npu
from hypothesis import given, settings
from hypothesis import strategies as st

DTYPES = [torch.bfloat16, torch.float16, torch.float32, torch.int8]


def tokens(rows: int, width: int, dtype: torch.dtype) -> torch.Tensor:
    values = torch.randn(rows, width, generator=torch.Generator().manual_seed(1))
    return values.mul(30).to(dtype)


def choices(rows: int, k: int, experts: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, experts, (rows, k), generator=generator).int()


def sorted_choices(experts: torch.Tensor, begin: int, end: int) -> list[tuple[int, int]]:
    """Return (expert, choice) of the active choices in the order of the expanded rows."""
    flat = experts.flatten().tolist()
    return sorted((e, i) for i, e in enumerate(flat) if begin <= e < end)


@given(
    rows=st.integers(1, 9),
    k=st.integers(1, 4),
    begin=st.integers(0, 6),
    row_idx_type=st.sampled_from([0, 1]),
    count_type=st.sampled_from([0, 1, 2]),
    dtype=st.sampled_from(DTYPES),
)
@settings(max_examples=25)
def test_init_routing_v2_sorts_by_expert(
    rows: int, k: int, begin: int, row_idx_type: int, count_type: int, dtype: torch.dtype
) -> None:
    experts, end = 8, 8
    x, chosen = tokens(rows, 16, dtype), choices(rows, k, experts)
    expanded, row_idx, counts, scale = torch_npu.npu_moe_init_routing_v2(
        x.to("npu"),
        chosen.to("npu"),
        scale=torch.arange(rows).float().to("npu"),
        active_num=rows * k,
        expert_num=experts,
        expert_tokens_num_type=count_type,
        expert_tokens_num_flag=True,
        active_expert_range=[begin, end],
        row_idx_type=row_idx_type,
    )
    order = sorted_choices(chosen, begin, end)
    sources = torch.tensor([choice // k for _, choice in order], dtype=torch.long)
    assert torch.equal(expanded.cpu()[: len(order)], x[sources])
    assert torch.equal(scale.cpu()[: len(order)], sources.float())
    places = row_idx.cpu().tolist()
    if row_idx_type == 0:
        expected = [-1] * (rows * k)
        for place, (_, choice) in enumerate(order):
            expected[choice] = place
        assert places == expected
    else:
        assert places[: len(order)] == [choice for _, choice in order]
    own = [sum(e == expert for e, _ in order) for expert in range(begin, end)]
    if count_type == 0:
        assert counts.cpu().tolist() == torch.tensor(own).cumsum(0).tolist()
    elif count_type == 1:
        assert counts.cpu().tolist() == own
    else:
        used = [[begin + i, count] for i, count in enumerate(own) if count]
        assert counts.cpu().tolist()[: len(used)] == used


def test_init_routing_v2_drops_and_pads_to_the_capacity() -> None:
    rows, k, experts, capacity = 6, 2, 4, 3
    x, chosen = tokens(rows, 8, torch.float16), choices(rows, k, experts)
    expanded, row_idx, counts, _ = torch_npu.npu_moe_init_routing_v2(
        x.to("npu"),
        chosen.to("npu"),
        active_num=0,
        expert_capacity=capacity,
        expert_num=experts,
        drop_pad_mode=1,
        expert_tokens_num_type=1,
        expert_tokens_num_flag=True,
        active_expert_range=[0, experts],
        row_idx_type=0,
    )
    table = torch.zeros(experts, capacity, 8, dtype=torch.float16)
    places, used = [-1] * (rows * k), [0] * experts
    for expert, choice in sorted_choices(chosen, 0, experts):
        if used[expert] < capacity:
            places[choice] = expert * capacity + used[expert]
            table[expert, used[expert]] = x[choice // k]
        used[expert] += 1
    assert max(used) > capacity, "the case drops nothing"
    assert torch.equal(expanded.cpu(), table)
    assert row_idx.cpu().tolist() == places
    assert counts.cpu().tolist() == used


@pytest.mark.parametrize("smooth", [0, 1, 8])
@pytest.mark.parametrize("dtype", DTYPES[:3])
def test_init_routing_v2_quantises_each_row(
    conformance: Any, dtype: torch.dtype, smooth: int
) -> None:
    rows, k, experts = 7, 3, 8
    x, chosen = tokens(rows, 32, dtype), choices(rows, k, experts)
    factors = torch.rand(max(smooth, 1), 32, generator=torch.Generator().manual_seed(4)) + 0.5
    expanded, _, _, scale = torch_npu.npu_moe_init_routing_v2(
        x.to("npu"),
        chosen.to("npu"),
        scale=factors.to("npu") if smooth else None,
        active_num=rows * k,
        expert_num=experts,
        expert_tokens_num_type=1,
        expert_tokens_num_flag=True,
        quant_mode=1,
        active_expert_range=[0, experts],
        row_idx_type=1,
    )
    order = sorted_choices(chosen, 0, experts)
    values = torch.stack([x[choice // k].double() for _, choice in order])
    if smooth:
        values = values * torch.stack([factors[e % smooth].double() for e, _ in order])
    step = values.abs().amax(-1) / 127
    conformance.close(scale.cpu(), step)
    conformance.quantized(expanded.cpu(), values / step[:, None])


def test_init_routing_quant_counts_and_totals() -> None:
    rows, k, experts = 5, 2, 4
    x, chosen = tokens(rows, 16, torch.float16), choices(rows, k, experts)
    for mode in (1, 2):
        _, row_idx, counts, _, _ = torch_npu.npu_moe_init_routing_quant(
            x.to("npu"),
            chosen.to("npu"),
            active_num=0,
            expert_num=experts,
            expert_tokens_num_mode=mode,
            quant_mode=1,
        )
        own = torch.bincount(chosen.flatten(), minlength=experts)
        assert torch.equal(counts.cpu(), (own.cumsum(0) if mode == 1 else own).int())
        order = sorted_choices(chosen, 0, experts)
        assert row_idx.cpu()[[choice for _, choice in order]].tolist() == list(range(rows * k))


def test_init_routing_numbers_choices_by_column() -> None:
    rows, k = 4, 3
    x, chosen = tokens(rows, 8, torch.float32), choices(rows, k, 6)
    numbers = torch.arange(rows * k).view(k, rows).T.contiguous().int()
    expanded, row_idx, experts = torch_npu.npu_moe_init_routing(
        x.to("npu"), numbers.to("npu"), chosen.to("npu"), rows
    )
    order = torch.argsort(chosen.flatten(), stable=True)
    sources = numbers.flatten()[order].long()
    assert torch.equal(expanded.cpu(), x[sources % rows])
    assert torch.equal(experts.cpu(), chosen.flatten()[order])
    assert torch.equal(row_idx.cpu()[sources], torch.arange(rows * k).int())


def test_compute_expert_tokens_counts_up_to_each_expert() -> None:
    experts = torch.tensor([0, 0, 2, 3, 3, 3, 6]).int()
    result = torch_npu.npu_moe_compute_expert_tokens(experts.to("npu"), 5)
    assert result.cpu().tolist() == [2, 2, 3, 6, 6]


def test_re_routing_groups_by_expert() -> None:
    counts = torch.tensor([[2, 0, 1], [1, 3, 0]])
    x = torch.arange(7 * 4).view(7, 4).to(torch.int8)
    scales = torch.arange(7).float()
    rows, own, index, totals = torch_npu.npu_moe_re_routing(
        x.to("npu"), counts.to("npu"), per_token_scales=scales.to("npu")
    )
    order = [0, 1, 3, 4, 5, 6, 2]
    assert index.cpu().tolist() == order
    assert torch.equal(rows.cpu(), x[order])
    assert torch.equal(own.cpu(), scales[order])
    assert totals.cpu().tolist() == [3, 3, 1]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"quant_mode": 2}, "argument 'expandedXOut'"),
        ({"active_expert_range": [2, 9]}, "argument 'activeExpertRange'"),
        ({"row_idx_type": 2}, "argument 'rowIdxType'"),
        ({"quant_mode": 0}, "argument 'scaleOptional'|argument 'scale'"),
    ],
)
def test_init_routing_v2_refuses(changes: dict[str, Any], message: str) -> None:
    arguments = {
        "active_num": 4,
        "expert_num": 8,
        "expert_tokens_num_type": 1,
        "expert_tokens_num_flag": True,
        "active_expert_range": [0, 8],
        **changes,
    }
    x, chosen = tokens(2, 16, torch.float16).to("npu"), choices(2, 2, 8).to("npu")
    with pytest.raises(RuntimeError, match=message):
        torch_npu.npu_moe_init_routing_v2(x, chosen, **arguments)
