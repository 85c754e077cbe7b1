"""The QKV split + norm + RoPE fusion on graphs as torch.compile gives them."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING

import pytest
import torch
from torch import Tensor

import fx_passes
from fusions.attention_heads import AttentionHeads, qkv_function, qkv_inputs
from fusions.cases.rotary import ROTARY_CASES
from fx_passes.fusions import fuse_split_qkv_rms_norm_rope
from fx_passes.operators.vendor_kernel import KNOWN_KERNELS
from fx_passes.testing import (
    GraphLevel,
    assert_left_alone,
    assert_rewritten,
    assert_same_values,
    capture_graph,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from fx_passes.operators import VendorKernel

RULE = "fuse_split_qkv_rms_norm_rope"
MROPE = "fuse_split_qkv_rms_norm_mrope"
LEVELS: list[GraphLevel] = ["dynamo", "aten"]
npu = torch.ops.npu


def pipeline(*, kernels: tuple[VendorKernel, ...] = ()) -> fx_passes.Pipeline:
    rules = (fuse_split_qkv_rms_norm_rope(kernels=kernels),)
    passes = (fx_passes.NormalizePass(), fx_passes.RulePass(name="fusions", rules=rules))
    return fx_passes.Pipeline(passes=passes)


def fused_node(module: torch.fx.GraphModule) -> torch.fx.Node:
    target = torch.ops.fx_passes.split_qkv_rms_norm_rope.default
    (node,) = module.graph.find_nodes(op="call_function", target=target)
    assert isinstance(node, torch.fx.Node)
    return node


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("method", ["reshape", "view"])
@pytest.mark.parametrize("flatten", [True, False])
def test_example_form_is_fused(level: GraphLevel, method: str, flatten: bool) -> None:
    heads = AttentionHeads()
    function = qkv_function(heads, method=method, flatten=flatten)
    module = capture_graph(function, qkv_inputs(heads), level=level)

    assert_rewritten(pipeline(), module, {RULE: 1})

    assert fused_node(module).args[5:] == (4, 2, 16, 1e-6)
    rest = {node.target for node in module.graph.nodes if node.op == "call_function"}
    assert npu.npu_rms_norm.default not in rest
    assert npu.npu_rotary_mul.default not in rest


@pytest.mark.parametrize(
    "heads",
    [
        AttentionHeads(num_heads=8, num_kv_heads=1, head_dim=64, eps=1e-5),
        AttentionHeads(num_heads=3, num_kv_heads=3, head_dim=96),
        AttentionHeads(num_heads=2, num_kv_heads=1, head_dim=256),
    ],
)
def test_any_heads_are_fused_by_one_rule(heads: AttentionHeads) -> None:
    module = capture_graph(qkv_function(heads), qkv_inputs(heads))

    assert_rewritten(pipeline(), module, {RULE: 1})

    expected = (heads.num_heads, heads.num_kv_heads, heads.head_dim, heads.eps)
    assert fused_node(module).args[5:] == expected


def test_layers_with_different_heads_in_one_graph_are_all_fused() -> None:
    first, second = AttentionHeads(), AttentionHeads(num_heads=6, num_kv_heads=3, head_dim=32)

    def function(*tensors: Tensor) -> tuple[Tensor, ...]:
        return (*qkv_function(first)(*tensors[:5]), *qkv_function(second)(*tensors[5:]))

    module = capture_graph(function, [*qkv_inputs(first), *qkv_inputs(second)])

    assert_rewritten(pipeline(), module, {RULE: 2})


@pytest.mark.parametrize("level", LEVELS)
def test_symbolic_tokens_are_fused(level: GraphLevel) -> None:
    heads = AttentionHeads()
    module = capture_graph(
        qkv_function(heads), qkv_inputs(heads), level=level, dynamic={0: 0, 3: 1, 4: 1}
    )

    assert_rewritten(pipeline(), module, {RULE: 1})

    q, k, v = fused_node(module).meta["val"]
    assert isinstance(q.shape[0], torch.SymInt)
    assert tuple(q.shape[1:]) == (4, 16)
    assert tuple(k.shape[1:]) == tuple(v.shape[1:]) == (2, 16)


def test_v_cut_into_heads_is_fused() -> None:
    heads = AttentionHeads()

    def function(*tensors: Tensor) -> tuple[Tensor, ...]:
        q, k, v = qkv_function(heads, flatten=False)(*tensors)
        return q, k, v.reshape(-1, heads.num_kv_heads, heads.head_dim)

    module = capture_graph(function, qkv_inputs(heads))

    assert_rewritten(pipeline(), module, {RULE: 1})


@pytest.mark.parametrize("level", LEVELS)
def test_what_follows_v_is_recorded_as_it_runs(level: GraphLevel) -> None:
    """v was a slice of qkv and is a result of the kernel, so its heads are closer together."""
    heads = AttentionHeads()
    base = qkv_function(heads)

    def function(*inputs: Tensor) -> tuple[Tensor, ...]:
        q, k, v = base(*inputs)
        return q, k, v.view(-1, heads.num_kv_heads, heads.head_dim).transpose(0, 1) * 2

    module = capture_graph(function, qkv_inputs(heads), level=level)

    assert_rewritten(pipeline(), module, {RULE: 1})

    size = heads.num_kv_heads * heads.head_dim
    (turned,) = module.graph.find_nodes(op="call_function", target=torch.ops.aten.transpose.int)
    assert turned.meta["val"].stride() == (heads.head_dim, size, 1)
    (product,) = turned.users
    assert product.meta["val"].stride() == (heads.head_dim, size, 1)


def test_norm_of_q_used_elsewhere_is_left_alone() -> None:
    heads = AttentionHeads()

    def function(
        qkv: Tensor, q_weight: Tensor, k_weight: Tensor, cos: Tensor, sin: Tensor
    ) -> tuple[Tensor, ...]:
        q, k, v = qkv.split([64, 32, 32], dim=-1)  # type: ignore[no-untyped-call]
        q = npu.npu_rms_norm(q.reshape(-1, 4, 16), q_weight)[0]
        k = npu.npu_rms_norm(k.reshape(-1, 2, 16), k_weight)[0]
        turned = npu.npu_rotary_mul(q.unsqueeze(0), cos, sin).squeeze(0)
        k = npu.npu_rotary_mul(k.unsqueeze(0), cos, sin).squeeze(0)
        return turned, k, v, q

    module = capture_graph(function, qkv_inputs(heads))

    assert_left_alone(pipeline(), module, RULE, "inside the match is used by `output`")


def _with(
    change: Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], tuple[Tensor, ...]],
) -> torch.fx.GraphModule:
    return capture_graph(change, qkv_inputs(AttentionHeads()))


def test_other_epsilon_for_k_is_left_alone() -> None:
    def function(
        qkv: Tensor, q_weight: Tensor, k_weight: Tensor, cos: Tensor, sin: Tensor
    ) -> tuple[Tensor, ...]:
        q, k, v = qkv.split([64, 32, 32], dim=-1)  # type: ignore[no-untyped-call]
        q = npu.npu_rms_norm(q.reshape(-1, 4, 16), q_weight, 1e-6)[0]
        k = npu.npu_rms_norm(k.reshape(-1, 2, 16), k_weight, 1e-5)[0]
        q = npu.npu_rotary_mul(q.unsqueeze(0), cos, sin).squeeze(0)
        k = npu.npu_rotary_mul(k.unsqueeze(0), cos, sin).squeeze(0)
        return q, k, v

    assert_left_alone(pipeline(), _with(function), RULE, "epsilon 1e-06, that of k 1e-05")


def test_other_rotation_of_k_is_left_alone() -> None:
    def function(
        qkv: Tensor, q_weight: Tensor, k_weight: Tensor, cos: Tensor, sin: Tensor
    ) -> tuple[Tensor, ...]:
        q, k, v = qkv.split([64, 32, 32], dim=-1)  # type: ignore[no-untyped-call]
        q = npu.npu_rms_norm(q.reshape(-1, 4, 16), q_weight)[0]
        k = npu.npu_rms_norm(k.reshape(-1, 2, 16), k_weight)[0]
        q = npu.npu_rotary_mul(q.unsqueeze(0), cos, sin).squeeze(0)
        k = npu.npu_rotary_mul(k.unsqueeze(0), sin, cos).squeeze(0)
        return q, k, v

    assert_left_alone(pipeline(), _with(function), RULE, "found")


def test_interleaved_rotation_is_left_alone() -> None:
    def function(
        qkv: Tensor, q_weight: Tensor, k_weight: Tensor, cos: Tensor, sin: Tensor
    ) -> tuple[Tensor, ...]:
        q, k, v = qkv.split([64, 32, 32], dim=-1)  # type: ignore[no-untyped-call]
        q = npu.npu_rms_norm(q.reshape(-1, 4, 16), q_weight)[0]
        k = npu.npu_rms_norm(k.reshape(-1, 2, 16), k_weight)[0]
        q = npu.npu_rotary_mul(q.unsqueeze(0), cos, sin, "interleave").squeeze(0)
        k = npu.npu_rotary_mul(k.unsqueeze(0), cos, sin, "interleave").squeeze(0)
        return q, k, v

    assert_left_alone(pipeline(), _with(function), RULE, "expected 'half', found 'interleave'")


def test_cosines_of_another_shape_are_left_alone() -> None:
    heads = AttentionHeads()
    qkv, q_weight, k_weight, cos, sin = qkv_inputs(heads)
    wide = [cos.expand(1, 5, 1, 16)[:, :1].contiguous(), sin[:, :1].contiguous()]
    module = capture_graph(qkv_function(heads), [qkv, q_weight, k_weight, *wide])
    fx_passes.normalize_graph(module)
    for node in module.graph.find_nodes(op="placeholder"):
        if "cos" in node.name:
            node.meta["val"] = torch.empty(2, 5, 1, 16, dtype=torch.bfloat16, device="meta")

    assert_left_alone(pipeline(), module, RULE, "the operator takes [1, T, 1, 16]")


def test_v_written_later_is_left_alone() -> None:
    heads = AttentionHeads()

    def function(*tensors: Tensor) -> tuple[Tensor, ...]:
        q, k, v = qkv_function(heads)(*tensors)
        tensors[0].zero_()
        return q, k, v

    module = capture_graph(function, qkv_inputs(heads))

    assert_left_alone(pipeline(), module, RULE, "may share memory with an input")


def toy_vendor_kernel(
    qkv: Tensor,
    sin: Tensor,
    cos: Tensor,
    q_hidden_size: int,
    kv_hidden_size: int,
    head_dim: int,
    eps: float | None = None,
    q_weight: Tensor | None = None,
    k_weight: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    q, k, v = torch.ops.fx_passes.split_qkv_rms_norm_rope(
        qkv,
        q_weight,
        k_weight,
        cos.view(1, -1, 1, head_dim),
        sin.view(1, -1, 1, head_dim),
        q_hidden_size // head_dim,
        kv_hidden_size // head_dim,
        head_dim,
        eps,
    )
    return q.flatten(1), k.flatten(1), v.flatten(1)


@pytest.fixture
def vendor_library() -> Iterator[None]:
    """An operator with SGLang's name and signature, for as long as a test runs."""
    library = torch.library.Library("sglang", "FRAGMENT")  # type: ignore[no-untyped-call]
    library.define(  # type: ignore[no-untyped-call]
        "npu_split_qkv_rmsnorm_rope(Tensor input, Tensor sin, Tensor cos, int q_hidden_size, "
        "int kv_hidden_size, int head_dim, float? eps=None, Tensor? q_weight=None, "
        "Tensor? k_weight=None, Tensor? q_bias=None, Tensor? k_bias=None, "
        "bool is_neox_style=True) -> (Tensor, Tensor, Tensor)"
    )

    def kernel(*args: Tensor, **kwargs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return toy_vendor_kernel(*args, **kwargs)  # type: ignore[arg-type]

    name = "npu_split_qkv_rmsnorm_rope"
    library.impl(name, kernel, "CompositeExplicitAutograd")  # type: ignore[no-untyped-call]
    yield
    library._destroy()  # type: ignore[no-untyped-call]


@pytest.mark.usefixtures("vendor_library")
def test_installed_vendor_kernel_is_used() -> None:
    heads = AttentionHeads()
    module = capture_graph(qkv_function(heads), qkv_inputs(heads))

    assert_rewritten(pipeline(kernels=KNOWN_KERNELS), module, {RULE: 1})

    target = torch.ops.sglang.npu_split_qkv_rmsnorm_rope.default
    (node,) = module.graph.find_nodes(op="call_function", target=target)
    assert node.args[3:6] == (64, 32, 16)
    assert node.kwargs == {} or "eps" not in node.kwargs


@pytest.mark.usefixtures("vendor_library")
def test_vendor_kernel_that_cannot_do_the_heads_leaves_the_graph_alone() -> None:
    heads = AttentionHeads(head_dim=24)
    module = capture_graph(qkv_function(heads), qkv_inputs(heads))

    reason = "sglang::npu_split_qkv_rmsnorm_rope: head_dim 24 is no power of two"
    assert_left_alone(pipeline(kernels=KNOWN_KERNELS), module, RULE, reason)


def test_without_a_vendor_kernel_nothing_is_fused_as_it_would_launch_more() -> None:
    heads = AttentionHeads()
    module = capture_graph(qkv_function(heads), qkv_inputs(heads))

    reason = "no vendor kernel, and without one it would launch all that it replaces, and copy v"
    assert_left_alone(fx_passes.default_npu_pipeline(), module, RULE, reason)


@pytest.mark.parametrize("installed", [False, True])
def test_rotation_by_positions_waits_for_a_vendor_kernel(
    installed: bool, request: pytest.FixtureRequest
) -> None:
    if installed:
        request.getfixturevalue("vendor_library")
    (case, *_) = [each for each in ROTARY_CASES if each.rule == MROPE]
    module = capture_graph(case.function, case.inputs(torch.bfloat16, "meta", 5))

    if installed:
        assert len(fx_passes.default_npu_pipeline().run(module).report.matches(MROPE)) == 1
    else:
        assert_left_alone(fx_passes.default_npu_pipeline(), module, MROPE, "no vendor kernel")


@pytest.mark.usefixtures("vendor_library")
def test_cosines_of_all_layers_are_looked_up_once() -> None:
    (case, *_) = [each for each in ROTARY_CASES if each.rule == MROPE]

    def function(*tensors: Tensor) -> tuple[Tensor, ...]:
        return (*case.function(*tensors), *case.function(tensors[0] * 2, *tensors[1:]))  # type: ignore[misc]

    module = capture_graph(function, case.inputs(torch.bfloat16, "meta", 5))

    report = fx_passes.default_npu_pipeline().run(module).report

    assert len(report.matches(MROPE)) == 2
    aten = torch.ops.aten
    for target in (aten.index_select.default, aten.cat.default):
        found = module.graph.find_nodes(op="call_function", target=target)
        assert len(found) == (1 if target is aten.index_select.default else 2)


def test_rule_without_vendor_kernels_is_exact() -> None:
    exact = fuse_split_qkv_rms_norm_rope(kernels=())
    rounding = fuse_split_qkv_rms_norm_rope()
    assert (exact.numerics, rounding.numerics) == ("exact", "rounding")


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("tokens", [1, 5])
def test_numerics_are_bitwise_equal(dtype: torch.dtype, tokens: int) -> None:
    heads = AttentionHeads()
    tensors = qkv_inputs(heads, tokens, dtype=dtype, device="npu")
    function = qkv_function(heads)
    module = capture_graph(function, tensors)
    expected = function(*tensors)

    assert_rewritten(pipeline(kernels=()), module, {RULE: 1})

    assert_same_values(module(*tensors), expected)
    assert operator.getitem in {node.target for node in module.graph.nodes}
