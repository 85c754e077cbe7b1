"""What each fusion replaces, as engines write it, and inputs for it."""

from __future__ import annotations

import dataclasses
from types import MappingProxyType
from typing import TYPE_CHECKING

import torch

from fx_passes.testing import random_tensors

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from torch import Tensor

_TOKENS, _HIDDEN, _HEADS, _HEAD_DIM, _POSITIONS = 33, 1024, 4, 128, 64
_EPS = 1e-5
_HALVES = (torch.bfloat16, torch.float16)


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class WrittenForm:
    """A function of operators that a fusion replaces.

    Attributes:
        function: of the inputs.
        shapes: of the inputs, which are random.
        roundings: how many roundings of the dtype the two ways may differ by.
        scales: gives further inputs, from a dtype: the scale and offset of a quantisation.
        dtypes: of the inputs.
    """

    function: Callable[..., tuple[Tensor, ...]]
    shapes: Sequence[Sequence[int]]
    roundings: int
    scales: Callable[[torch.dtype], list[Tensor]] = lambda _: []
    dtypes: Sequence[torch.dtype] = _HALVES

    def inputs(self, dtype: torch.dtype, device: torch.device) -> list[Tensor]:
        """Return the inputs, the same at each call."""
        tensors = random_tensors(*self.shapes, dtype=dtype, device="cpu")
        return [each.to(device) for each in (*tensors, *self.scales(dtype))]


def _scale_and_offset(dtype: torch.dtype, *, size: int, divide: bool) -> list[Tensor]:
    """Return what spreads values of about one over some 60 steps of int8."""
    spread, shift = random_tensors((size,), (size,), dtype=torch.float32, device="cpu", seed=1)
    factor = 15 + 5 * spread.clamp(-2, 2)
    offset = (2 * shift).clamp(-5, 5).round()
    # The operator that divides takes whole numbers beside float16.
    whole = torch.int32 if divide and dtype == torch.float16 else dtype
    return [(1 / factor if divide else factor).to(dtype), offset.to(whole)]


def _divisors(dtype: torch.dtype) -> list[Tensor]:
    return _scale_and_offset(dtype, size=_HIDDEN, divide=True)


def _divisors_of_half(dtype: torch.dtype) -> list[Tensor]:
    return _scale_and_offset(dtype, size=_HIDDEN // 2, divide=True)


def _one_divisor(dtype: torch.dtype) -> list[Tensor]:
    return _scale_and_offset(dtype, size=1, divide=True)[:1]


def _two_factors(dtype: torch.dtype) -> list[Tensor]:
    return [torch.full((_HIDDEN,), size, dtype=dtype) for size in (0.0625, 0.125)]


def _positions(dtype: torch.dtype) -> list[Tensor]:
    del dtype
    generator = torch.Generator().manual_seed(2)
    return [torch.randint(0, _POSITIONS, (_TOKENS,), generator=generator)]


def _normed(x: Tensor, weight: Tensor) -> Tensor:
    normed: Tensor = torch.ops.npu.npu_rms_norm(x, weight, _EPS)[0]
    return normed


def _quantized(x: Tensor, scale: Tensor, offset: Tensor | None, *, divide: bool = True) -> Tensor:
    steps: Tensor = torch.ops.npu.npu_quantize(x, scale, offset, torch.qint8, -1, divide)
    return steps


def _add_norm(x: Tensor, residual: Tensor, weight: Tensor) -> tuple[Tensor, ...]:
    total = x + residual
    return _normed(total, weight), total


def _add_norm_cast(x: Tensor, residual: Tensor, weight: Tensor) -> tuple[Tensor, ...]:
    normed, total = _add_norm(x, residual, weight)
    return normed.to(torch.float32), normed, total


def _add_norm_view_cast(x: Tensor, residual: Tensor, weight: Tensor) -> tuple[Tensor, ...]:
    normed, total = _add_norm(x, residual, weight)
    rows = normed.view(-1, _HIDDEN)
    return rows.to(torch.float32), rows + 1, total


def _add_norm_quant(
    x: Tensor, residual: Tensor, weight: Tensor, scale: Tensor, offset: Tensor
) -> tuple[Tensor, ...]:
    normed, total = _add_norm(x, residual, weight)
    return _quantized(normed, scale, offset), total


def _add_norm_two_quants(
    x: Tensor, residual: Tensor, weight: Tensor, first: Tensor, second: Tensor
) -> tuple[Tensor, ...]:
    normed, _, total = torch.ops.npu.npu_add_rms_norm(x, residual, weight, _EPS)
    steps = [_quantized(normed, scale, None, divide=False) for scale in (first, second)]
    return *steps, total


def _add_norm_dynamic_quant(x: Tensor, residual: Tensor, weight: Tensor) -> tuple[Tensor, ...]:
    normed, total = _add_norm(x, residual, weight)
    steps, scale = torch.ops.npu.npu_dynamic_quant(normed)
    return steps, scale, total


def _norm_quant(x: Tensor, weight: Tensor, scale: Tensor) -> tuple[Tensor, ...]:
    return (_quantized(_normed(x, weight), scale, None),)


def _clipped_swiglu(x: Tensor) -> tuple[Tensor, ...]:
    gate, up = x[..., ::2].clamp(max=1.5), x[..., 1::2].clamp(min=-1.5, max=1.5)
    return (gate * torch.sigmoid(gate * 1.702) * (up + 1),)


def _swiglu(x: Tensor) -> tuple[Tensor, ...]:
    gate, up = x.chunk(2, dim=-1)
    return (torch.nn.functional.silu(gate) * up,)


def _geglu(x: Tensor) -> tuple[Tensor, ...]:
    gate, up = x.chunk(2, dim=-1)
    return (torch.nn.functional.gelu(gate, approximate="tanh") * up,)


def _swiglu_quant(x: Tensor, scale: Tensor, offset: Tensor) -> tuple[Tensor, ...]:
    return (_quantized(torch.ops.npu.npu_swiglu(x), scale, offset),)


def _swiglu_dynamic_quant(x: Tensor) -> tuple[Tensor, ...]:
    steps, scale = torch.ops.npu.npu_dynamic_quant(torch.ops.npu.npu_swiglu(x))
    return steps, scale


def _heads_first(x: Tensor, weight: Tensor) -> tuple[Tensor, ...]:
    return (torch.bmm(x.transpose(0, 1), weight).transpose(0, 1),)


def _weighted_sum(routed: Tensor, shared: Tensor, weight: Tensor) -> tuple[Tensor, ...]:
    return (shared + weight * routed,)


def _cut(qkv: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    q, k, v = qkv.split([_HEADS * _HEAD_DIM] * 3, dim=-1)  # type: ignore[no-untyped-call]
    return q, k, v


def _given_angles(
    qkv: Tensor, q_weight: Tensor, k_weight: Tensor, cos: Tensor, sin: Tensor
) -> tuple[Tensor, ...]:
    def rotated(x: Tensor, weight: Tensor) -> Tensor:
        heads = _normed(x.reshape(-1, _HEADS, _HEAD_DIM), weight)
        turned: Tensor = torch.ops.npu.npu_rotary_mul(heads.unsqueeze(0), cos, sin).squeeze(0)
        return turned.reshape(-1, _HEADS * _HEAD_DIM)

    q, k, v = _cut(qkv)
    return rotated(q, q_weight), rotated(k, k_weight), v * 2


def _angles_by_position(
    qkv: Tensor, q_weight: Tensor, k_weight: Tensor, cache: Tensor, positions: Tensor
) -> tuple[Tensor, ...]:
    q, k, v = _cut(qkv)
    q, k = (
        _normed(x.reshape(-1, _HEAD_DIM), weight).view(-1, _HEADS * _HEAD_DIM)
        for x, weight in ((q, q_weight), (k, k_weight))
    )
    turned = torch.ops.npu.npu_mrope(
        positions, q, k, cache, _HEAD_DIM, mrope_section=[0, 0, 0], rotary_mode="half"
    )
    return turned[0], turned[1], v * 2


_NORM = ((_TOKENS, _HIDDEN), (_TOKENS, _HIDDEN), (_HIDDEN,))
_BATCHED_NORM = ((2, _TOKENS, _HIDDEN), (2, _TOKENS, _HIDDEN), (_HIDDEN,))
_ROWS = ((_TOKENS, _HIDDEN),)
_QKV = ((_TOKENS, 3 * _HEADS * _HEAD_DIM), (_HEAD_DIM,), (_HEAD_DIM,))
_ANGLES = (1, _TOKENS, 1, _HEAD_DIM)

# A fused kernel may leave out the roundings between the operators that it replaces, those of a sum
# before a norm, of the norm and of a reciprocal, and rounds its own result.
WRITTEN_FORMS: Mapping[str, WrittenForm] = MappingProxyType(
    {
        "fuse_add_rms_norm": WrittenForm(function=_add_norm, shapes=_NORM, roundings=2),
        "fuse_add_rms_norm_cast": WrittenForm(function=_add_norm_cast, shapes=_NORM, roundings=3),
        "fuse_add_rms_norm_view_cast": WrittenForm(
            function=_add_norm_view_cast, shapes=_BATCHED_NORM, roundings=3
        ),
        "fuse_add_rms_norm_quant": WrittenForm(
            function=_add_norm_quant, shapes=_NORM, scales=_divisors, roundings=2
        ),
        "fuse_add_rms_norm_two_quants": WrittenForm(
            function=_add_norm_two_quants, shapes=_NORM, scales=_two_factors, roundings=3
        ),
        "fuse_add_rms_norm_dynamic_quant": WrittenForm(
            function=_add_norm_dynamic_quant, shapes=_NORM, roundings=4
        ),
        "fuse_rms_norm_quant": WrittenForm(
            function=_norm_quant, shapes=(_ROWS[0], (_HIDDEN,)), scales=_one_divisor, roundings=2
        ),
        "fuse_clipped_swiglu": WrittenForm(function=_clipped_swiglu, shapes=_ROWS, roundings=2),
        "fuse_swiglu": WrittenForm(function=_swiglu, shapes=_ROWS, roundings=2),
        "fuse_geglu": WrittenForm(function=_geglu, shapes=_ROWS, roundings=2),
        "fuse_swiglu_quant": WrittenForm(
            function=_swiglu_quant, shapes=_ROWS, scales=_divisors_of_half, roundings=2
        ),
        # The kernel takes bfloat16 alone.
        "fuse_swiglu_dynamic_quant": WrittenForm(
            function=_swiglu_dynamic_quant, shapes=_ROWS, roundings=2, dtypes=(torch.bfloat16,)
        ),
        "fuse_batch_matmul_transpose": WrittenForm(
            function=_heads_first,
            shapes=((_TOKENS, _HEADS, 128), (_HEADS, 128, 256)),
            roundings=1,
        ),
        "fuse_multiply_add": WrittenForm(function=_weighted_sum, shapes=_NORM, roundings=3),
        "fuse_split_qkv_rms_norm_rope": WrittenForm(
            function=_given_angles, shapes=(*_QKV, _ANGLES, _ANGLES), roundings=3
        ),
        "fuse_split_qkv_rms_norm_mrope": WrittenForm(
            function=_angles_by_position,
            shapes=(*_QKV, (_POSITIONS, _HEAD_DIM)),
            scales=_positions,
            roundings=3,
        ),
    }
)
