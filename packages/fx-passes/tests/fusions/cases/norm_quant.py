"""RMSNorm followed by quantisation, as engines emit it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from fusions.cases.norm import norm_inputs
from fusions.fusion_case import FusionCase, FusionInputs, NearMissCase
from fx_passes.testing import random_tensors

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["NORM_QUANT_CASES", "StaticQuant", "quant_factors"]

_HIDDEN = 64
_BOTH = MappingProxyType({0: 0, 1: 0})
_FLOAT8 = 292
"""torch_npu.float8_e4m3fn as `npu_dynamic_mx_quant` numbers it."""


@dataclass(frozen=True, kw_only=True)
class StaticQuant:
    """A norm followed by `npu_quantize`, as an engine writes them.

    Attributes:
        joined: Whether it uses `npu_add_rms_norm`; otherwise an addition and `npu_rms_norm`.
        residual: Whether there is a residual.
        biased: Whether a bias is added to the norm, as with smoothed weights.
        inverted: Whether the graph inverts the scale itself.
        div_mode: Argument of the operator.
        axis: Argument of the operator.
        eps: Epsilon of the norm.
    """

    joined: bool = False
    residual: bool = True
    biased: bool = False
    inverted: bool = False
    div_mode: bool = False
    axis: int = -1
    eps: float = 1e-5

    def __call__(
        self,
        x: Tensor,
        residual: Tensor,
        weight: Tensor,
        beta: Tensor,
        scale: Tensor,
        offset: Tensor | None = None,
    ) -> tuple[Tensor, ...]:
        """Return the quantised norm, and the sum where there is one."""
        npu = torch.ops.npu
        if self.joined:
            normed, _, total = npu.npu_add_rms_norm(x, residual, weight, self.eps)
        else:
            total = x + residual if self.residual else x
            normed = npu.npu_rms_norm(total, weight, self.eps)[0]
        if self.biased:
            normed = normed + beta
        factor = 1.0 / scale if self.inverted else scale
        quantized = npu.npu_quantize(normed, factor, offset, torch.qint8, self.axis, self.div_mode)
        return (quantized, total) if self.residual else (quantized,)


def quant_factors(
    dtype: torch.dtype, device: str, *, size: int = _HIDDEN, divide: bool = False
) -> tuple[Tensor, Tensor]:
    """Return a scale and an offset of [size] for values of about one.

    Scales that spread values over about 60 steps, whole offsets of at most 5.
    """
    spread, shift = random_tensors((size,), (size,), dtype=torch.float32, device="cpu", seed=1)
    factor = 15 + 5 * spread.clamp(-2, 2)
    scale = 1 / factor if divide else factor
    return scale.to(dtype).to(device), (2 * shift).clamp(-5, 5).round().to(dtype).to(device)


def _static_inputs(*, divide: bool, offset: bool = True, size: int = _HIDDEN) -> FusionInputs:
    def inputs(dtype: torch.dtype, device: str, tokens: int) -> list[Tensor]:
        x, residual, weight = norm_inputs(dtype, device, tokens)
        (beta,) = random_tensors((_HIDDEN,), dtype=dtype, device=device, seed=2)
        scale, shift = quant_factors(dtype, device, size=size, divide=divide)
        # The operator that divides accepts integers with float16.
        if divide and dtype == torch.float16:
            shift = shift.to(torch.int32)
        return [x, residual, weight, beta, scale, *([shift] if offset else [])]

    return inputs


def _narrow(dtype: torch.dtype, device: str, tokens: int) -> list[Tensor]:
    return [
        each[..., :24].contiguous() for each in _static_inputs(divide=False)(dtype, device, tokens)
    ]


def _float_scale(dtype: torch.dtype, device: str, tokens: int) -> list[Tensor]:
    *others, scale, offset = _static_inputs(divide=False)(dtype, device, tokens)
    return [*others, scale.float(), offset]


def _short_bias(dtype: torch.dtype, device: str, tokens: int) -> list[Tensor]:
    x, residual, weight, _, *factors = _static_inputs(divide=False)(dtype, device, tokens)
    return [x, residual, weight, torch.empty_like(x), *factors]


_MULTIPLIED = _static_inputs(divide=False)
_DIVIDED = _static_inputs(divide=True)
_ONE = _static_inputs(divide=True, offset=False, size=1)
_ONE_MULTIPLIED = _static_inputs(divide=False, offset=False, size=1)
_STATIC = "fuse_add_rms_norm_quant"
# Roundings that only the unfused operators make, in the dtype of the inputs: of the norm; of the
# sum where an addition is apart from its norm; of the bias added; of the reciprocal of the scale.
_STATIC_CASES = (
    FusionCase(
        name="multiplied_joined",
        rule=_STATIC,
        function=StaticQuant(joined=True).__call__,
        inputs=_MULTIPLIED,
        tokens=_BOTH,
        roundings=2,
        near_misses=(
            NearMissCase(
                name="axis",
                function=StaticQuant(axis=0).__call__,
                reason="along axis 0 of 2",
            ),
            NearMissCase(name="block", inputs=_narrow, reason="no multiple of 32 bytes"),
            NearMissCase(name="scale", inputs=_float_scale, reason="dtype torch.float32"),
            NearMissCase(
                name="one_scale",
                inputs=_ONE_MULTIPLIED,
                reason="`weight` has shape [64] and `scale` [1]",
            ),
        ),
    ),
    FusionCase(
        name="multiplied_separate",
        rule=_STATIC,
        function=StaticQuant().__call__,
        inputs=_MULTIPLIED,
        tokens=_BOTH,
        roundings=3,
    ),
    FusionCase(
        name="reciprocal_in_graph",
        rule=_STATIC,
        function=StaticQuant(joined=True, inverted=True).__call__,
        inputs=_static_inputs(divide=True, offset=False),
        tokens=_BOTH,
        roundings=2,
    ),
    FusionCase(
        name="divided_joined",
        rule=_STATIC,
        function=StaticQuant(joined=True, div_mode=True).__call__,
        inputs=_DIVIDED,
        tokens=_BOTH,
        roundings=1,
    ),
    FusionCase(
        name="divided_separate",
        rule=_STATIC,
        function=StaticQuant(div_mode=True).__call__,
        inputs=_DIVIDED,
        tokens=_BOTH,
        roundings=2,
    ),
    FusionCase(
        name="biased",
        rule=_STATIC,
        function=StaticQuant(joined=True, biased=True, div_mode=True).__call__,
        inputs=_DIVIDED,
        tokens=_BOTH,
        roundings=3,
        near_misses=(
            NearMissCase(
                name="bias_of_each_token",
                inputs=_short_bias,
                reason="`weight` has shape [64] and `beta`",
            ),
        ),
    ),
    FusionCase(
        name="biased_separate",
        rule=_STATIC,
        function=StaticQuant(biased=True).__call__,
        inputs=_MULTIPLIED,
        tokens=_BOTH,
        roundings=4,
    ),
)

_ALONE_CASES = (
    FusionCase(
        name="one_scale",
        rule="fuse_rms_norm_quant",
        function=StaticQuant(residual=False, div_mode=True).__call__,
        inputs=_ONE,
        # The fused kernel rounds to float16 before it rounds to integers.
        roundings=2,
        near_misses=(
            NearMissCase(
                name="channels",
                inputs=_static_inputs(divide=True, offset=False),
                reason="which Ascend950 alone has; the rule was made for every device",
            ),
            NearMissCase(
                name="offset",
                inputs=_static_inputs(divide=True, size=1),
                reason="the kernel takes torch.int8",
            ),
        ),
    ),
    FusionCase(
        name="one_scale_multiplied",
        rule="fuse_rms_norm_quant",
        function=StaticQuant(residual=False, biased=True).__call__,
        inputs=_ONE_MULTIPLIED,
        roundings=4,
    ),
)


@dataclass(frozen=True, kw_only=True)
class _DynamicQuant:
    """A norm and `npu_dynamic_quant`, or its block-wise form, as an engine writes them."""

    joined: bool = False
    residual: bool = True
    biased: bool = False
    smoothed: bool = False
    mode: str = "pertoken"
    view: Callable[[Tensor], Tensor] | None = None

    def normed(
        self, x: Tensor, residual: Tensor, weight: Tensor, beta: Tensor
    ) -> tuple[Tensor, Tensor]:
        npu = torch.ops.npu
        if self.joined:
            normed, _, total = npu.npu_add_rms_norm(x, residual, weight, 1e-5)
        else:
            total = x + residual if self.residual else x
            normed = npu.npu_rms_norm(total, weight, 1e-5)[0]
        return (normed + beta if self.biased else normed), total

    def __call__(
        self, x: Tensor, residual: Tensor, weight: Tensor, beta: Tensor
    ) -> tuple[Tensor, ...]:
        normed, total = self.normed(x, residual, weight, beta)
        if self.view is not None:
            normed = self.view(normed)
        smooth = weight if self.smoothed else None
        quantized, scale = torch.ops.npu.npu_dynamic_quant(
            normed, smooth_scales=smooth, quant_mode=self.mode
        )
        return quantized, scale, total

    def in_blocks(
        self, x: Tensor, residual: Tensor, weight: Tensor, beta: Tensor
    ) -> tuple[Tensor, ...]:
        normed, total = self.normed(x, residual, weight, beta)
        quantized, scale = torch.ops.npu.npu_dynamic_mx_quant(normed, dst_type=_FLOAT8)
        return (quantized, scale, total) if self.residual else (quantized, scale)

    def in_wide_blocks(
        self, x: Tensor, residual: Tensor, weight: Tensor, beta: Tensor
    ) -> tuple[Tensor, ...]:
        normed, total = self.normed(x, residual, weight, beta)
        quantized, scale = torch.ops.npu.npu_dynamic_mx_quant(
            normed, dst_type=_FLOAT8, block_size=64
        )
        return quantized, scale, total


def _dynamic_inputs(dtype: torch.dtype, device: str, tokens: int) -> list[Tensor]:
    (beta,) = random_tensors((_HIDDEN,), dtype=dtype, device=device, seed=2)
    return [*norm_inputs(dtype, device, tokens), beta]


def _batched_inputs(dtype: torch.dtype, device: str, tokens: int) -> list[Tensor]:
    """Return x and residual [2, tokens, 64], a weight and a bias [64]."""
    shapes = (2, tokens, _HIDDEN), (2, tokens, _HIDDEN), (_HIDDEN,), (_HIDDEN,)
    return random_tensors(*shapes, dtype=dtype, device=device)


_VIEWS: dict[str, Callable[[Tensor], Tensor]] = {
    "view": lambda normed: normed.view(-1, _HIDDEN),
    "own_size": lambda normed: normed.view(-1, normed.size(-1)),
    "flatten": lambda normed: normed.flatten(0, 1),
    "flatten_from_the_end": lambda normed: normed.flatten(-3, -2),
    "reshape": lambda normed: normed.reshape(normed.shape[0] * normed.shape[1], -1),
}
_DYNAMIC = "fuse_add_rms_norm_dynamic_quant"
# As above, and again for the largest value of the row, of which the scale is made.
_DYNAMIC_CASES = (
    FusionCase(
        name="joined",
        rule=_DYNAMIC,
        function=_DynamicQuant(joined=True).__call__,
        inputs=_dynamic_inputs,
        tokens=_BOTH,
        roundings=2,
        near_misses=(
            NearMissCase(
                name="mode",
                function=_DynamicQuant(mode="pertensor").__call__,
                reason="expected 'pertoken', found 'pertensor'",
            ),
            NearMissCase(name="float32", dtype=torch.float32, reason="the kernel takes"),
        ),
    ),
    FusionCase(
        name="separate",
        rule=_DYNAMIC,
        function=_DynamicQuant().__call__,
        inputs=_dynamic_inputs,
        tokens=_BOTH,
        roundings=4,
    ),
    FusionCase(
        name="smoothed",
        rule=_DYNAMIC,
        function=_DynamicQuant(joined=True, smoothed=True).__call__,
        inputs=_dynamic_inputs,
        tokens=_BOTH,
        roundings=2,
    ),
    FusionCase(
        name="biased",
        rule=_DYNAMIC,
        function=_DynamicQuant(joined=True, biased=True).__call__,
        inputs=_dynamic_inputs,
        tokens=_BOTH,
        roundings=6,
    ),
    *(
        FusionCase(
            name=f"joined_{name}",
            rule=_DYNAMIC,
            function=_DynamicQuant(joined=True, smoothed=True, view=view).__call__,
            inputs=_batched_inputs,
            tokens={0: 1, 1: 1},
            roundings=2,
        )
        for name, view in _VIEWS.items()
    ),
    FusionCase(
        name="biased_view",
        rule=_DYNAMIC,
        function=_DynamicQuant(biased=True, view=_VIEWS["view"]).__call__,
        inputs=_batched_inputs,
        tokens={0: 1, 1: 1},
        roundings=6,
        near_misses=(
            NearMissCase(
                name="cut_rows",
                function=_DynamicQuant(view=lambda normed: normed.view(-1, 32)).__call__,
                reason="which does not keep the rows",
            ),
            NearMissCase(
                name="flat_rows",
                function=_DynamicQuant(view=lambda normed: normed.flatten(1, 2)).__call__,
                reason="which does not keep the rows",
            ),
        ),
    ),
)

_MX = "fuse_add_rms_norm_dynamic_mx_quant"
_MX_CASES = (
    *(
        FusionCase(
            name=name,
            rule=_MX,
            function=form.in_blocks,
            inputs=_dynamic_inputs,
            tokens=_BOTH,
            missing_kernel="aclnnAddRmsNormDynamicMxQuant",
        )
        for name, form in (
            ("joined", _DynamicQuant(joined=True)),
            ("biased", _DynamicQuant(joined=True, biased=True)),
        )
    ),
    FusionCase(
        name="separate",
        rule=_MX,
        function=_DynamicQuant().in_blocks,
        inputs=_dynamic_inputs,
        tokens=_BOTH,
        missing_kernel="aclnnAddRmsNormDynamicMxQuant",
        near_misses=(
            NearMissCase(
                name="blocks",
                function=_DynamicQuant().in_wide_blocks,
                reason="blocks of 64",
            ),
        ),
    ),
    FusionCase(
        name="plain",
        rule="fuse_rms_norm_dynamic_mx_quant",
        function=_DynamicQuant(residual=False).in_blocks,
        inputs=_dynamic_inputs,
        missing_kernel="aclnnRmsNormDynamicMxQuant",
        near_misses=(
            NearMissCase(
                name="blocks",
                function=_DynamicQuant(residual=False).in_wide_blocks,
                reason="blocks of 64",
            ),
        ),
    ),
    FusionCase(
        name="biased",
        rule="fuse_rms_norm_dynamic_mx_quant",
        function=_DynamicQuant(residual=False, biased=True).in_blocks,
        inputs=_dynamic_inputs,
        missing_kernel="aclnnRmsNormDynamicMxQuant",
    ),
)

NORM_QUANT_CASES = (*_STATIC_CASES, *_ALONE_CASES, *_DYNAMIC_CASES, *_MX_CASES)
