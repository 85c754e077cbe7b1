"""Tokens sent to the devices of their experts and collected again, against float64."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch_npu

from operators.drawn_tensors import random
from operators.operator_call import call_operator

EXPERTS, TOKENS, CHOICES, WIDTH = 4, 5, 2, 64
GROUP = "experts"

SEVERAL = """
import cann_sim
cann_sim.activate()
import torch
import torch_npu

ranks, experts, width, choices = {ranks}, {experts}, 64, {choices}
sizes = [3, 1, 4, 2][:ranks]
local, most = experts // ranks, max(sizes)
generator = torch.Generator().manual_seed(5)
tokens = [torch.randn(size, width, generator=generator).bfloat16() for size in sizes]
experts_of = [
    torch.stack([torch.randperm(experts, generator=generator)[:choices] for _ in range(size)]).int()
    for size in sizes
]
weights = [torch.rand(size, choices, generator=generator) for size in sizes]
attributes = dict(ep_world_size=ranks, moe_expert_num=experts, global_bs=most * ranks)

sent = []
for rank in range(ranks):
    torch.npu.set_device(rank)
    x, ids, own = (t.to(f"npu:{{rank}}") for t in (tokens[rank], experts_of[rank], weights[rank]))
    sent.append((ids, own, torch_npu.npu_moe_distribute_dispatch_v2(
        x, ids, "experts", ep_rank_id=rank, expert_scales=own, comm_alg="fullmesh", **attributes)))

for rank in range(ranks):
    torch.npu.set_device(rank)
    rows, _, _, counts, totals, _, row_weights = sent[rank][2]
    expected, expected_weights, expected_counts = [], [], []
    for expert in range(rank * local, (rank + 1) * local):
        before = len(expected)
        for source in range(ranks):
            for token, position in (experts_of[source] == expert).nonzero().tolist():
                expected.append(tokens[source][token])
                expected_weights.append(weights[source][token, position])
        expected_counts.append(len(expected) - before)
    count = len(expected)
    assert counts.tolist() == expected_counts, (rank, counts, expected_counts)
    assert totals[: experts].tolist()[-1] == count
    if count:
        assert torch.equal(rows[:count].cpu(), torch.stack(expected)), rank
        assert torch.equal(row_weights[:count].cpu(), torch.stack(expected_weights)), rank

results = []
for rank in range(ranks):
    torch.npu.set_device(rank)
    ids, own, (rows, _, assist, counts, totals, _, row_weights) = sent[rank]
    # Each expert multiplies its rows with its number and one.
    numbers = torch.arange(rank * local, (rank + 1) * local) + 1
    factors = torch.repeat_interleave(numbers, counts.cpu())
    changed = rows.clone()
    changed[: len(factors)] *= factors.to(f"npu:{{rank}}").unsqueeze(1).bfloat16()
    results.append(torch_npu.npu_moe_distribute_combine_v2(
        changed, ids, assist, totals, own, "experts", ep_rank_id=rank, expand_scales=row_weights,
        comm_alg="fullmesh", **attributes))
for rank in range(ranks):
    factors = (weights[rank].double() * (experts_of[rank].double() + 1))
    products = tokens[rank].double().unsqueeze(1) * (experts_of[rank].double() + 1).unsqueeze(-1)
    products = products.bfloat16().double() * weights[rank].double().unsqueeze(-1)
    error = (results[rank].cpu().double() - products.sum(1)).abs()
    assert (error <= products.sum(1).abs() * 2**-8 + 1e-6).all(), (rank, error.max())
print("all ranks agree")
"""

ALONE = """
import cann_sim
cann_sim.activate()
import torch
import torch_npu
x, ids = torch.zeros(1, 64).half().npu(), torch.zeros(1, 1).int().npu()
torch_npu.npu_moe_distribute_dispatch_v2(x, ids, "experts", 2, 1, 4)
try:
    torch.npu.synchronize()
except RuntimeError as error:
    print(error)
"""


def choices() -> torch.Tensor:
    generator = torch.Generator().manual_seed(3)
    return torch.stack(
        [torch.randperm(EXPERTS, generator=generator)[:CHOICES] for _ in range(TOKENS)]
    ).int()


def dispatch(
    x: torch.Tensor, ids: torch.Tensor, *, version: int = 2, **changes: Any
) -> tuple[torch.Tensor, ...]:
    send = {
        1: torch_npu.npu_moe_distribute_dispatch,
        2: torch_npu.npu_moe_distribute_dispatch_v2,
    }[version]
    moved = {k: v.to("npu") if isinstance(v, torch.Tensor) else v for k, v in changes.items()}
    results: tuple[torch.Tensor, ...] = send(
        x.to("npu"), ids.to("npu"), GROUP, 1, 0, EXPERTS, **moved
    )
    return results


def order(ids: torch.Tensor) -> torch.Tensor:
    """Return the choice (token * choices + position) of each row."""
    return torch.argsort(ids.flatten().long(), stable=True)


@pytest.mark.parametrize(("ranks", "several"), [(2, 2), (4, 1)])
def test_devices_of_one_process_exchange_their_tokens(
    run_forked: Any, ranks: int, several: int
) -> None:
    code = SEVERAL.format(ranks=ranks, experts=ranks * several, choices=2)
    done = run_forked(code, environment={"CANN_SIM_DEVICES": str(ranks)})
    assert "all ranks agree" in done.output, done.errors


def test_a_missing_rank_is_named(run_forked: Any) -> None:
    done = run_forked(ALONE, environment={"TASK_QUEUE_ENABLE": "0"})
    assert "rank 1 of group 'experts' waited 10 s for ranks 0" in done.output, done.errors


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("totals", [False, True])
def test_one_device_sends_to_itself(
    conformance: Any, dtype: torch.dtype, version: int, totals: bool
) -> None:
    x, ids, weights = (
        random(TOKENS, WIDTH, seed=1).to(dtype),
        choices(),
        random(TOKENS, CHOICES, seed=2),
    )
    sent = dispatch(x, ids, version=version, expert_token_nums_type=0 if totals else 1)
    rows, _, assist, counts, ends = sent[:5]
    places = order(ids)
    assert torch.equal(rows.cpu()[: len(places)], x[places // CHOICES])
    expected = torch.bincount(ids.flatten().long(), minlength=EXPERTS)
    assert torch.equal(counts.cpu(), expected.cumsum(0) if totals else expected)
    combine = {
        1: torch_npu.npu_moe_distribute_combine,
        2: torch_npu.npu_moe_distribute_combine_v2,
    }[version]
    result = combine(rows, ids.to("npu"), assist, ends, weights.to("npu"), GROUP, 1, 0, EXPERTS)
    reference = x.double() * weights.double().sum(1, keepdim=True)
    bound = x.double().abs() * weights.double().abs().sum(1, keepdim=True)
    conformance.close(result.cpu(), reference, magnitude=bound)


@pytest.mark.parametrize("smooth", [False, True])
def test_rows_are_quantised_on_the_way(conformance: Any, smooth: bool) -> None:
    x, ids = random(TOKENS, WIDTH, seed=1).bfloat16(), choices()
    scales = random(EXPERTS, WIDTH, seed=4).abs() + 0.5
    sent = dispatch(x, ids, quant_mode=2, scales=scales if smooth else None)
    places = order(ids)
    rows = x[places // CHOICES].double()
    rows = rows * scales[ids.flatten()[places].long()].double() if smooth else rows
    size = rows.abs().amax(1) / 127
    assert sent[0].dtype == torch.int8
    conformance.close(sent[1].cpu()[: len(places)], size)
    conformance.quantized(sent[0].cpu()[: len(places)], rows / size.unsqueeze(1))


@pytest.mark.parametrize("rank", [1, 2])
def test_inactive_choices_are_not_sent(conformance: Any, rank: int) -> None:
    x, ids, weights = (
        random(TOKENS, WIDTH, seed=1).half(),
        choices(),
        random(TOKENS, CHOICES, seed=2),
    )
    active = torch.tensor([True, True, True, False, False])
    if rank == 2:
        active = torch.tensor(
            [[True, False], [False, True], [True, True], [False, False], [True, False]]
        )
    sent = dispatch(x, ids, x_active_mask=active)
    whole = active.unsqueeze(1).expand(-1, CHOICES) if rank == 1 else active
    expected = torch.bincount(ids[whole].long(), minlength=EXPERTS)
    assert torch.equal(sent[3].cpu(), expected)
    result = torch_npu.npu_moe_distribute_combine_v2(
        *(sent[0], ids.to("npu"), sent[2], sent[4], weights.to("npu"), GROUP, 1, 0, EXPERTS),
        x_active_mask=active.to("npu"),
    )
    factors = (weights.double() * whole).sum(1, keepdim=True)
    bound = x.double().abs() * weights.double().abs().sum(1, keepdim=True)
    conformance.close(result.cpu(), x.double() * factors, magnitude=bound)


def test_rows_of_int4_travel_with_their_scales() -> None:
    generator = torch.Generator().manual_seed(6)
    x = torch.randint(-(2**31), 2**31 - 1, (TOKENS, 32), generator=generator).int()
    scales, ids = random(TOKENS, seed=7), choices()
    sent = dispatch(x, ids, scales=scales)
    tokens = order(ids) // CHOICES
    assert torch.equal(sent[0].cpu()[: len(tokens)], x[tokens])
    assert torch.equal(sent[1].cpu()[: len(tokens)], scales[tokens])


def test_older_versions_equal_the_newest() -> None:
    x, ids = random(TOKENS, WIDTH, seed=1).half().to("npu"), choices().to("npu")
    weights = random(TOKENS, CHOICES, seed=2).to("npu")
    expected = dispatch(x, ids)
    common = (GROUP.encode(), 1, 0, EXPERTS, b"", 0, 0, 0, 1, 0)
    combined = torch_npu.npu_moe_distribute_combine_v2(
        *(expected[0], ids, expected[2], expected[4], weights, GROUP, 1, 0, EXPERTS)
    )
    for version, elastic, special in (("V2", (), ()), ("V3", (None,), (0, 0, 0))):
        results = [torch.empty_like(tensor) for tensor in expected]
        call_operator(
            f"aclnnMoeDistributeDispatch{version}",
            *(x, ids, None, None, None, *elastic, *common, 0, TOKENS, 1, b"", *special),
            *results[:5],
            *(None, results[6]),
        )
        count = TOKENS * CHOICES
        assert torch.equal(results[0][:count].cpu(), expected[0][:count].cpu())
        assert torch.equal(results[4][:EXPERTS].cpu(), expected[4][:EXPERTS].cpu())
        out = torch.empty_like(combined)
        call_operator(
            f"aclnnMoeDistributeCombine{version}",
            *(results[0], ids, results[2], results[4], weights, *[None] * 6),
            *([None] if version == "V2" else [None] * 6),
            *(*common, TOKENS, 0, 0, 0, b"", *special, out),
        )
        assert torch.equal(out.cpu(), combined.cpu())


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"quant_mode": 1}, "quantMode.*found 1"),
        ({"comm_alg": "ring"}, "commAlg.*found ring"),
        ({"zero_expert_num": 1}, "zeroExpertNum.*not simulated"),
        ({"scales": torch.ones(EXPERTS, WIDTH)}, "'scales'.*none"),
        ({"x_active_mask": torch.ones(3).bool()}, "'xActiveMask'"),
        ({"global_bs": 3}, "globalBs.*found 3"),
        ({"tp_world_size": 2}, "tpWorldSize.*found 2"),
    ],
)
def test_what_the_device_refuses_is_refused(changes: Any, reason: str, capfd: Any) -> None:
    del capfd
    with pytest.raises(RuntimeError, match=f"(?s){reason}"):
        dispatch(random(TOKENS, WIDTH, seed=1).half(), choices(), **changes)
