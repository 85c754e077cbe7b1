"""Vendor kernels that look up cosines and sines themselves: vLLM-Ascend's for Qwen3."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from torch import Tensor

import fx_passes
from fusions.attention_heads import AttentionHeads, qkv_inputs
from fx_passes.testing import (
    GraphLevel,
    assert_left_alone,
    assert_rewritten,
    assert_same_values,
    capture_graph,
    random_tensors,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

RULE = "fuse_split_qkv_rms_norm_rotary_embedding"
HEADS = AttentionHeads(num_heads=4, num_kv_heads=2, head_dim=128)
TOKENS, LONGEST = 5, 32
KERNELS = ("qkv_rmsnorm_rope", "qkv_rmsnorm_rope_simt")
# The levels of vLLM's graphs: Dynamo's for what it splits, ATen's for its pass manager.
LEVELS: list[GraphLevel] = ["dynamo", "aten"]

pytestmark = pytest.mark.usefixtures("rotary_embedding")


def kernel(
    input: Tensor,  # noqa: A002 - the name in the operator's schema
    cos_sin_cache: Tensor,
    positions: Tensor,
    q_weight: Tensor,
    k_weight: Tensor,
    q_hidden_size: int,
    kv_hidden_size: int,
    head_dim: int,
    eps: float,
    q_bias: Tensor | None = None,
    k_bias: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Emulate the kernel: norm and bias in float32, the rotation in bfloat16."""
    q, k, v = input.split([q_hidden_size, kv_hidden_size, kv_hidden_size], -1)  # type: ignore[no-untyped-call]
    cos, sin = cos_sin_cache[positions].unsqueeze(1).chunk(2, -1)
    half = cos.shape[-1]
    turned = []
    for part, weight, bias in ((q, q_weight, q_bias), (k, k_weight, k_bias)):
        heads = part.reshape(len(part), -1, head_dim).float()
        heads = heads * torch.rsqrt(heads.pow(2).mean(-1, keepdim=True) + eps) * weight.float()
        rounded = (heads if bias is None else heads + bias.float()).to(part.dtype)
        first, second, rest = rounded.split([half, half, head_dim - 2 * half], -1)
        rotated = [first * cos - second * sin, second * cos + first * sin, rest]
        turned.append(torch.cat(rotated, -1).flatten(1))
    return turned[0], turned[1], v.clone(memory_format=torch.contiguous_format)


@pytest.fixture
def vllm_kernels() -> Iterator[None]:
    """Operators with the names and the signature that vllm-ascend 0.23 registers."""
    library = torch.library.Library("vllm", "FRAGMENT")  # type: ignore[no-untyped-call]
    for name in KERNELS:
        library.define(  # type: ignore[no-untyped-call]
            f"{name}(Tensor input, Tensor cos_sin_cache, Tensor positions, Tensor q_weight, "
            "Tensor k_weight, SymInt q_hidden_size, SymInt kv_hidden_size, SymInt head_dim, "
            "float eps, Tensor? q_bias=None, Tensor? k_bias=None) -> (Tensor, Tensor, Tensor)"
        )
        library.impl(name, kernel, "CompositeExplicitAutograd")  # type: ignore[no-untyped-call]
    yield
    library._destroy()  # type: ignore[no-untyped-call]


def attention(
    heads: AttentionHeads = HEADS, *, biased: bool = False
) -> Callable[..., tuple[Tensor, ...]]:
    def function(
        qkv: Tensor,
        q_weight: Tensor,
        k_weight: Tensor,
        table: Tensor,
        positions: Tensor,
        q_bias: Tensor,
        k_bias: Tensor,
    ) -> tuple[Tensor, ...]:
        q, k, v = qkv.split([heads.q_size, heads.kv_size, heads.kv_size], dim=-1)  # type: ignore[no-untyped-call]
        normed = []
        for part, weight, bias in ((q, q_weight, q_bias), (k, k_weight, k_bias)):
            by_head = part.view(*part.shape[:-1], part.shape[-1] // heads.head_dim, heads.head_dim)
            value = torch.ops.npu.npu_rms_norm(by_head, weight, heads.eps)[0]
            normed.append((value + bias if biased else value).view(part.shape))
        turned = torch.ops.vllm.npu_rotary_embedding(
            positions, *normed, table, heads.head_dim, table.shape[1], True
        )
        return turned[0], turned[1], v

    return function


def with_normed_v(heads: AttentionHeads = HEADS) -> Callable[..., tuple[Tensor, ...]]:
    """Return the form of Gemma 4, which normalises v as well; `q_bias` is the weight of v."""

    def function(
        qkv: Tensor,
        q_weight: Tensor,
        k_weight: Tensor,
        table: Tensor,
        positions: Tensor,
        q_bias: Tensor,
        k_bias: Tensor,
    ) -> tuple[Tensor, ...]:
        del k_bias
        parts = qkv.split([heads.q_size, heads.kv_size, heads.kv_size], dim=-1)  # type: ignore[no-untyped-call]
        counts = heads.num_heads, heads.num_kv_heads, heads.num_kv_heads
        q, k, v = (
            torch.ops.npu.npu_rms_norm(
                part.unflatten(-1, (count, heads.head_dim)), weight, heads.eps
            )[0].flatten(-2, -1)
            for part, count, weight in zip(parts, counts, (q_weight, k_weight, q_bias), strict=True)
        )
        turned = torch.ops.vllm.npu_rotary_embedding(
            positions, q, k, table, heads.head_dim, table.shape[1], True
        )
        return turned[0], turned[1], v

    return function


def inputs(
    heads: AttentionHeads = HEADS,
    *,
    dtype: torch.dtype = torch.bfloat16,
    device: str = "meta",
    rotary: int | None = None,
) -> list[Tensor]:
    qkv, q_weight, k_weight, _, _ = qkv_inputs(heads, TOKENS, dtype=dtype, device=device)
    table, q_bias, k_bias = random_tensors(
        (LONGEST, rotary or heads.head_dim),
        (heads.head_dim,),
        (heads.head_dim,),
        dtype=dtype,
        device=device,
        seed=3,
    )
    positions = torch.tensor([7, 0, 31, 7, 2]).to(device)
    return [qkv, q_weight, k_weight, table, positions, q_bias, k_bias]


def called(module: torch.fx.GraphModule) -> list[str]:
    targets = [str(node.target) for node in module.graph.nodes if node.op == "call_function"]
    return [target for target in targets if target.startswith(("vllm", "npu", "fx_passes"))]


@pytest.mark.usefixtures("vllm_kernels")
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("rotary", [128, 32])
@pytest.mark.parametrize("biased", [False, True])
def test_kernel_that_takes_positions_and_cache_is_used(
    biased: bool, rotary: int, level: GraphLevel
) -> None:
    # Dynamo reads `q.shape` if sizes are symbolic, which is another use of q.
    dynamic = {0: 0, 4: 0} if level == "aten" else {}
    module = capture_graph(
        attention(biased=biased), inputs(rotary=rotary), level=level, dynamic=dynamic
    )

    report = fx_passes.default_npu_pipeline().run(module).report

    assert len(report.matches(RULE)) == 1
    assert called(module) == ["vllm.qkv_rmsnorm_rope.default"]
    (node,) = module.graph.find_nodes(
        op="call_function", target=torch.ops.vllm.qkv_rmsnorm_rope.default
    )
    assert node.args[5:9] == (512, 256, 128, HEADS.eps)
    assert ("q_bias" in node.kwargs or len(node.args) > 9) is biased


@pytest.mark.usefixtures("vllm_kernels")
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("dynamic", [False, True])
def test_norm_of_v_stays_beside_the_kernel(level: GraphLevel, dynamic: bool) -> None:
    sizes = {0: 0, 4: 0} if dynamic else {}
    module = capture_graph(with_normed_v(), inputs(), level=level, dynamic=sizes)

    report = fx_passes.default_npu_pipeline().run(module).report

    assert len(report.matches(RULE)) == 1
    assert called(module) == ["vllm.qkv_rmsnorm_rope.default", "npu.npu_rms_norm.default"]


@pytest.mark.usefixtures("vllm_kernels")
@pytest.mark.parametrize("rotary", [128, 32])
@pytest.mark.parametrize("biased", [False, True])
def test_values_are_those_of_the_operators_it_replaces(biased: bool, rotary: int) -> None:
    tensors = inputs(device="npu", rotary=rotary)
    function = attention(biased=biased)
    module = capture_graph(function, tensors)
    expected = function(*tensors)

    assert_rewritten(fx_passes.default_npu_pipeline().without("noops"), module, {RULE: 1})

    # Dynamo's placeholders are in the order in which it found the inputs.
    names = ("qkv", "q_weight", "k_weight", "table", "positions", "q_bias", "k_bias")
    given = dict(zip(names, tensors, strict=True))
    used = [given[node.name[2:-1]] for node in module.graph.find_nodes(op="placeholder")]
    assert_same_values(module(*used), expected, roundings=3, dtype=torch.bfloat16)


@pytest.mark.usefixtures("vllm_kernels")
@pytest.mark.parametrize(
    ("soc", "wanted"), [("", KERNELS[0]), ("Ascend910B1", KERNELS[0]), ("Ascend950DT", KERNELS[1])]
)
def test_the_device_decides_which_of_the_librarys_kernels(soc: str, wanted: str) -> None:
    module = capture_graph(attention(), inputs())

    fx_passes.default_npu_pipeline(soc=soc).run(module)

    assert called(module) == [f"vllm.{wanted}.default"]


@pytest.mark.usefixtures("vllm_kernels")
@pytest.mark.parametrize(
    ("heads", "dtype", "reason"),
    [
        (AttentionHeads(head_dim=64), torch.bfloat16, "heads have 64 elements"),
        (HEADS, torch.float16, "qkv has dtype torch.float16; it computes in torch.bfloat16"),
    ],
)
def test_what_the_kernel_cannot_do_is_left_alone(
    heads: AttentionHeads, dtype: torch.dtype, reason: str
) -> None:
    module = capture_graph(attention(heads), inputs(heads, dtype=dtype))

    assert_left_alone(fx_passes.default_npu_pipeline(), module, RULE, reason)


@pytest.mark.usefixtures("vllm_kernels")
def test_strided_projections_are_left_alone() -> None:
    tensors = inputs()
    tensors[0] = tensors[0].repeat(1, 2)[:, : tensors[0].shape[1]]
    module = capture_graph(attention(), tensors)

    assert_left_alone(fx_passes.default_npu_pipeline(), module, RULE, "qkv is not contiguous")


def test_near_miss_without_kernels_names_each() -> None:
    module = capture_graph(attention(), inputs())

    miss = assert_left_alone(fx_passes.default_npu_pipeline(), module, RULE, "no vendor kernel")

    assert "vllm::qkv_rmsnorm_rope: not installed" in miss.reason
    assert "simt" not in miss.reason
