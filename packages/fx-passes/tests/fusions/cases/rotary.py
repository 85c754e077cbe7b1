"""QKV split, norms and RoPE, as engines write them."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

import torch

from fusions.attention_heads import AttentionHeads, qkv_function, qkv_inputs
from fusions.fusion_case import FusionCase, NearMissCase
from fusions.reference_pipeline import reference_pipeline
from fx_passes.fusions.heads.split_qkv_rms_norm_cache import (
    fuse_split_qkv_rms_norm_mrope,
    fuse_split_qkv_rms_norm_rotary_embedding,
)
from fx_passes.generic_passes.equal_calls import ShareEqualCallsPass
from fx_passes.generic_passes.noops import remove_noops
from fx_passes.graph_pass import NormalizePass, RulePass
from fx_passes.pipeline import Pipeline
from fx_passes.testing import random_tensors

if TYPE_CHECKING:
    from torch import Tensor

    from fusions.fusion_case import FusionInputs

__all__ = ["ROTARY_CASES", "ROTARY_EMBEDDING_CASE"]

_HEADS = AttentionHeads()
_ROPE = "fuse_split_qkv_rms_norm_rope"
_MROPE = "fuse_split_qkv_rms_norm_mrope"
_ROTARY_DIM = 8
_LONGEST = 32


def _inputs(dtype: torch.dtype, device: str, tokens: int) -> list[Tensor]:
    return qkv_inputs(_HEADS, tokens, dtype=dtype, device=device)


def _wide_weight(dtype: torch.dtype, device: str, tokens: int) -> list[Tensor]:
    qkv, q_weight, k_weight, cos, sin = _inputs(dtype, device, tokens)
    return [qkv, q_weight, k_weight.float(), cos, sin]


def _with_biases(dtype: torch.dtype, device: str, tokens: int) -> list[Tensor]:
    shape = (_HEADS.head_dim,)
    return [
        *_inputs(dtype, device, tokens),
        *random_tensors(shape, shape, dtype=dtype, device=device, seed=1),
    ]


def _narrow_angles(dtype: torch.dtype, device: str, tokens: int) -> list[Tensor]:
    qkv, q_weight, k_weight, cos, sin = _inputs(dtype, device, tokens)
    narrow = [each[..., :_ROTARY_DIM].contiguous() for each in (cos, sin)]
    return [qkv, q_weight, k_weight, *narrow]


def _narrow_with_biases(dtype: torch.dtype, device: str, tokens: int) -> list[Tensor]:
    return [
        *_narrow_angles(dtype, device, tokens),
        *_with_biases(dtype, device, tokens)[-2:],
    ]


def _rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    rotated: Tensor = torch.ops.npu.npu_rotary_mul(x.unsqueeze(0), cos, sin).squeeze(0)
    return rotated


def _biased(
    qkv: Tensor,
    q_weight: Tensor,
    k_weight: Tensor,
    cos: Tensor,
    sin: Tensor,
    q_bias: Tensor,
    k_bias: Tensor,
) -> tuple[Tensor, ...]:
    heads, npu = _HEADS, torch.ops.npu
    q, k, v = qkv.split([heads.q_size, heads.kv_size, heads.kv_size], dim=-1)  # type: ignore[no-untyped-call]
    q = npu.npu_rms_norm(q.view(-1, heads.num_heads, heads.head_dim), q_weight)[0] + q_bias
    k = npu.npu_rms_norm(k.view(-1, heads.num_kv_heads, heads.head_dim), k_weight)[0] + k_bias
    return _rotated(q, cos, sin), _rotated(k, cos, sin), v


@dataclass(frozen=True, kw_only=True)
class _PartialRope:
    """Rotates the first elements of each head and leaves the others, or some of them."""

    rest: int = _ROTARY_DIM

    def __call__(
        self,
        qkv: Tensor,
        q_weight: Tensor,
        k_weight: Tensor,
        cos: Tensor,
        sin: Tensor,
        *biases: Tensor,
    ) -> tuple[Tensor, ...]:
        heads, npu = _HEADS, torch.ops.npu
        q, k, v = qkv.split([heads.q_size, heads.kv_size, heads.kv_size], dim=-1)  # type: ignore[no-untyped-call]
        q = npu.npu_rms_norm(q.view(-1, heads.num_heads, heads.head_dim), q_weight)[0]
        k = npu.npu_rms_norm(k.view(-1, heads.num_kv_heads, heads.head_dim), k_weight)[0]
        if biases:
            q, k = q + biases[0], k + biases[1]
        q, k = (
            torch.cat([_rotated(x[..., :_ROTARY_DIM], cos, sin), x[..., self.rest :]], dim=-1)
            for x in (q, k)
        )
        return q, k, v


@dataclass(frozen=True, kw_only=True)
class _CachedRope:
    """Norms of heads in rows of their own, then RoPE by positions and a cache: SGLang's Qwen3."""

    section: tuple[int, ...] | None = (0, 0, 0)
    mode: str = "half"
    biased: bool = False
    vllm: bool = False

    def __call__(
        self,
        qkv: Tensor,
        q_weight: Tensor,
        k_weight: Tensor,
        cache: Tensor,
        positions: Tensor,
        q_bias: Tensor | None = None,
        k_bias: Tensor | None = None,
    ) -> tuple[Tensor, ...]:
        heads, size = _HEADS, _HEADS.head_dim
        q, k, v = qkv.split([heads.q_size, heads.kv_size, heads.kv_size], dim=-1)  # type: ignore[no-untyped-call]
        q_rows = torch.ops.npu.npu_rms_norm(q.reshape(-1, size), q_weight, 1e-5)[0]
        k_rows = torch.ops.npu.npu_rms_norm(k.reshape(-1, size), k_weight, 1e-5)[0]
        if self.biased:
            q_rows, k_rows = q_rows + q_bias, k_rows + k_bias
        q, k = q_rows.view(-1, heads.q_size), k_rows.view(-1, heads.kv_size)
        if self.vllm:
            rotary = cache.shape[1]
            turned = torch.ops.vllm.npu_rotary_embedding(
                positions, q, k, cache, size, rotary, self.mode == "half"
            )
        else:
            turned = torch.ops.npu.npu_mrope(
                positions,
                q,
                k,
                cache,
                size,
                mrope_section=None if self.section is None else list(self.section),
                rotary_mode=self.mode,
            )
        return turned[0], turned[1], v


@dataclass(frozen=True, kw_only=True)
class _UnflattenedHeads:
    """Norms of q, k and v by heads, then RoPE of q and k: vLLM's Gemma 3n and Gemma 4."""

    start: int = -2

    def __call__(
        self,
        qkv: Tensor,
        q_weight: Tensor,
        k_weight: Tensor,
        cache: Tensor,
        positions: Tensor,
        v_weight: Tensor,
        k_bias: Tensor,
    ) -> tuple[Tensor, ...]:
        del k_bias
        heads, size = _HEADS, _HEADS.head_dim
        q, k, v = qkv.split([heads.q_size, heads.kv_size, heads.kv_size], dim=-1)  # type: ignore[no-untyped-call]
        normed = (
            torch.ops.npu.npu_rms_norm(part.unflatten(-1, (count, size)), weight, 1e-5)[0]
            for part, count, weight in (
                (q, heads.num_heads, q_weight),
                (k, heads.num_kv_heads, k_weight),
                (v, heads.num_kv_heads, v_weight),
            )
        )
        q, k, v = (each.flatten(self.start, self.start + 1) for each in normed)
        turned = torch.ops.vllm.npu_rotary_embedding(
            positions, q, k, cache, size, cache.shape[1], True
        )
        return turned[0], turned[1], v


def _cached_inputs(
    *, planes: int = 0, rotary: int = _HEADS.head_dim, biased: bool = False
) -> FusionInputs:
    def inputs(dtype: torch.dtype, device: str, tokens: int) -> list[Tensor]:
        qkv, q_weight, k_weight, _, _ = _inputs(dtype, device, tokens)
        shape = (_HEADS.head_dim,)
        cache, *biases = random_tensors(
            (_LONGEST, rotary), shape, shape, dtype=dtype, device=device, seed=3
        )
        generator = torch.Generator().manual_seed(4)
        size = (planes, tokens) if planes else (tokens,)
        positions = torch.randint(0, _LONGEST, size, generator=generator).to(device)
        return [qkv, q_weight, k_weight, cache, positions, *(biases if biased else [])]

    return inputs


def _pipeline_without_kernels() -> Pipeline:
    rules = (
        fuse_split_qkv_rms_norm_mrope(kernels=()),
        fuse_split_qkv_rms_norm_rotary_embedding(kernels=()),
    )
    return Pipeline(
        passes=(
            NormalizePass(),
            RulePass(name="noops", rules=remove_noops()),
            RulePass(name="npu_fusions", rules=rules),
            ShareEqualCallsPass(),
        )
    )


# Rows of heads are no view of the projections.
_COPIES_MERGED = MappingProxyType({"merge_copy_and_reshape": 2})


def _own_shape(
    qkv: Tensor, q_weight: Tensor, k_weight: Tensor, cos: Tensor, sin: Tensor
) -> tuple[Tensor, ...]:
    """SGLang's form: contiguous heads, then the shape of the projection."""

    def rotated(x: Tensor, weight: Tensor) -> Tensor:
        heads = x.contiguous().view(x.shape[0], -1, _HEADS.head_dim)
        normed = torch.ops.npu.npu_rms_norm(heads, weight, _HEADS.eps)[0]
        turned: Tensor = torch.ops.npu.npu_rotary_mul(normed.unsqueeze(0), cos, sin)
        return turned.squeeze(0).view(x.shape)

    sizes = [_HEADS.q_size, _HEADS.kv_size, _HEADS.kv_size]
    q, k, v = qkv.split(sizes, dim=-1)  # type: ignore[no-untyped-call]
    return rotated(q, q_weight), rotated(k, k_weight), v


_GIVEN_ANGLES = (
    FusionCase(
        name="whole_heads",
        rule=_ROPE,
        function=qkv_function(_HEADS),
        inputs=_inputs,
        tokens={0: 0, 3: 1, 4: 1},
        pipeline=reference_pipeline,
        near_misses=(
            NearMissCase(name="dtypes", inputs=_wide_weight, reason="takes one dtype"),
            NearMissCase(
                name="narrow_angles",
                function=_PartialRope(rest=_ROTARY_DIM + 2).__call__,
                inputs=_narrow_angles,
                reason="are not the whole of a head of 16",
            ),
        ),
    ),
    FusionCase(
        name="views",
        rule=_ROPE,
        function=qkv_function(AttentionHeads(eps=1e-5), method="view", flatten=False),
        inputs=_inputs,
        tokens={0: 0, 3: 1, 4: 1},
        pipeline=reference_pipeline,
    ),
    FusionCase(
        name="own_shape",
        rule=_ROPE,
        function=_own_shape,
        inputs=_inputs,
        tokens={0: 0, 3: 1, 4: 1},
        pipeline=reference_pipeline,
        matches={_ROPE: 1, **_COPIES_MERGED},
    ),
    FusionCase(
        name="biased",
        rule=_ROPE,
        function=_biased,
        inputs=_with_biases,
        tokens={0: 0, 3: 1, 4: 1},
        pipeline=reference_pipeline,
    ),
    FusionCase(
        name="partial",
        rule=_ROPE,
        function=_PartialRope().__call__,
        inputs=_narrow_angles,
        tokens={0: 0, 3: 1, 4: 1},
        pipeline=reference_pipeline,
    ),
    FusionCase(
        name="partial_biased",
        rule=_ROPE,
        function=_PartialRope().__call__,
        inputs=_narrow_with_biases,
        tokens={0: 0, 3: 1, 4: 1},
        pipeline=reference_pipeline,
    ),
)

_BY_POSITIONS = (
    FusionCase(
        name="one_position",
        rule=_MROPE,
        function=_CachedRope().__call__,
        inputs=_cached_inputs(),
        tokens={0: 0, 4: 0},
        in_aten=_COPIES_MERGED,
        pipeline=_pipeline_without_kernels,
        near_misses=(
            NearMissCase(
                name="neighbours",
                function=_CachedRope(mode="interleaved").__call__,
                reason="neighbours are rotated",
            ),
            NearMissCase(
                name="sections",
                function=_CachedRope(section=(2, 3, 2)).__call__,
                inputs=_cached_inputs(planes=3),
                reason="the sections [2, 3, 2] do not fit",
            ),
        ),
    ),
    FusionCase(
        name="multimodal",
        rule=_MROPE,
        function=_CachedRope(section=(2, 3, 3)).__call__,
        inputs=_cached_inputs(planes=3),
        tokens={0: 0, 4: 1},
        in_aten=_COPIES_MERGED,
        pipeline=_pipeline_without_kernels,
    ),
    FusionCase(
        name="partial",
        rule=_MROPE,
        function=_CachedRope(section=None).__call__,
        inputs=_cached_inputs(rotary=_ROTARY_DIM),
        tokens={0: 0, 4: 0},
        in_aten=_COPIES_MERGED,
        pipeline=_pipeline_without_kernels,
    ),
    FusionCase(
        name="biased",
        rule=_MROPE,
        function=_CachedRope(biased=True).__call__,
        inputs=_cached_inputs(biased=True),
        tokens={0: 0, 4: 0},
        in_aten=_COPIES_MERGED,
        pipeline=_pipeline_without_kernels,
    ),
)

ROTARY_EMBEDDING_CASE = FusionCase(
    name="one_position",
    rule="fuse_split_qkv_rms_norm_rotary_embedding",
    function=_CachedRope(vllm=True).__call__,
    inputs=_cached_inputs(rotary=_ROTARY_DIM),
    tokens={0: 0, 4: 0},
    in_aten=_COPIES_MERGED,
    pipeline=_pipeline_without_kernels,
    near_misses=(
        NearMissCase(
            name="neighbours",
            function=_CachedRope(vllm=True, mode="interleaved").__call__,
            reason="neighbours are rotated",
        ),
    ),
)
"""For processes that have vLLM-Ascend's `vllm::npu_rotary_embedding`."""

_UNFLATTENED_CASE = FusionCase(
    name="unflattened",
    rule=ROTARY_EMBEDDING_CASE.rule,
    function=_UnflattenedHeads().__call__,
    inputs=_cached_inputs(biased=True),
    tokens={0: 0, 4: 0},
    in_aten={"merge_reshapes": 1, "remove_reshape": 1},
    pipeline=_pipeline_without_kernels,
    near_misses=(
        NearMissCase(
            name="rows_of_heads",
            function=_UnflattenedHeads(start=0).__call__,
            reason="`q` has rows of 16; expected 64, all heads",
        ),
    ),
)

ROTARY_CASES = (*_GIVEN_ANGLES, *_BY_POSITIONS, ROTARY_EMBEDDING_CASE, _UNFLATTENED_CASE)
