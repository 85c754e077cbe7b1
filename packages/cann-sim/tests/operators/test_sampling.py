"""Random operators: distributions and reproducibility."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pytest
import torch
import torch_npu

if TYPE_CHECKING:
    from collections.abc import Callable

COUNT = 20000
FLOATS = [torch.bfloat16, torch.float16, torch.float32]


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch_npu.npu.manual_seed(1234)


def mean_bound(deviation: float) -> float:
    """Five standard errors of the mean of COUNT draws."""
    return 5 * deviation / math.sqrt(COUNT)


@pytest.mark.parametrize("dtype", FLOATS)
def test_uniform_values_fill_the_half_open_interval(dtype: torch.dtype) -> None:
    values = torch.empty(COUNT, dtype=dtype, device="npu").uniform_(-1, 3).float().cpu()
    assert values.min() >= -1
    assert values.max() < 3
    rounding = torch.finfo(dtype).eps * 3
    assert abs(values.mean().item() - 1) < mean_bound(4 / math.sqrt(12)) + rounding
    assert values.std().item() == pytest.approx(4 / math.sqrt(12), rel=0.05)


@pytest.mark.parametrize("dtype", FLOATS)
def test_normal_values_have_mean_and_deviation(dtype: torch.dtype) -> None:
    values = torch.empty(COUNT, dtype=dtype, device="npu").normal_(2, 0.5).float().cpu()
    assert abs(values.mean().item() - 2) < mean_bound(0.5) + torch.finfo(dtype).eps
    assert values.std().item() == pytest.approx(0.5, rel=0.05)
    within = ((values - 2).abs() < 0.5).float().mean().item()
    assert within == pytest.approx(0.6827, abs=0.03)


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int32, torch.int64])
def test_normal_integers_are_truncated_values(dtype: torch.dtype) -> None:
    torch_npu.npu.manual_seed(3)
    values = torch.empty(COUNT, dtype=torch.float32, device="npu").normal_(60, 9).cpu()
    torch_npu.npu.manual_seed(3)
    integers = torch.empty(COUNT, dtype=dtype, device="npu").normal_(60, 9).cpu()
    assert torch.equal(integers, values.to(dtype))


@pytest.mark.parametrize(
    "draw",
    [
        lambda values: values.normal_(1, 2),
        lambda values: values.uniform_(-1, 3),
        lambda values: values.random_(0, 1000),
    ],
    ids=["normal", "uniform", "integers"],
)
def test_large_results_continue_after_each_piece(draw: Callable[[torch.Tensor], Any]) -> None:
    """More numbers than are made at once, densely and, at once, between others."""
    count = 2**20 + 7
    dense, strided = torch.empty(count, device="npu"), torch.empty(count, 2, device="npu")[:, 1]
    for values in (dense, strided):
        torch_npu.npu.manual_seed(11)
        draw(values)
    assert torch.equal(dense.cpu(), strided.cpu())
    assert torch.unique(dense.cpu()[-7:]).numel() > 3
    assert not torch.equal(dense.cpu()[:7], dense.cpu()[-7:])


def test_exponential_values_have_their_mean() -> None:
    values = torch.empty(COUNT, device="npu").exponential_(2.0).cpu()
    assert values.min() > 0
    assert abs(values.mean().item() - 0.5) < mean_bound(0.5)


def test_integers_cover_their_range() -> None:
    values = torch.randint(-3, 5, (COUNT,), device="npu").cpu()
    counts = torch.bincount(values + 3)
    assert counts.numel() == 8
    assert (counts.float() / COUNT - 1 / 8).abs().max() < 0.02


def test_bernoulli_draws_follow_their_probability() -> None:
    probabilities = torch.tensor([0.0, 0.25, 1.0], device="npu").unsqueeze(1).expand(3, COUNT)
    shares = torch.bernoulli(probabilities.contiguous()).mean(1).cpu()
    assert shares[0] == 0
    assert shares[2] == 1
    assert abs(shares[1].item() - 0.25) < mean_bound(0.44)


def test_multinomial_draws_in_proportion() -> None:
    weights = torch.tensor([[0.0, 1.0, 3.0], [2.0, 0.0, 0.0]], device="npu")
    drawn = torch.multinomial(weights, COUNT, replacement=True).cpu()
    shares = torch.bincount(drawn[0], minlength=3) / COUNT
    assert shares[0] == 0
    assert abs(shares[2].item() - 0.75) < mean_bound(0.44)
    assert drawn[1].eq(0).all()


def test_multinomial_without_replacement_draws_each_once() -> None:
    weights = torch.rand(5, 8, device="npu") + 0.1
    drawn = torch.multinomial(weights, 8).cpu()
    assert torch.equal(drawn.sort(-1).values, torch.arange(8).expand(5, 8))


def test_randperm_is_a_permutation() -> None:
    order = torch.randperm(500, device="npu").cpu()
    assert torch.equal(order.sort().values, torch.arange(500))
    assert not torch.equal(order, torch.arange(500))


def test_equal_seeds_give_equal_values_and_calls_differ() -> None:
    first = [torch.rand(100, device="npu").cpu() for _ in range(2)]
    torch_npu.npu.manual_seed(1234)
    second = [torch.rand(100, device="npu").cpu() for _ in range(2)]
    assert torch.equal(first[0], second[0])
    assert torch.equal(first[1], second[1])
    assert not torch.equal(first[0], first[1])


def test_captured_draws_advance_with_every_replay() -> None:
    values = torch.zeros(64, device="npu")
    graph = torch_npu.npu.NPUGraph()
    with torch_npu.npu.graph(graph):
        values.uniform_()
    draws = []
    for _ in range(3):
        graph.replay()
        torch_npu.npu.synchronize()
        draws.append(values.cpu())
    assert not torch.equal(draws[0], draws[1])
    assert not torch.equal(draws[1], draws[2])


def test_remaining_forms_have_their_distributions() -> None:
    mean = torch.full((COUNT,), 2.0, device="npu")
    deviation = torch.full((COUNT,), 0.5, device="npu")
    forms = [
        torch.normal(mean, deviation),
        torch.normal(mean, 0.5),
        torch.normal(2.0, deviation),
        torch.normal(2.0, 0.5, (COUNT,), device="npu"),
    ]
    for values in forms:
        assert abs(values.cpu().mean().item() - 2) < mean_bound(0.5)
        assert values.cpu().std().item() == pytest.approx(0.5, rel=0.05)
    drawn = torch.empty(COUNT, device="npu").bernoulli_(0.25).cpu()
    assert abs(drawn.mean().item() - 0.25) < mean_bound(0.44)
    whole = torch.empty(COUNT, dtype=torch.uint8, device="npu").random_().cpu()
    # torch_npu requests [0, 255).
    assert len(set(whole.tolist())) == 255


def test_every_captured_random_operator_advances() -> None:
    values = torch.zeros(4, 64, device="npu")
    weights = torch.ones(64, device="npu")
    chosen = torch.zeros(8, dtype=torch.long, device="npu")
    graph = torch_npu.npu.NPUGraph()
    with torch_npu.npu.graph(graph):
        values[0].uniform_()
        values[1].normal_()
        values[2].random_(0, 1000)
        values[3].random_()
        chosen.copy_(torch.multinomial(weights, 8))
    draws = []
    for _ in range(2):
        graph.replay()
        torch_npu.npu.synchronize()
        draws.append([row.cpu() for row in (*values, chosen)])
    for first, second in zip(*draws, strict=True):
        assert not torch.equal(first, second)
