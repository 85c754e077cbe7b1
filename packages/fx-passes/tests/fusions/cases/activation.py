"""Gated activations, with and without quantisation after them, and multiply-add."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import functional

from fusions.cases.norm_quant import quant_factors
from fusions.fusion_case import FusionCase, FusionInputs, NearMissCase
from fx_passes.testing import random_tensors

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["ACTIVATION_CASES"]

_WIDTH = 128
_FLOATS = (torch.bfloat16, torch.float16, torch.float32)


def _halves(dtype: torch.dtype, device: str, tokens: int) -> list[Tensor]:
    return random_tensors((tokens, _WIDTH), dtype=dtype, device=device)


def _gelu(gate: Tensor) -> Tensor:
    return functional.gelu(gate)


def _tanh_gelu(gate: Tensor) -> Tensor:
    return functional.gelu(gate, approximate="tanh")


@dataclass(frozen=True, kw_only=True)
class _Gated:
    """`activation(gate) * up`, gate and up cut from one tensor."""

    activation: Callable[[Tensor], Tensor]
    dim: int = -1

    def __call__(self, x: Tensor) -> Tensor:
        gate, up = x.chunk(2, dim=self.dim)
        return self.activation(gate) * up

    def sliced(self, x: Tensor) -> Tensor:
        half = x.shape[-1] // 2
        return x[..., half:] * self.activation(x[..., :half])

    def exchanged(self, x: Tensor) -> Tensor:
        return self.activation(x[..., _WIDTH // 2 :]) * x[..., : _WIDTH // 2]


def _gated_cases(
    rule: str,
    activations: dict[str, Callable[[Tensor], Tensor]],
    dtypes: tuple[torch.dtype, ...] = _FLOATS,
) -> tuple[FusionCase, ...]:
    first = next(iter(activations.values()))
    near_misses = (
        NearMissCase(
            name="other_dimension",
            function=_Gated(activation=first, dim=0).__call__,
            reason="along dimension 0",
        ),
        NearMissCase(
            name="exchanged",
            function=_Gated(activation=first).exchanged,
            reason="are not the two halves of 128",
        ),
        NearMissCase(name="float64", dtype=torch.float64, reason="the kernel takes"),
    )
    cases = []
    for name, activation in activations.items():
        form = _Gated(activation=activation)
        cases += [
            FusionCase(
                name=f"{name}_{how}",
                rule=rule,
                function=function,
                inputs=_halves,
                dtypes=dtypes,
                # One rounding of the activated gate, and that of the product on either side.
                roundings=2,
                near_misses=near_misses if activation is first and how == "chunked" else (),
            )
            for how, function in (("chunked", form.__call__), ("sliced", form.sliced))
        ]
    return tuple(cases)


@dataclass(frozen=True, kw_only=True)
class _QuantizedSwiglu:
    """SwiGLU and quantisation, as an engine for NPUs writes them."""

    div_mode: bool = True
    smoothed: bool = False
    offset: bool = True
    spelt_out: bool = False

    def activated(self, x: Tensor) -> Tensor:
        if self.spelt_out:
            gate, up = x.chunk(2, dim=-1)
            return functional.silu(gate) * up
        activated: Tensor = torch.ops.npu.npu_swiglu(x)
        return activated

    def static(self, x: Tensor, scale: Tensor, offset: Tensor) -> Tensor:
        shift = offset if self.offset else None
        quantized: Tensor = torch.ops.npu.npu_quantize(
            self.activated(x), scale, shift, torch.qint8, -1, self.div_mode
        )
        return quantized

    def along_tokens(self, x: Tensor, scale: Tensor, offset: Tensor) -> Tensor:
        del offset
        quantized: Tensor = torch.ops.npu.npu_quantize(
            self.activated(x), scale, None, torch.qint8, 0, self.div_mode
        )
        return quantized

    def dynamic(self, x: Tensor, smooth: Tensor) -> tuple[Tensor, Tensor]:
        quantized, scale = torch.ops.npu.npu_dynamic_quant(
            self.activated(x), smooth_scales=smooth if self.smoothed else None
        )
        return quantized, scale

    def in_blocks(self, x: Tensor) -> tuple[Tensor, Tensor]:
        quantized, scale = torch.ops.npu.npu_dynamic_mx_quant(self.activated(x), dst_type=292)
        return quantized, scale

    def in_wide_blocks(self, x: Tensor) -> tuple[Tensor, Tensor]:
        quantized, scale = torch.ops.npu.npu_dynamic_mx_quant(
            self.activated(x), dst_type=292, block_size=64
        )
        return quantized, scale


@dataclass(frozen=True, kw_only=True)
class _Clipped:
    """SwiGLU of a clipped gate and up, as engines write it."""

    neighbours: bool = False
    dim: int = -1
    limit: float = 1.5
    lower: float = -1.5

    def parts(self, x: Tensor) -> tuple[Tensor, Tensor]:
        if self.dim == 0:
            return self.clipped(*x.chunk(2, dim=0))
        half = x.shape[-1] // 2
        cut = (x[..., ::2], x[..., 1::2]) if self.neighbours else (x[..., :half], x[..., half:])
        return self.clipped(*cut)

    def clipped(self, gate: Tensor, up: Tensor) -> tuple[Tensor, Tensor]:
        return gate.clamp(min=None, max=self.limit), torch.clamp(up, min=self.lower, max=1.5)

    def by_sigmoid(self, x: Tensor) -> Tensor:
        gate, up = self.parts(x)
        glu = gate * torch.sigmoid(gate * 1.702)
        return (up + 1) * glu

    def sigmoid_first(self, x: Tensor) -> Tensor:
        gate, up = self.parts(x)
        return gate * torch.sigmoid(1.702 * gate) * (up + 1.0)

    def by_silu(self, x: Tensor) -> Tensor:
        gate, up = self.parts(x)
        return functional.silu(gate) * up

    def by_kernel(self, x: Tensor) -> Tensor:
        joined = torch.cat(self.parts(x), dim=self.dim)
        activated: Tensor = torch.ops.npu.npu_swiglu(joined)
        return activated

    def exchanged(self, x: Tensor) -> Tensor:
        gate, up = self.clipped(x[..., 1::2], x[..., ::2])
        return functional.silu(gate) * up

    def unequal_parts(self, x: Tensor) -> Tensor:
        gate, up = self.clipped(*x.split([32, 96], dim=-1))  # type: ignore[no-untyped-call]
        activated: Tensor = torch.ops.npu.npu_swiglu(torch.cat([gate, up], dim=-1))
        return activated

    def clipped_below(self, x: Tensor) -> Tensor:
        gate, up = x[..., ::2].clamp(min=-1.5, max=1.5), x[..., 1::2].clamp(min=-1.5, max=1.5)
        return functional.silu(gate) * up

    def clipped_later(self, x: Tensor) -> Tensor:
        gate, up = x.chunk(2, dim=-1)
        return functional.silu(gate).clamp(max=1.5) * up.clamp(min=-1.5, max=1.5)

    def gate_used(self, x: Tensor) -> tuple[Tensor, Tensor]:
        gate, up = self.parts(x)
        return functional.silu(gate) * up, gate + 1


def _transposed_halves(dtype: torch.dtype, device: str, tokens: int) -> list[Tensor]:
    return [random_tensors((_WIDTH, tokens), dtype=dtype, device=device)[0].t()]


def _one_row(dtype: torch.dtype, device: str, tokens: int) -> list[Tensor]:
    del tokens
    return random_tensors((_WIDTH,), dtype=dtype, device=device)


def _halves_on_the_cpu(dtype: torch.dtype, device: str, tokens: int) -> list[Tensor]:
    del device
    return _halves(dtype, "cpu", tokens)


_CLIPPED = "fuse_clipped_swiglu"
_NEIGHBOURS = _Clipped(neighbours=True)
_CLIPPED_CASES = (
    *(
        FusionCase(
            name=name,
            rule=_CLIPPED,
            function=function,
            inputs=_halves,
            dtypes=_FLOATS,
            # Four roundings before the last, which both make; each changes less than one does here.
            roundings=2,
        )
        for name, function in (
            ("gpt_oss", _NEIGHBOURS.by_sigmoid),
            ("halves", _Clipped().sigmoid_first),
            ("silu_of_halves", _Clipped().by_silu),
            ("silu_of_neighbours", _NEIGHBOURS.by_silu),
            ("neighbours_joined", _NEIGHBOURS.by_kernel),
        )
    ),
    FusionCase(
        name="joined",
        rule=_CLIPPED,
        function=_Clipped().by_kernel,
        inputs=_halves,
        dtypes=_FLOATS,
        # Both round the result only; in float32 the kernels differ in the order of their products.
        roundings=1,
        near_misses=(
            NearMissCase(
                name="exchanged",
                function=_NEIGHBOURS.exchanged,
                reason="are not the even and the odd elements of 128",
            ),
            NearMissCase(
                name="other_dimension", function=_Clipped(dim=0).by_silu, reason="along dimension 0"
            ),
            NearMissCase(
                name="joined_elsewhere",
                function=lambda x: torch.ops.npu.npu_swiglu(torch.cat(_Clipped().parts(x), 0)),
                reason="is not half of [6, 128]",
            ),
            NearMissCase(
                name="unequal_parts",
                function=_Clipped().unequal_parts,
                reason="the kernel does not broadcast",
            ),
            NearMissCase(
                name="two_limits",
                function=_Clipped(lower=-1.0).by_silu,
                reason="the kernel takes one limit",
            ),
            NearMissCase(
                name="negative_limit",
                function=_Clipped(limit=-1.5).by_silu,
                reason="the gate is clipped at -1.5",
            ),
            NearMissCase(
                name="gate_clipped_below",
                function=_Clipped().clipped_below,
                reason="expected None, found -1.5",
            ),
            NearMissCase(name="clipped_later", function=_Clipped().clipped_later),
            NearMissCase(
                name="gate_used",
                function=_Clipped().gate_used,
                reason="inside the match is used by",
            ),
            NearMissCase(name="layout", inputs=_transposed_halves, reason="contiguous tensors"),
            NearMissCase(name="one_row", inputs=_one_row, reason="of 2 dimensions or more"),
            NearMissCase(
                name="cpu",
                function=_Clipped().by_silu,
                inputs=_halves_on_the_cpu,
                reason="runs on an NPU",
            ),
            NearMissCase(name="float64", dtype=torch.float64, reason="the kernel takes"),
        ),
    ),
)


def _static_inputs(*, divide: bool, width: int = _WIDTH, size: int = 0) -> FusionInputs:
    def inputs(dtype: torch.dtype, device: str, tokens: int) -> list[Tensor]:
        (x,) = random_tensors((tokens, width), dtype=dtype, device=device)
        scale, offset = quant_factors(dtype, device, size=size or width // 2, divide=divide)
        if divide and dtype == torch.float16:
            offset = offset.to(torch.int32)
        return [x, scale, offset]

    return inputs


def _dynamic_inputs(dtype: torch.dtype, device: str, tokens: int) -> list[Tensor]:
    return random_tensors((tokens, _WIDTH), (_WIDTH // 2,), dtype=dtype, device=device)


def _narrow_dynamic(dtype: torch.dtype, device: str, tokens: int) -> list[Tensor]:
    return random_tensors((tokens, 96), (48,), dtype=dtype, device=device)


_STATIC = "fuse_swiglu_quant"
_DYNAMIC = "fuse_swiglu_dynamic_quant"
# Unfused the activated values are rounded, as is the reciprocal of a scale where one is made.
_QUANT_CASES = (
    FusionCase(
        name="divided",
        rule=_STATIC,
        function=_QuantizedSwiglu().static,
        inputs=_static_inputs(divide=True),
        roundings=2,
        near_misses=(
            NearMissCase(
                name="axis", function=_QuantizedSwiglu().along_tokens, reason="along axis 0 of 2"
            ),
            NearMissCase(
                name="width",
                inputs=_static_inputs(divide=True, width=96),
                reason="96 is no multiple of 64",
            ),
            NearMissCase(
                name="width_of_float16",
                inputs=_static_inputs(divide=True, width=8256),
                reason="at most 8192",
                dtype=torch.float16,
            ),
            NearMissCase(name="float32", dtype=torch.float32, reason="the kernel takes"),
        ),
    ),
    FusionCase(
        name="multiplied",
        rule=_STATIC,
        function=_QuantizedSwiglu(div_mode=False).static,
        inputs=_static_inputs(divide=False),
        roundings=1,
    ),
    FusionCase(
        name="one_scale_without_offset",
        rule=_STATIC,
        function=_QuantizedSwiglu(offset=False).static,
        inputs=_static_inputs(divide=True, size=1),
        roundings=2,
    ),
    FusionCase(
        name="spelt_out",
        rule=_STATIC,
        function=_QuantizedSwiglu(spelt_out=True).static,
        inputs=_static_inputs(divide=True),
        matches={"fuse_swiglu": 1, _STATIC: 1},
        roundings=3,
    ),
    FusionCase(
        name="plain",
        rule=_DYNAMIC,
        function=_QuantizedSwiglu().dynamic,
        inputs=_dynamic_inputs,
        dtypes=(torch.bfloat16,),
        # That of the largest value of the row counts as well.
        roundings=2,
        near_misses=(
            NearMissCase(name="float16", dtype=torch.float16, reason="the kernel takes"),
            NearMissCase(name="width", inputs=_narrow_dynamic, reason="96 is no multiple of 64"),
        ),
    ),
    FusionCase(
        name="smoothed",
        rule=_DYNAMIC,
        function=_QuantizedSwiglu(smoothed=True).dynamic,
        inputs=_dynamic_inputs,
        dtypes=(torch.bfloat16,),
        roundings=2,
    ),
    FusionCase(
        name="plain",
        rule="fuse_swiglu_mx_quant",
        function=_QuantizedSwiglu().in_blocks,
        inputs=_halves,
        missing_kernel="aclnnSwigluMxQuant",
        near_misses=(
            NearMissCase(
                name="blocks",
                function=_QuantizedSwiglu().in_wide_blocks,
                reason="blocks of 64",
            ),
        ),
    ),
)


def _scaled_sum(routed: Tensor, shared: Tensor, weight: Tensor) -> Tensor:
    del weight
    return routed * 2.5 + shared


def _weighted_sum(routed: Tensor, shared: Tensor, weight: Tensor) -> Tensor:
    return shared + weight * routed


def _addends(dtype: torch.dtype, device: str, tokens: int) -> list[Tensor]:
    return random_tensors((tokens, 64), (tokens, 64), (64,), dtype=dtype, device=device)


def _mixed_addends(dtype: torch.dtype, device: str, tokens: int) -> list[Tensor]:
    routed, shared, weight = _addends(dtype, device, tokens)
    return [routed, shared.float(), weight]


_SUM_CASES = (
    FusionCase(
        name="by_number",
        rule="fuse_multiply_add",
        function=_scaled_sum,
        inputs=_addends,
        dtypes=_FLOATS,
        tokens={0: 0, 1: 0},
        # Of the product; measured against the largest result, which may be smaller than it.
        roundings=3,
        near_misses=(
            NearMissCase(name="dtypes", inputs=_mixed_addends, reason="takes one dtype"),
            NearMissCase(name="float64", dtype=torch.float64, reason="the kernel takes"),
        ),
    ),
    FusionCase(
        name="by_tensor",
        rule="fuse_multiply_add",
        function=_weighted_sum,
        inputs=_addends,
        dtypes=_FLOATS,
        tokens={0: 0, 1: 0},
        roundings=3,
    ),
)

ACTIVATION_CASES = (
    *_gated_cases("fuse_swiglu", {"silu": functional.silu}),
    # torch_npu computes plain `gelu` by one form whichever is requested, which shows in float32.
    *_gated_cases(
        "fuse_geglu", {"tanh": _tanh_gelu, "error_function": _gelu}, (torch.bfloat16, torch.float16)
    ),
    *_CLIPPED_CASES,
    *_QUANT_CASES,
    *_SUM_CASES,
)
