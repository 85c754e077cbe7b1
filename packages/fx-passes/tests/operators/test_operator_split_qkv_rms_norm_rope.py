"""The operator of our own."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from fusions.attention_heads import AttentionHeads, qkv_inputs
from torch._subclasses.fake_tensor import FakeTensorMode

from fx_passes.operators.split_qkv_rms_norm_rope import define_operators


def run(heads: AttentionHeads, tokens: int, device: str, dtype: torch.dtype = torch.bfloat16):  # type: ignore[no-untyped-def]  # noqa: ANN201
    define_operators()
    return torch.ops.fx_passes.split_qkv_rms_norm_rope(
        *qkv_inputs(heads, tokens, dtype=dtype, device=device),
        heads.num_heads,
        heads.num_kv_heads,
        heads.head_dim,
        heads.eps,
    )


def test_importing_the_package_defines_nothing() -> None:
    program = (
        "import torch; "
        "from fx_passes.operators.split_qkv_rms_norm_rope import define_operators; "
        "assert not hasattr(torch.ops.fx_passes, 'split_qkv_rms_norm_rope'); "
        "define_operators(); define_operators(); "
        "assert hasattr(torch.ops.fx_passes, 'split_qkv_rms_norm_rope')"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_threads_may_define_the_operator_together() -> None:
    program = (
        "from concurrent.futures import ThreadPoolExecutor\n"
        "import torch, fx_passes\n"
        "def use(_):\n"
        "    from fx_passes.operators.split_qkv_rms_norm_rope import define_operators\n"
        "    define_operators()\n"
        "    t = lambda *s: torch.empty(s, device='meta')\n"
        "    args = t(3, 32), t(8), t(8), t(1, 3, 1, 8), t(1, 3, 1, 8), 2, 1, 8, 1e-6\n"
        "    return torch.ops.fx_passes.split_qkv_rms_norm_rope(*args)[0].shape\n"
        "with ThreadPoolExecutor(16) as pool:\n"
        "    assert set(pool.map(use, range(64))) == {(3, 2, 8)}\n"
    )
    subprocess.run([sys.executable, "-W", "error", "-c", program], check=True)


@pytest.mark.parametrize("tokens", [1, 7])
def test_meta_and_device_results_have_the_same_layout(tokens: int) -> None:
    heads = AttentionHeads()

    for fake, real in zip(run(heads, tokens, "meta"), run(heads, tokens, "npu"), strict=True):
        assert fake.shape == real.shape
        assert fake.stride() == real.stride()
        assert fake.dtype == real.dtype
        assert real.is_contiguous()


def test_results_have_memory_of_their_own() -> None:
    heads = AttentionHeads()
    define_operators()
    tensors = qkv_inputs(heads, 1, device="npu")
    sizes = (heads.num_heads, heads.num_kv_heads, heads.head_dim, heads.eps)

    results = torch.ops.fx_passes.split_qkv_rms_norm_rope(*tensors, *sizes)

    taken = {tensor.untyped_storage().data_ptr() for tensor in tensors}
    assert all(each.untyped_storage().data_ptr() not in taken for each in results)


def test_symbolic_tokens_stay_symbolic() -> None:
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    define_operators()
    heads = AttentionHeads()
    mode = FakeTensorMode(shape_env=ShapeEnv())
    tensors = [
        mode.from_tensor(tensor, static_shapes=tensor.dim() == 1) for tensor in qkv_inputs(heads, 5)
    ]
    with mode:
        q, _, v = torch.ops.fx_passes.split_qkv_rms_norm_rope(*tensors, 4, 2, 16, 1e-6)

    assert isinstance(q.shape[0], torch.SymInt)
    assert tuple(v.shape[1:]) == (2, 16)


def test_one_process_defines_once() -> None:
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: define_operators(), range(16)))


def test_biases_are_added_to_the_norms_and_the_rest_of_a_head_is_not_rotated() -> None:
    heads = AttentionHeads()
    define_operators()
    qkv, q_weight, k_weight, cos, sin = qkv_inputs(heads, 5, device="npu")
    angles = [each[..., :8].contiguous() for each in (cos, sin)]
    sizes = (heads.num_heads, heads.num_kv_heads, heads.head_dim, heads.eps)
    operator = torch.ops.fx_passes.split_qkv_rms_norm_rope

    plain = operator(qkv, q_weight, k_weight, *angles, *sizes)
    biased = operator(qkv, q_weight, k_weight, *angles, *sizes, q_weight, k_weight)

    normed = torch.ops.npu.npu_rms_norm(qkv[:, : heads.q_size].reshape(5, 4, 16), q_weight)[0]
    assert torch.equal(plain[0][..., 8:].cpu(), normed[..., 8:].cpu())
    assert torch.equal(biased[0][..., 8:].cpu(), (normed + q_weight)[..., 8:].cpu())
    assert not torch.equal(plain[0][..., :8].cpu(), normed[..., :8].cpu())
    assert torch.equal(plain[2].cpu(), biased[2].cpu())
