"""Norms of values that all ranks have, after an all-gather or an addition, computed on shards."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pytest
import torch
from torch import Tensor
from torch import distributed as dist
from torch.distributed import _functional_collectives as collectives
from torch.testing._internal.distributed.fake_pg import FakeStore

import fx_passes
from fusions.rank_runs import run_ranks
from fx_passes.fusions import ParallelGroup, shard_all_reduce_norm
from fx_passes.testing import (
    assert_left_alone,
    assert_rewritten,
    assert_same_values,
    capture_graph,
    random_tensors,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SIZE, TOKENS, HIDDEN = 2, 8, 64
RULE = "shard_all_reduce_norm"
npu = torch.ops.npu


@pytest.fixture(autouse=True)
def process_group() -> Iterator[None]:
    """A group of two ranks whose collectives can be traced, and are not run."""
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=SIZE)
    yield
    dist.destroy_process_group()


def pipeline(rank: int) -> fx_passes.Pipeline:
    group = ParallelGroup(name=dist.group.WORLD.group_name, rank=rank, size=SIZE)  # type: ignore[union-attr]
    rules = fx_passes.RulePass(name="parallel", rules=(shard_all_reduce_norm((group,)),))
    return fx_passes.Pipeline(passes=(fx_passes.NormalizePass(), rules))


def reduced(x: Tensor) -> Tensor:
    whole: Tensor = collectives.all_reduce(x, "sum", cast("Any", dist.group.WORLD))
    return whole


def gathered(x: Tensor) -> Tensor:
    whole: Tensor = collectives.all_gather_tensor(x, 0, cast("Any", dist.group.WORLD))
    return whole


def normed(rows: Tensor, residual: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    added = npu.npu_add_rms_norm(rows, residual, weight, 1e-5)
    return added[0], added[2]


def reduced_and_added(*tensors: Tensor) -> tuple[Tensor, Tensor]:
    x, residual, weight, extra = tensors
    return normed(reduced(x) + extra, residual, weight)


def gathered_norm(*tensors: Tensor) -> tuple[Tensor, Tensor]:
    x, residual, weight, _ = tensors
    return normed(gathered(x), residual, weight)


def gathered_and_cut(*tensors: Tensor) -> tuple[Tensor, Tensor]:
    x, residual, weight, _ = tensors
    return normed(gathered(x)[:TOKENS], residual, weight)


def gathered_and_added(*tensors: Tensor) -> tuple[Tensor, Tensor]:
    x, residual, weight, extra = tensors
    return normed(gathered(x)[:TOKENS] + extra, residual, weight)


def separate(*tensors: Tensor) -> tuple[Tensor, Tensor]:
    x, residual, weight, _ = tensors
    total = gathered(x) + residual
    return npu.npu_rms_norm(total, weight, 1e-5)[0], total


FUNCTIONS = (reduced_and_added, gathered_norm, gathered_and_cut, gathered_and_added, separate)


def inputs(rows: int, device: str = "meta", seed: int = 0) -> list[Tensor]:
    (x,) = random_tensors((rows, HIDDEN), dtype=torch.bfloat16, device=device, seed=seed)
    shapes = (TOKENS, HIDDEN), (HIDDEN,), (TOKENS, HIDDEN)
    return [x, *random_tensors(*shapes, dtype=torch.bfloat16, device=device, seed=9)]


@pytest.mark.parametrize("function", FUNCTIONS)
def test_norm_works_on_a_shard_with_equal_values(
    function: Callable[..., tuple[Tensor, Tensor]],
) -> None:
    rows = TOKENS if function is reduced_and_added else TOKENS // SIZE
    plain = capture_graph(function, inputs(rows))
    modules = [capture_graph(function, inputs(rows)) for _ in range(SIZE)]
    uses_extra = "extra" in function.__code__.co_varnames
    given = [inputs(rows, "npu", seed)[: 4 if uses_extra else 3] for seed in range(SIZE)]
    names = [node.name for node in plain.graph.find_nodes(op="placeholder")]
    order = [int(name.strip("_").split("_")[-1]) for name in names]
    ordered = [[each[position] for position in order] for each in given]
    expected = run_ranks([plain, plain], ordered)

    for rank, module in enumerate(modules):
        assert_rewritten(pipeline(rank), module, {RULE: 1})

    (kernel,) = [
        node
        for node in modules[0].graph.nodes
        if str(node.target).startswith(("npu.npu_add_rms_norm", "npu.npu_rms_norm"))
    ]
    assert kernel.args[0].meta["val"].shape[0] == TOKENS // SIZE
    assert_same_values(run_ranks(modules, ordered), expected, roundings=3)


def test_padding_among_the_gathered_tokens_is_left_alone() -> None:
    module = capture_graph(gathered_and_cut, inputs(TOKENS // SIZE + 1))

    assert_left_alone(pipeline(0), module, RULE, "8 of 10 gathered tokens are normalised")


def test_addition_of_another_shape_is_left_alone() -> None:
    tensors = inputs(TOKENS)
    tensors[3] = tensors[3][:1]
    module = capture_graph(reduced_and_added, tensors)

    assert_left_alone(pipeline(0), module, RULE, "`extra` [1, 64]")
