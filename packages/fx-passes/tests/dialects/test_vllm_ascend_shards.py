"""Graphs of vLLM-Ascend in which ranks have a part of the tokens each."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from torch import Tensor

import fx_passes
from fx_passes.dialects import vllm_ascend_dialect
from fx_passes.testing import (
    assert_left_alone,
    assert_rewritten,
    assert_same_values,
    capture_graph,
    random_tensors,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from conftest import EngineState

TOKENS, HIDDEN = 6, 64
npu, vllm = torch.ops.npu, torch.ops.vllm
ascend = torch.ops._C_ascend


@pytest.fixture(autouse=True)
def state(engine_operators: EngineState) -> Iterator[EngineState]:
    """Return the state that the engine's operators read; rows are not spread at first."""
    yield engine_operators
    engine_operators.gathers, engine_operators.padding = False, 0


def pipeline(*, whole_residuals: bool = False) -> fx_passes.Pipeline:
    normalize, *fusions = fx_passes.default_npu_pipeline().passes
    rules = vllm_ascend_dialect(whole_residuals=whole_residuals)
    forms = fx_passes.RulePass(name="forms", rules=rules)
    return fx_passes.Pipeline(passes=(normalize, forms, *fusions))


def gather(rows: Tensor, spread: bool) -> Tensor:
    return vllm.maybe_all_gather_and_maybe_unpad(rows, spread)  # type: ignore[no-any-return]


def engine_norm(tensors: tuple[Tensor, ...], *, bias: bool) -> tuple[Tensor, Tensor]:
    x, residual, weight, beta = tensors[:4]
    added = ascend.npu_add_rms_norm_bias(x, residual, weight, beta if bias else None, 1e-5)
    return added[0], added[2]


def static(*tensors: Tensor) -> tuple[Tensor, ...]:
    normed, total = engine_norm(tensors, bias=False)
    return vllm.quantize(gather(normed, True), *tensors[4:7]), total


def static_biased(*tensors: Tensor) -> tuple[Tensor, ...]:
    normed, total = engine_norm(tensors, bias=True)
    return vllm.quantize(gather(normed, True), *tensors[4:7]), total


def static_twice(*tensors: Tensor) -> tuple[Tensor, ...]:
    normed, total = engine_norm(tensors, bias=False)
    rows = gather(normed, True)
    return vllm.quantize(rows, *tensors[4:7]), vllm.quantize(rows, *tensors[7:10]), total


def dynamic_biased(*tensors: Tensor) -> tuple[Tensor, ...]:
    normed, total = engine_norm(tensors, bias=True)
    return (*npu.npu_dynamic_quant(gather(normed, True), dst_type=torch.int8), total)


def dynamic_plain(*tensors: Tensor) -> tuple[Tensor, ...]:
    x, residual, weight = tensors[:3]
    normed, _, total = npu.npu_add_rms_norm(x, residual, weight, 1e-5)
    return (*npu.npu_dynamic_quant(gather(normed, True)), total)


CASES: tuple[tuple[Callable[..., tuple[Tensor, ...]], str, int], ...] = (
    (static, "vllm_ascend_norm_quantize", 1),
    (static_biased, "vllm_ascend_norm_quantize", 1),
    (static_twice, "vllm_ascend_norm_two_quantize", 2),
    (dynamic_biased, "vllm_ascend_norm_dynamic_quant", 2),
    (dynamic_plain, "vllm_ascend_plain_norm_dynamic_quant", 2),
)


def inputs(device: str = "meta", dtype: torch.dtype = torch.bfloat16) -> list[Tensor]:
    shapes = (TOKENS, HIDDEN), (TOKENS, HIDDEN), (HIDDEN,), (HIDDEN,)
    scale = torch.full((HIDDEN,), 0.0625, dtype=dtype, device=device)
    offset = torch.full((HIDDEN,), 3, dtype=dtype, device=device)
    quantisation = [scale, 1 / scale, offset]
    other = [2 * scale, 0.5 / scale, offset + 1]
    return [*random_tensors(*shapes, dtype=dtype, device=device), *quantisation, *other]


def targets(module: torch.fx.GraphModule) -> list[str]:
    called = [str(node.target) for node in module.graph.nodes if node.op == "call_function"]
    return [target for target in called if "getitem" not in target]


@pytest.mark.parametrize(("function", "rule", "gathers"), CASES)
def test_quantisation_moves_before_the_gathering_and_into_the_norm(
    function: Callable[..., tuple[Tensor, ...]], rule: str, gathers: int
) -> None:
    module = capture_graph(function, inputs(), level="aten", dynamic={0: 0, 1: 0})

    assert_rewritten(pipeline(), module, {rule: 1})

    kernel, *others = targets(module)
    assert kernel.startswith("npu.npu_add_rms_norm_")
    assert others == ["vllm.maybe_all_gather_and_maybe_unpad.default"] * gathers


@pytest.mark.parametrize("padding", [None, 0, 1])
@pytest.mark.parametrize(("function", "rule", "gathers"), CASES)
def test_values_are_the_engines_in_every_state_that_the_graph_cannot_show(
    function: Callable[..., tuple[Tensor, ...]],
    rule: str,
    gathers: int,
    padding: int | None,
    state: EngineState,
) -> None:
    tensors = inputs("npu")
    module = capture_graph(function, tensors)
    pipeline().run(module)
    state.gathers, state.padding = padding is not None, padding or 0

    expected = function(*tensors)
    assert len(expected[0]) == (TOKENS if padding is None else 2 * TOKENS - padding)

    # Dynamo calls what is in `*tensors` l_tensors_0_, l_tensors_1_, ...
    names = [node.name for node in module.graph.find_nodes(op="placeholder")]
    used = [tensors[int(name.strip("_").split("_")[-1])] for name in names]
    # The kernels quantise the norm before it is rounded.
    assert_same_values(module(*used), expected, roundings=3, dtype=torch.bfloat16)


def test_quantisation_of_other_rows_moves_before_the_gathering_with_equal_bits(
    state: EngineState,
) -> None:
    def function(x: Tensor, scale: Tensor, reciprocal: Tensor, offset: Tensor) -> tuple[Tensor]:
        return (vllm.quantize(gather(x, True), scale, reciprocal, offset),)

    tensors = inputs("npu")
    given = [tensors[0], *tensors[4:7]]
    module = capture_graph(function, given)

    counts = {"vllm_ascend_gathered_quantize": 1, "vllm_ascend_quantize": 1}
    assert_rewritten(pipeline().exact(), module, counts)

    assert targets(module)[0] == "npu.npu_quantize.default"
    state.gathers = True
    assert_same_values(module(*given), function(*given))


def test_gathered_rows_used_elsewhere_stay_where_they_are() -> None:
    def function(*tensors: Tensor) -> tuple[Tensor, ...]:
        normed, total = engine_norm(tensors, bias=False)
        rows = gather(normed, True)
        return vllm.quantize(rows, *tensors[4:7]), rows, total

    module = capture_graph(function, inputs())

    assert_left_alone(pipeline(), module, "vllm_ascend_norm_quantize", "inside the match is used")


def test_residual_is_not_cut_if_the_engine_keeps_it_whole() -> None:
    def function(x: Tensor, residual: Tensor) -> Tensor:
        cut: Tensor = vllm.maybe_chunk_residual(x, residual)
        return cut + x

    rule = "vllm_ascend_chunk_residual"
    given = inputs()[:2]

    assert_left_alone(pipeline(), capture_graph(function, given), rule, "known at run time only")
    module = capture_graph(function, given)
    assert_rewritten(pipeline(whole_residuals=True), module, {rule: 1})
    shorter = capture_graph(function, [given[0][:3], given[1][:3]])
    assert_rewritten(pipeline(whole_residuals=True), shorter, {rule: 1})


def test_own_chunk_of_gathered_rows_is_what_was_gathered() -> None:
    def function(x: Tensor) -> Tensor:
        own: Tensor = vllm.sequence_parallel_chunk_impl(vllm.all_gather(x, 0, 2, "tp:0"))
        return own.relu()

    x = inputs("npu")[0]
    module = capture_graph(function, [x])
    expected = function(x)

    assert_rewritten(pipeline().exact(), module, {"vllm_ascend_own_chunk": 1})

    assert targets(module) == ["aten.relu.default"]
    assert_same_values((module(x),), ((expected,),))


@pytest.mark.parametrize(
    ("group", "dim", "reason"),
    [("ep:0", 0, "the chunk is that of a rank of `tp`"), ("tp:0", 1, "not the first")],
)
def test_chunk_of_other_rows_is_left_alone(group: str, dim: int, reason: str) -> None:
    def function(x: Tensor) -> Tensor:
        own: Tensor = vllm.sequence_parallel_chunk_impl(vllm.all_gather(x, dim, 2, group))
        return own.relu()

    module = capture_graph(function, inputs()[:1])

    assert_left_alone(pipeline(), module, "vllm_ascend_own_chunk", reason)
