"""Reductions of all ranks' tensors, against reductions in plain Python and torch on the CPU."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, Any

import pytest
import torch
import torch.distributed as dist

if TYPE_CHECKING:
    from collections.abc import Callable

    from collectives.rank_processes import RankProcesses

FLOATS = (torch.float32, torch.float16, torch.bfloat16)
INTEGERS = (torch.int8, torch.int16, torch.int32, torch.int64)
OPERATIONS = ("SUM", "PRODUCT", "MAX", "MIN")
NOT_SUPPORTED = 5


def given(rank: int, dtype: torch.dtype, count: int) -> torch.Tensor:
    """Return the input of a rank; the same values in every process."""
    generator = torch.Generator().manual_seed(100 + rank)
    if dtype.is_floating_point:
        return torch.randn(count, generator=generator).to(dtype)
    return torch.randint(-100, 100, (count,), generator=generator).to(dtype)


def combined(left: torch.Tensor, right: torch.Tensor, operation: str) -> torch.Tensor:
    """Return one step of a reduction, rounded to the dtype."""
    steps: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]]
    steps = {"SUM": torch.add, "PRODUCT": torch.mul, "MAX": torch.maximum, "MIN": torch.minimum}
    return steps[operation](left, right)


def reduce_all(rank: int, dtypes: list[torch.dtype], count: int) -> dict[Any, torch.Tensor]:
    results = {}
    for dtype in dtypes:
        for operation in OPERATIONS:
            if operation == "PRODUCT" and dtype in (torch.int16, torch.bfloat16):
                continue
            tensor = given(rank, dtype, count).to("npu")
            dist.all_reduce(tensor, op=getattr(dist.ReduceOp, operation))
            results[dtype, operation] = tensor.cpu()
    return results


def check_all(results: list[dict[Any, torch.Tensor]], count: int) -> None:
    for (dtype, operation), first in results[0].items():
        tensors = [given(rank, dtype, count) for rank in range(len(results))]
        expected = reduce(lambda a, b: combined(a, b, operation), tensors)
        assert first.dtype == dtype
        assert torch.equal(first, expected), (dtype, operation)
        for other in results[1:]:
            assert torch.equal(other[dtype, operation], first), (dtype, operation)


def test_all_reduce_of_every_type_and_operation_has_the_same_bits_on_all_ranks(
    two_ranks: RankProcesses, four_ranks: RankProcesses
) -> None:
    for ranks in (two_ranks, four_ranks):
        results = ranks.run(reduce_all, [*FLOATS, *INTEGERS], 37)
        assert len(results[0]) == 7 * 4 - 2
        check_all(results, 37)


@pytest.mark.parametrize("count", [1, 3, 262_144, 600_001])
def test_all_reduce_of_any_size_reduces_every_element(
    four_ranks: RankProcesses, count: int
) -> None:
    check_all(four_ranks.run(reduce_all, [torch.float32], count), count)


def reduce_once(rank: int, values: list[list[float]], dtype: torch.dtype) -> list[float]:
    tensor = torch.tensor(values[rank]).to(dtype).to("npu")
    dist.all_reduce(tensor)
    result: list[float] = tensor.float().cpu().tolist()
    return result


@pytest.mark.parametrize(("dtype", "large"), [(torch.bfloat16, 256.0), (torch.float16, 2048.0)])
def test_sum_in_half_precision_is_rounded_after_every_rank(
    four_ranks: RankProcesses, dtype: torch.dtype, large: float
) -> None:
    # Each step from `large` by 1 is half a unit of the last place, and rounds back to even.
    results = four_ranks.run(reduce_once, [[large], [1.0], [1.0], [1.0]], dtype)
    assert results == [[large]] * 4
    results = four_ranks.run(reduce_once, [[1.0], [1.0], [1.0], [large]], dtype)
    assert results == [[large + 4.0]] * 4


def test_maximum_with_nan_is_nan_on_all_ranks(two_ranks: RankProcesses) -> None:
    results = two_ranks.run(reduce_maximum, [[float("nan"), 1.0, 3.0], [2.0, float("nan"), 1.0]])
    for result in results:
        assert str(result) == "[nan, nan, 3.0]"


def reduce_maximum(rank: int, values: list[list[float]]) -> list[float]:
    tensor = torch.tensor(values[rank]).to("npu")
    dist.all_reduce(tensor, op=dist.ReduceOp.MAX)
    result: list[float] = tensor.cpu().tolist()
    return result


def reduce_others(rank: int) -> dict[str, Any]:
    results: dict[str, Any] = {}
    flags = torch.tensor([rank == 0, rank == 1, False, True]).to("npu")
    dist.all_reduce(flags)
    results["bool"] = flags.cpu().tolist()
    average = torch.tensor([float(rank), 4.0]).to("npu")
    dist.all_reduce(average, op=dist.ReduceOp.AVG)
    results["average"] = average.cpu().tolist()
    strided = torch.arange(6.0).reshape(2, 3).to("npu").t().contiguous() * (rank + 1)
    dist.all_reduce(strided)
    results["strided"] = strided.cpu().tolist()
    empty = torch.empty(0).to("npu")
    dist.all_reduce(empty)
    results["empty"] = empty.cpu().tolist()
    rooted = torch.tensor([1.0, 2.0]).to("npu") * (rank + 1)
    dist.reduce(rooted, dst=1)
    results["reduce"] = rooted.cpu().tolist()
    return results


def test_other_reductions_give_what_torch_documents(two_ranks: RankProcesses) -> None:
    first, second = two_ranks.run(reduce_others)
    for result in (first, second):
        assert result["bool"] == [True, True, False, True]
        assert result["average"] == [0.5, 4.0]
        assert result["strided"] == [[0.0, 9.0], [3.0, 12.0], [6.0, 15.0]]
        assert result["empty"] == []
    assert second["reduce"] == [3.0, 6.0]


def refusal_of(dtype: torch.dtype, operation: Any) -> str:
    with pytest.raises(RuntimeError) as refused:
        dist.all_reduce(torch.ones(2, dtype=dtype).to("npu"), op=operation)
    return str(refused.value)


def reduce_refused(rank: int) -> list[str]:
    return [
        refusal_of(torch.int16, dist.ReduceOp.PRODUCT),
        refusal_of(torch.bfloat16, dist.ReduceOp.PRODUCT),
        refusal_of(torch.float64, dist.ReduceOp.SUM),
    ]


def test_reduction_that_the_device_lacks_is_refused_with_its_code(
    one_rank: RankProcesses,
) -> None:
    errors = one_rank.run(reduce_refused)[0]
    assert f"error code is {NOT_SUPPORTED}" in errors[0]
    assert "the device has no prod of int16" in errors[0]
    assert "the device has no prod of bfloat16" in errors[1]
    assert "Unsupported data type" in errors[2]


def scatter_sums(rank: int, ranks: int) -> dict[str, Any]:
    results = {}
    for dtype in (torch.float32, torch.bfloat16, torch.int32):
        whole = given(rank, dtype, 5 * ranks).to("npu")
        share = torch.empty(5, dtype=dtype).to("npu")
        dist.reduce_scatter_tensor(share, whole)
        results[f"tensor {dtype}"] = share.cpu()
        share = torch.empty(5, dtype=dtype).to("npu")
        dist.reduce_scatter(share, list(whole.chunk(ranks)), op=dist.ReduceOp.MAX)
        results[f"list {dtype}"] = share.cpu()
    large = given(rank, torch.float32, 300_000 * ranks).to("npu")
    share = torch.empty(300_000).to("npu")
    dist.reduce_scatter_tensor(share, large)
    results["large"] = share.cpu()
    return results


def test_reduce_scatter_gives_each_rank_its_share(four_ranks: RankProcesses) -> None:
    results = four_ranks.run(scatter_sums, 4)
    for dtype in (torch.float32, torch.bfloat16, torch.int32):
        tensors = [given(rank, dtype, 20) for rank in range(4)]
        sums = reduce(lambda a, b: combined(a, b, "SUM"), tensors)
        maxima = reduce(lambda a, b: combined(a, b, "MAX"), tensors)
        for rank, result in enumerate(results):
            assert torch.equal(result[f"tensor {dtype}"], sums[5 * rank : 5 * rank + 5])
            assert torch.equal(result[f"list {dtype}"], maxima[5 * rank : 5 * rank + 5])
    tensors = [given(rank, torch.float32, 1_200_000) for rank in range(4)]
    sums = reduce(lambda a, b: combined(a, b, "SUM"), tensors)
    for rank, result in enumerate(results):
        assert torch.equal(result["large"], sums[300_000 * rank : 300_000 * (rank + 1)])
