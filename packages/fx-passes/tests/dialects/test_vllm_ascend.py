"""Graphs of vLLM-Ascend's operators, before the fusions for NPUs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from fusions.rank_runs import run_ranks
from torch import Tensor

import fx_passes
from dialects.dialect_pipeline import forms, pipeline, targets
from fx_passes.fusions import ParallelGroup, shard_all_reduce_norm
from fx_passes.testing import (
    GraphLevel,
    assert_left_alone,
    assert_rewritten,
    assert_same_values,
    capture_graph,
    random_tensors,
)

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.usefixtures("engine_operators")

LEVELS: list[GraphLevel] = ["dynamo", "aten"]
GROUP, PROCESS_GROUP = "tp:0", "7"
TOKENS, HIDDEN, RANKS = 6, 64, 2
npu, vllm = torch.ops.npu, torch.ops.vllm
ascend = torch.ops._C_ascend


def plain(*tensors: Tensor) -> tuple[Tensor, Tensor]:
    x, residual, weight, _, scale, reciprocal, offset = tensors
    normed, _, total = ascend.npu_add_rms_norm_bias(x, residual, weight, None, 1e-5)
    return vllm.quantize(normed, scale, reciprocal, offset), total


def without_own_operators(*tensors: Tensor) -> tuple[Tensor, Tensor]:
    x, residual, weight, _, scale, reciprocal, offset = tensors
    normed, _, total = npu.npu_add_rms_norm(x, residual, weight, 1e-5)
    return vllm.quantize(normed, scale, reciprocal, offset), total


def biased(*tensors: Tensor) -> tuple[Tensor, Tensor]:
    x, residual, weight, bias, scale, reciprocal, offset = tensors
    normed, _, total = ascend.npu_add_rms_norm_bias(x, residual, weight, bias, 1e-5)
    return vllm.quantize(normed, scale, reciprocal, offset), total


def only_quantized(*tensors: Tensor) -> Tensor:
    return biased(*tensors)[0]


def inputs(
    dtype: torch.dtype = torch.bfloat16, device: str = "meta", scales: int = HIDDEN
) -> list[Tensor]:
    shapes = (TOKENS, HIDDEN), (TOKENS, HIDDEN), (HIDDEN,), (HIDDEN,)
    x, residual, weight, bias = random_tensors(*shapes, dtype=dtype, device=device)
    # A power of two, so that dividing and multiplying by the reciprocal are the same.
    scale = torch.full((scales,), 0.0625, dtype=dtype, device=device)
    offset = torch.full((scales,), 3, dtype=dtype, device=device)
    return [x, residual, weight, bias, scale, 1 / scale, offset]


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("function", [plain, biased, only_quantized, without_own_operators])
def test_norm_and_quantize_are_one_kernel_that_takes_the_scale_itself(
    function: Callable[..., object], level: GraphLevel
) -> None:
    module = capture_graph(function, inputs(), level=level, dynamic={0: 0, 1: 0})

    kind = "plain_norm" if function is without_own_operators else "norm"
    assert_rewritten(pipeline(), module, {f"vllm_ascend_{kind}_quantize": 1})

    assert targets(module) == ["npu.npu_add_rms_norm_quant.default"]


@pytest.mark.parametrize("function", [plain, biased])
def test_norm_and_quantize_fused_give_the_values_of_the_engine(
    function: Callable[..., tuple[Tensor, Tensor]],
) -> None:
    tensors = inputs(device="npu")
    module = capture_graph(function, tensors)
    expected = function(*tensors)
    assert len(set(expected[0].flatten().tolist())) > 10

    assert_rewritten(pipeline(), module, {"vllm_ascend_norm_quantize": 1})

    used = [each for each in tensors if function is biased or each is not tensors[3]]
    # The kernel quantises the norm before it is rounded.
    assert_same_values(module(*used), expected, roundings=3, dtype=torch.bfloat16)


def test_scales_in_float16_that_have_to_be_cast_cost_more_than_the_fusion_saves() -> None:
    module = capture_graph(plain, inputs(torch.float16))

    assert_left_alone(pipeline(), module, "vllm_ascend_norm_quantize", "3 launches in place of 2")


@pytest.mark.parametrize("function", [plain, biased])
def test_norm_and_quantize_by_one_scale_are_rewritten_apart(
    function: Callable[..., tuple[Tensor, Tensor]],
) -> None:
    module = capture_graph(function, inputs(scales=1))

    report = pipeline().run(module).report

    (miss,) = report.near_misses("vllm_ascend_norm_quantize")
    assert "`weight` has shape [64] and `scale` [1]" in miss.reason
    # With a bias that no kernel takes in it would be an operator more.
    norm = "_C_ascend.npu_add_rms_norm_bias" if function is biased else "npu.npu_add_rms_norm"
    assert targets(module) == [f"{norm}.default", "npu.npu_quantize.default"]
    (quantize,) = module.graph.find_nodes(op="call_function", target=npu.npu_quantize.default)
    assert quantize.args[5] is False


@pytest.mark.parametrize("dtype", [None, torch.int8, 1])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("level", LEVELS)
def test_norm_and_dynamic_quantisation_as_the_layer_emits_it_are_one_kernel(
    level: GraphLevel, bias: bool, dtype: object
) -> None:
    def function(*tensors: Tensor) -> tuple[Tensor, ...]:
        x, residual, weight, beta, *_ = tensors
        normed, _, total = ascend.npu_add_rms_norm_bias(
            x, residual, weight, beta if bias else None, 1e-5
        )
        return (*npu.npu_dynamic_quant(normed, dst_type=dtype), total)

    module = capture_graph(function, inputs(), level=level)

    pipeline().run(module)

    assert targets(module) == ["npu.npu_add_rms_norm_dynamic_quant.default"]


@pytest.mark.parametrize("level", LEVELS)
def test_norm_with_a_bias_and_nothing_after_it_stays_one_operator(level: GraphLevel) -> None:
    def function(*tensors: Tensor) -> tuple[Tensor, Tensor]:
        x, residual, weight, bias, *_ = tensors
        normed, _, total = ascend.npu_add_rms_norm_bias(x, residual, weight, bias, 1e-5)
        return normed.sigmoid(), total

    module = capture_graph(function, inputs(), level=level)

    report = pipeline().run(module).report

    assert "_C_ascend.npu_add_rms_norm_bias.default" in targets(module)
    assert len(targets(module)) == 2
    (miss,) = report.near_misses("vllm_ascend_norm")
    assert "no quantisation after it" in miss.reason


def test_norm_also_used_outside_the_quantisation_is_left_to_the_narrower_rules() -> None:
    def function(*tensors: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x, residual, weight, _, scale, reciprocal, offset = tensors
        normed, rstd, _ = ascend.npu_add_rms_norm_bias(x, residual, weight, None)
        return vllm.quantize(normed, scale, reciprocal, offset), normed, rstd

    tensors = inputs(device="npu")
    module = capture_graph(function, tensors)
    quantized, *others = function(*tensors)
    rules = fx_passes.Pipeline(passes=(fx_passes.NormalizePass(), forms()))

    assert_rewritten(rules, module, {"vllm_ascend_norm": 1, "vllm_ascend_quantize": 1})

    used = [each for each in tensors if each is not tensors[3]]
    assert_same_values(module(*used), (quantized, *others), roundings=3, dtype=torch.bfloat16)


def test_quantisation_of_anything_else_is_by_the_reciprocal_with_equal_bits() -> None:
    def function(x: Tensor, scale: Tensor, reciprocal: Tensor, offset: Tensor) -> Tensor:
        quantized: Tensor = vllm.quantize(x, scale, reciprocal, offset)
        return quantized

    x, *_, scale, reciprocal, offset = inputs(device="npu")
    module = capture_graph(function, [x, scale, reciprocal, offset])

    assert_rewritten(pipeline().exact(), module, {"vllm_ascend_quantize": 1})

    assert targets(module) == ["npu.npu_quantize.default"]
    expected = function(x, scale, reciprocal, offset)
    assert_same_values((module(x, scale, reciprocal, offset),), ((expected,),))


def reduced_norm(
    x: Tensor, residual: Tensor, weight: Tensor, bias: Tensor
) -> tuple[Tensor, Tensor]:
    # An engine reduces what it has just computed; in place, which nobody sees there.
    whole = vllm.all_reduce(x.neg(), GROUP)
    normed, _, total = ascend.npu_add_rms_norm_bias(whole, residual, weight, bias, 1e-5)
    return normed, total


def sharding_pipeline(rank: int, engine_group: str = GROUP) -> fx_passes.Pipeline:
    group = ParallelGroup(name=PROCESS_GROUP, rank=rank, size=RANKS)
    sharding = fx_passes.RulePass(name="parallel", rules=(shard_all_reduce_norm((group,)),))
    normalize, *fusions = fx_passes.default_npu_pipeline().passes
    before = forms({engine_group: PROCESS_GROUP})
    return fx_passes.Pipeline(passes=(normalize, before, sharding, *fusions))


@pytest.mark.parametrize("level", LEVELS)
def test_all_reduce_of_the_engine_and_norm_work_on_shards_with_equal_values(
    level: GraphLevel,
) -> None:
    residual, weight, bias = inputs(device="npu")[1:4]
    parts = [
        random_tensors((TOKENS, HIDDEN), dtype=torch.bfloat16, device="npu", seed=seed)[0]
        for seed in range(RANKS)
    ]
    modules = [capture_graph(reduced_norm, inputs()[:4], level=level) for _ in range(RANKS)]

    for rank, module in enumerate(modules):
        counts = {"vllm_ascend_norm": 1, "vllm_ascend_all_reduce": 1, "shard_all_reduce_norm": 1}
        assert_rewritten(sharding_pipeline(rank), module, counts)

    called = targets(modules[0])
    assert "_c10d_functional.reduce_scatter_tensor.default" in called
    assert not [target for target in called if "all_reduce" in str(target)]
    whole = (parts[0].float() + parts[1].float()).to(parts[0].dtype)
    # Alone a rank's all-reduce gives what it is given.
    expected = reduced_norm(whole, residual, weight, bias)
    for found in run_ranks(modules, [[part, residual, weight, bias] for part in parts]):
        assert_same_values(found, expected, roundings=2)


def collectives_alone() -> fx_passes.Pipeline:
    """Return only the forms: their results must be equivalent before anything fuses them."""
    normalize = fx_passes.default_npu_pipeline().passes[0]
    return fx_passes.Pipeline(passes=(normalize, forms({GROUP: PROCESS_GROUP})))


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("biased", [False, True])
def test_product_and_all_reduce_of_the_engine_sum_the_products_of_all_ranks(
    level: GraphLevel, biased: bool
) -> None:
    def function(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        product = vllm.unquantized_gemm(x, weight, bias if biased else None)
        reduced: Tensor = vllm.all_reduce(product, GROUP)
        return reduced.relu()

    shapes = (TOKENS, HIDDEN), (HIDDEN // 2, HIDDEN), (HIDDEN // 2,)
    given = [
        random_tensors(*shapes, dtype=torch.bfloat16, device="npu", seed=seed)
        for seed in range(RANKS)
    ]
    example = random_tensors(*shapes, dtype=torch.bfloat16)
    dynamic = {0: 0}
    modules = [capture_graph(function, example, level=level, dynamic=dynamic) for _ in given]

    for module in modules:
        assert_rewritten(collectives_alone(), module, {"vllm_ascend_gemm_all_reduce": 1})

    products = [
        torch.nn.functional.linear(x, weight, bias if biased else None) for x, weight, bias in given
    ]
    expected = torch.stack(products).float().sum(0).to(torch.bfloat16).relu()
    # What the graph takes, in the order in which Dynamo has named it.
    taken = [each[:3] if biased else each[:2] for each in given]
    for found in run_ranks(modules, [with_sizes(modules[0], each) for each in taken]):
        assert_same_values(found, (expected,))


@pytest.mark.parametrize("level", LEVELS)
def test_all_gather_of_the_engine_has_the_rows_of_all_ranks_in_their_order(
    level: GraphLevel,
) -> None:
    def function(x: Tensor) -> Tensor:
        whole: Tensor = vllm.all_gather(x, 0, RANKS, GROUP)
        return whole.relu()

    parts = [
        random_tensors((TOKENS, HIDDEN), dtype=torch.bfloat16, device="npu", seed=seed)
        for seed in range(RANKS)
    ]
    example = random_tensors((TOKENS, HIDDEN), dtype=torch.bfloat16)
    modules = [capture_graph(function, example, level=level, dynamic={0: 0}) for _ in parts]

    for module in modules:
        assert_rewritten(collectives_alone().exact(), module, {"vllm_ascend_all_gather": 1})

    expected = torch.cat([part for (part,) in parts]).relu()
    for found in run_ranks(modules, [with_sizes(modules[0], part) for part in parts]):
        assert_same_values(found, (expected,))


def with_sizes(module: torch.fx.GraphModule, tensors: list[Tensor]) -> list[object]:
    """Return a graph's inputs: first its symbolic sizes, then the tensors."""
    placeholders = module.graph.find_nodes(op="placeholder")
    return [*[TOKENS] * (len(placeholders) - len(tensors)), *tensors]


def test_all_reduce_of_a_group_that_was_not_named_is_left_alone() -> None:
    module = capture_graph(reduced_norm, inputs()[:4])

    rules = sharding_pipeline(0, "ep:0")
    assert_left_alone(
        rules, module, "vllm_ascend_all_reduce", "'tp:0' is not known; those given are of: 'ep:0'"
    )
    assert "vllm.all_reduce.default" in targets(module)


def test_forms_are_distinguished_by_their_groups() -> None:
    made = [sharding_pipeline(0, name).hash() for name in (GROUP, GROUP, "ep:0")]

    assert made[0] == made[1] != made[2]
