"""What each fusion replaces, as engines write it, and inputs for it."""

from __future__ import annotations

import dataclasses
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import torch

from fx_passes.testing import random_tensors

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from torch import Tensor

_TOKENS, _HIDDEN, _HEADS, _HEAD_DIM, _POSITIONS = 33, 1024, 4, 128, 64
_EPS = 1e-5
_HALVES = (torch.bfloat16, torch.float16)


@dataclasses.dataclass(frozen=True, slots=True)
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
    _: dataclasses.KW_ONLY
    shapes: Sequence[Sequence[int]]
    roundings: int
    scales: Callable[[torch.dtype], list[Tensor]] = lambda _: []
    dtypes: Sequence[torch.dtype] = _HALVES

    def inputs(self, dtype: torch.dtype, device: torch.device) -> list[Tensor]:
        """Return the inputs, the same at each call."""
        tensors = random_tensors(*self.shapes, dtype=dtype, device="cpu")
        return [each.to(device) for each in (*tensors, *self.scales(dtype))]


def _replaced(
    *shapes: Sequence[int], roundings: int, **options: Any
) -> Callable[[Callable[..., tuple[Tensor, ...]]], WrittenForm]:
    """Return a decorator of what the rule ``fuse`` + its name replaces, see `WrittenForm`.

    A fused kernel may leave out the roundings between the operators that it replaces, those of a
    sum before a norm, of the norm and of a reciprocal, and rounds its own result.
    """
    return partial(WrittenForm, shapes=shapes, roundings=roundings, **options)


_ROWS, _QKV = (_TOKENS, _HIDDEN), (_TOKENS, 3 * _HEADS * _HEAD_DIM)
_NORM = (_ROWS, _ROWS, (_HIDDEN,))
_ANGLES, _WEIGHTS = (1, _TOKENS, 1, _HEAD_DIM), ((_HEAD_DIM,), (_HEAD_DIM,))


def _divisors(dtype: torch.dtype, *, size: int = _HIDDEN) -> list[Tensor]:
    """Return scale and offset that spread values of about one over some 60 steps of int8."""
    spread, shift = random_tensors((size,), (size,), dtype=torch.float32, device="cpu", seed=1)
    factor = 15 + 5 * spread.clamp(-2, 2)
    offset = (2 * shift).clamp(-5, 5).round()
    # The operator that divides takes whole numbers beside float16.
    whole = torch.int32 if dtype == torch.float16 else dtype
    return [(1 / factor).to(dtype), offset.to(whole)]


def _one_divisor(dtype: torch.dtype) -> list[Tensor]:
    return _divisors(dtype, size=1)[:1]


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


@_replaced(*_NORM, roundings=2)
def _add_rms_norm(x: Tensor, residual: Tensor, weight: Tensor) -> tuple[Tensor, ...]:
    total = x + residual
    return _normed(total, weight), total


@_replaced(*_NORM, roundings=3)
def _add_rms_norm_cast(x: Tensor, residual: Tensor, weight: Tensor) -> tuple[Tensor, ...]:
    normed, total = _add_rms_norm.function(x, residual, weight)
    return normed.to(torch.float32), normed, total


@_replaced((2, *_ROWS), (2, *_ROWS), (_HIDDEN,), roundings=3)
def _add_rms_norm_view_cast(x: Tensor, residual: Tensor, weight: Tensor) -> tuple[Tensor, ...]:
    normed, total = _add_rms_norm.function(x, residual, weight)
    rows = normed.view(-1, _HIDDEN)
    return rows.to(torch.float32), rows + 1, total


@_replaced(*_NORM, roundings=2, scales=_divisors)
def _add_rms_norm_quant(
    x: Tensor, residual: Tensor, weight: Tensor, scale: Tensor, offset: Tensor
) -> tuple[Tensor, ...]:
    normed, total = _add_rms_norm.function(x, residual, weight)
    return _quantized(normed, scale, offset), total


@_replaced(*_NORM, roundings=3, scales=_two_factors)
def _add_rms_norm_two_quants(
    x: Tensor, residual: Tensor, weight: Tensor, first: Tensor, second: Tensor
) -> tuple[Tensor, ...]:
    normed, _, total = torch.ops.npu.npu_add_rms_norm(x, residual, weight, _EPS)
    steps = [_quantized(normed, scale, None, divide=False) for scale in (first, second)]
    return *steps, total


@_replaced(*_NORM, roundings=4)
def _add_rms_norm_dynamic_quant(x: Tensor, residual: Tensor, weight: Tensor) -> tuple[Tensor, ...]:
    normed, total = _add_rms_norm.function(x, residual, weight)
    steps, scale = torch.ops.npu.npu_dynamic_quant(normed)
    return steps, scale, total


@_replaced(_ROWS, (_HIDDEN,), roundings=2, scales=_one_divisor)
def _rms_norm_quant(x: Tensor, weight: Tensor, scale: Tensor) -> tuple[Tensor, ...]:
    return (_quantized(_normed(x, weight), scale, None),)


@_replaced(_ROWS, roundings=2)
def _clipped_swiglu(x: Tensor) -> tuple[Tensor, ...]:
    gate, up = x[..., ::2].clamp(max=1.5), x[..., 1::2].clamp(min=-1.5, max=1.5)
    return (gate * torch.sigmoid(gate * 1.702) * (up + 1),)


@_replaced(_ROWS, roundings=2)
def _swiglu(x: Tensor) -> tuple[Tensor, ...]:
    gate, up = x.chunk(2, dim=-1)
    return (torch.nn.functional.silu(gate) * up,)


@_replaced(_ROWS, roundings=2)
def _geglu(x: Tensor) -> tuple[Tensor, ...]:
    gate, up = x.chunk(2, dim=-1)
    return (torch.nn.functional.gelu(gate, approximate="tanh") * up,)


@_replaced(_ROWS, roundings=2, scales=partial(_divisors, size=_HIDDEN // 2))
def _swiglu_quant(x: Tensor, scale: Tensor, offset: Tensor) -> tuple[Tensor, ...]:
    return (_quantized(torch.ops.npu.npu_swiglu(x), scale, offset),)


# The kernel takes bfloat16 alone.
@_replaced(_ROWS, roundings=2, dtypes=(torch.bfloat16,))
def _swiglu_dynamic_quant(x: Tensor) -> tuple[Tensor, ...]:
    steps, scale = torch.ops.npu.npu_dynamic_quant(torch.ops.npu.npu_swiglu(x))
    return steps, scale


@_replaced((_TOKENS, _HEADS, 128), (_HEADS, 128, 256), roundings=1)
def _batch_matmul_transpose(x: Tensor, weight: Tensor) -> tuple[Tensor, ...]:
    return (torch.bmm(x.transpose(0, 1), weight).transpose(0, 1),)


@_replaced(*_NORM, roundings=3)
def _multiply_add(routed: Tensor, shared: Tensor, weight: Tensor) -> tuple[Tensor, ...]:
    return (shared + weight * routed,)


def _cut(qkv: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    q, k, v = qkv.split([_HEADS * _HEAD_DIM] * 3, dim=-1)  # type: ignore[no-untyped-call]
    return q, k, v


@_replaced(_QKV, *_WEIGHTS, _ANGLES, _ANGLES, roundings=3)
def _split_qkv_rms_norm_rope(
    qkv: Tensor, q_weight: Tensor, k_weight: Tensor, cos: Tensor, sin: Tensor
) -> tuple[Tensor, ...]:
    def rotated(x: Tensor, weight: Tensor) -> Tensor:
        heads = _normed(x.reshape(-1, _HEADS, _HEAD_DIM), weight)
        turned: Tensor = torch.ops.npu.npu_rotary_mul(heads.unsqueeze(0), cos, sin).squeeze(0)
        return turned.reshape(-1, _HEADS * _HEAD_DIM)

    q, k, v = _cut(qkv)
    return rotated(q, q_weight), rotated(k, k_weight), v * 2


@_replaced(_QKV, *_WEIGHTS, (_POSITIONS, _HEAD_DIM), roundings=3, scales=_positions)
def _split_qkv_rms_norm_mrope(
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


WRITTEN_FORMS: Mapping[str, WrittenForm] = MappingProxyType(
    {
        f"fuse{form.function.__name__}": form
        for form in (
            _add_rms_norm,
            _add_rms_norm_cast,
            _add_rms_norm_view_cast,
            _add_rms_norm_quant,
            _add_rms_norm_two_quants,
            _add_rms_norm_dynamic_quant,
            _rms_norm_quant,
            _clipped_swiglu,
            _swiglu,
            _geglu,
            _swiglu_quant,
            _swiglu_dynamic_quant,
            _batch_matmul_transpose,
            _multiply_add,
            _split_qkv_rms_norm_rope,
            _split_qkv_rms_norm_mrope,
        )
    }
)
"""By the names of the rules."""
