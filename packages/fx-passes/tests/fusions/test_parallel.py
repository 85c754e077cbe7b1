"""Rules for tensor parallelism, on the graphs of all ranks of a group."""

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
from fx_passes.fusions import (
    ParallelGroup,
    fuse_add_rms_norm,
    fuse_matmul_all_reduce,
    remove_gather_of_own_shard,
    shard_all_reduce_norm,
)
from fx_passes.testing import (
    assert_left_alone,
    assert_rewritten,
    assert_same_values,
    capture_graph,
    random_tensors,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


SIZE = 2
TOKENS, HIDDEN = 8, 64
npu = torch.ops.npu


@pytest.fixture(autouse=True)
def process_group() -> Iterator[None]:
    """A group of two ranks whose collectives can be traced, and are not run."""
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=SIZE)
    yield
    dist.destroy_process_group()


def group_name() -> str:
    name: str = dist.group.WORLD.group_name  # type: ignore[union-attr]
    return name


def groups(rank: int, communicator: str = "hccl_0") -> tuple[ParallelGroup, ...]:
    group = ParallelGroup(name=group_name(), rank=rank, size=SIZE, communicator=communicator)
    return (group,)


def all_reduced(x: Tensor, operation: str = "sum") -> Tensor:
    reduced: Tensor = collectives.all_reduce(x, operation, cast("Any", dist.group.WORLD))
    return reduced


def all_gathered(x: Tensor) -> Tensor:
    whole: Tensor = collectives.all_gather_tensor(x, 0, cast("Any", dist.group.WORLD))
    return whole


def pipeline(*rules: fx_passes.Rule) -> fx_passes.Pipeline:
    """Return a pipeline with some rules after that which fuses additions and norms."""
    return fx_passes.Pipeline(
        passes=(
            fx_passes.NormalizePass(),
            fx_passes.RulePass(name="norms", rules=(fuse_add_rms_norm(),)),
            fx_passes.RulePass(name="parallel", rules=rules),
        )
    )


def matmul_pipeline(**changes: object) -> fx_passes.Pipeline:
    made = groups(0, str(changes.get("communicator", "hccl_0")))
    return pipeline(fuse_matmul_all_reduce(made, soc=str(changes.get("soc", ""))))


def sharding_pipeline(rank: int, *, divide: bool = False) -> fx_passes.Pipeline:
    made = groups(rank)
    return pipeline(
        shard_all_reduce_norm(made, tokens_divide=divide),
        *remove_gather_of_own_shard(made),
    )


def linear(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    del bias
    return all_reduced(torch.nn.functional.linear(x, weight))


def biased_linear(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return all_reduced(torch.nn.functional.linear(x, weight, bias))


def mm(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    del bias
    return all_reduced(torch.mm(x, weight))


def addmm(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return all_reduced(torch.addmm(bias, x, weight))


def largest(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    del bias
    return all_reduced(torch.mm(x, weight), "max")


def matmul_inputs(
    dtype: torch.dtype = torch.bfloat16, device: str = "meta", seed: int = 0
) -> list[Tensor]:
    shapes = (TOKENS, HIDDEN), (HIDDEN, HIDDEN), (HIDDEN,)
    return random_tensors(*shapes, dtype=dtype, device=device, seed=seed)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("function", [linear, biased_linear, mm, addmm])
def test_matmul_and_all_reduce_are_one_operator_with_equal_values(
    function: Callable[..., Tensor], dtype: torch.dtype
) -> None:
    module = capture_graph(function, matmul_inputs(dtype))
    inputs = [matmul_inputs(dtype, "npu", seed) for seed in range(SIZE)]
    order = {linear: (0, 1), mm: (0, 1), biased_linear: (0, 1, 2), addmm: (2, 0, 1)}[function]
    given = [[each[position] for position in order] for each in inputs]
    expected = run_ranks([module, module], given)

    assert_rewritten(matmul_pipeline(), module, {"fuse_matmul_all_reduce": 1})

    (fused,) = module.graph.find_nodes(
        op="call_function", target=npu.npu_mm_all_reduce_base.default
    )
    assert fused.args[2] == "hccl_0"
    # Each rank rounds its part, and the bias it adds.
    assert_same_values(run_ranks([module, module], given), expected, roundings=4)


@pytest.mark.parametrize(
    ("function", "changes", "reason"),
    [
        (mm, {"communicator": ""}, "has no HCCL communicator"),
        (mm, {"soc": "Ascend950DT"}, "the kernel exists on Ascend910B"),
        (largest, {}, "reduced by 'max'"),
    ],
)
def test_matmul_and_all_reduce_that_the_kernel_does_not_do_are_left_alone(
    function: Callable[..., Tensor], changes: dict[str, object], reason: str
) -> None:
    module = capture_graph(function, matmul_inputs())

    assert_left_alone(matmul_pipeline(**changes), module, "fuse_matmul_all_reduce", reason)


def test_matmul_and_all_reduce_in_float32_are_left_alone() -> None:
    module = capture_graph(mm, matmul_inputs(torch.float32))

    assert_left_alone(matmul_pipeline(), module, "fuse_matmul_all_reduce", "the kernel takes")


def test_all_reduce_of_another_group_is_left_alone() -> None:
    other = ParallelGroup(name="other", rank=0, size=SIZE, communicator="hccl_1")
    module = capture_graph(mm, matmul_inputs())

    rules = pipeline(fuse_matmul_all_reduce((other,)))
    assert_left_alone(rules, module, "fuse_matmul_all_reduce", "is not one of those")


def test_matmul_all_reduce_add_and_norm_are_two_operators() -> None:
    def function(x: Tensor, weight: Tensor, residual: Tensor, gamma: Tensor) -> tuple[Tensor, ...]:
        total = all_reduced(torch.mm(x, weight)) + residual
        return npu.npu_rms_norm(total, gamma, 1e-5)[0], total

    x, weight, gamma = matmul_inputs()
    module = capture_graph(function, [x, weight, torch.empty_like(x), gamma])

    assert_rewritten(
        matmul_pipeline(), module, {"fuse_matmul_all_reduce": 1, "fuse_add_rms_norm": 1}
    )

    called = [node.target for node in module.graph.nodes if node.op == "call_function"]
    assert called[:2] == [npu.npu_mm_all_reduce_base.default, npu.npu_add_rms_norm.default]


def layers(x: Tensor, weight: Tensor, *partial: Tensor) -> tuple[Tensor, Tensor]:
    """Three norms of a decoder whose projections are cut by rows, as an engine writes them."""
    residual = all_reduced(x)
    normed = npu.npu_rms_norm(residual, weight, 1e-5)[0]
    for part in partial:
        residual = all_reduced(normed * part) + residual
        normed = npu.npu_rms_norm(residual, weight, 1e-5)[0]
    return normed, residual


def layer_inputs(
    dtype: torch.dtype = torch.bfloat16, device: str = "meta", seed: int = 0, tokens: int = TOKENS
) -> list[Tensor]:
    shape = (tokens, HIDDEN)
    (weight,) = random_tensors((HIDDEN,), dtype=dtype, device=device)
    x, first, second = random_tensors(shape, shape, shape, dtype=dtype, device=device, seed=seed)
    return [x, weight, first, second]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_norms_of_all_layers_work_on_shards_with_equal_values(dtype: torch.dtype) -> None:
    inputs = [layer_inputs(dtype, "npu", seed) for seed in range(SIZE)]
    plain = capture_graph(layers, layer_inputs(dtype))
    expected = run_ranks([plain, plain], inputs)
    modules = [capture_graph(layers, layer_inputs(dtype)) for _ in range(SIZE)]

    for rank, module in enumerate(modules):
        counts = {
            "fuse_add_rms_norm": 2,
            "shard_all_reduce_norm": 3,
            f"remove_gather_of_shard_{rank}": 2,
        }
        assert_rewritten(sharding_pipeline(rank), module, counts)

    called = [str(node.target) for node in modules[0].graph.nodes]
    assert "_c10d_functional.all_reduce.default" not in called
    # One for each norm, and one for the residual that leaves the graph.
    assert called.count("_c10d_functional.all_gather_into_tensor.default") == 4
    assert not [target for target in called if target.startswith("aten.chunk")]
    # The sum of the ranks is rounded before each of three norms, and so are two additions.
    assert_same_values(run_ranks(modules, inputs), expected, roundings=8)


def test_odd_number_of_tokens_is_left_alone() -> None:
    module = capture_graph(layers, layer_inputs(tokens=TOKENS - 1))

    assert_left_alone(
        sharding_pipeline(0), module, "shard_all_reduce_norm", "7 tokens are not known to divide"
    )


def test_symbolic_number_of_tokens_needs_the_word_of_the_caller() -> None:
    tensors = layer_inputs()
    dynamic = {0: 0, 2: 0, 3: 0}

    module = capture_graph(layers, tensors, dynamic=dynamic)
    assert_left_alone(sharding_pipeline(0), module, "shard_all_reduce_norm", "not known to divide")

    module = capture_graph(layers, tensors, dynamic=dynamic)
    report = sharding_pipeline(0, divide=True).run(module).report
    assert report.match_counts()["shard_all_reduce_norm"] == 3


def test_reduction_that_is_no_sum_is_left_alone() -> None:
    def function(x: Tensor, weight: Tensor) -> Tensor:
        normed: Tensor = npu.npu_rms_norm(all_reduced(x, "max"), weight)[0]
        return normed

    module = capture_graph(function, layer_inputs()[:2])

    assert_left_alone(sharding_pipeline(0), module, "shard_all_reduce_norm", "not summed")


def own_chunk(x: Tensor) -> Tensor:
    whole = all_gathered(x)
    return whole.chunk(SIZE)[1] * 2


def own_part(x: Tensor) -> Tensor:
    own: Tensor = torch.split(all_gathered(x), TOKENS)[1]
    return own * 2


def own_slice(x: Tensor) -> Tensor:
    whole = all_gathered(x)
    return whole[TOKENS:] * 2


def gather_pipeline(rank: int) -> fx_passes.Pipeline:
    return pipeline(*remove_gather_of_own_shard(groups(rank)))


@pytest.mark.parametrize(
    ("function", "rule"),
    [
        (own_chunk, "remove_gather_of_shard_1"),
        (own_part, "remove_gather_of_shard_1"),
        (own_slice, "remove_gather_of_own_slice"),
    ],
)
def test_own_part_of_what_was_gathered_needs_no_collective(
    function: Callable[[Tensor], Tensor], rule: str
) -> None:
    inputs = [layer_inputs(device="npu", seed=seed)[:1] for seed in range(SIZE)]
    module = capture_graph(function, layer_inputs()[:1])
    (_, expected) = run_ranks([module, module], inputs)

    assert_rewritten(gather_pipeline(1), module, {rule: 1})

    called = [str(node.target) for node in module.graph.nodes if node.op == "call_function"]
    assert called == ["aten.mul.Scalar"]
    assert_same_values(module(*inputs[1]), expected)


def test_part_of_another_rank_is_left_alone() -> None:
    module = capture_graph(own_slice, layer_inputs()[:1])

    assert_left_alone(
        gather_pipeline(0), module, "remove_gather_of_own_slice", "that of the rank 0 elsewhere"
    )


def test_gathered_tensor_that_is_used_whole_is_still_gathered() -> None:
    def function(x: Tensor) -> tuple[Tensor, Tensor]:
        whole = all_gathered(x)
        return whole.chunk(SIZE)[1] * 2, whole

    inputs = [layer_inputs(device="npu", seed=seed)[:1] for seed in range(SIZE)]
    module = capture_graph(function, layer_inputs()[:1])
    (_, expected) = run_ranks([module, module], inputs)

    assert_rewritten(gather_pipeline(1), module, {"remove_gather_of_shard_1": 1})

    (_, actual) = run_ranks([module, module], inputs)
    assert_same_values(actual, expected)


def test_part_that_leaves_the_graph_keeps_memory_of_its_own() -> None:
    def function(x: Tensor) -> Tensor:
        return all_gathered(x).chunk(SIZE)[1]

    module = capture_graph(function, layer_inputs()[:1])

    assert_left_alone(
        gather_pipeline(1), module, "remove_gather_of_shard_1", "in memory of its own"
    )
