"""Products of int8 matrices against exact integers and float64."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch_npu

from operators.drawn_tensors import integers


def scales(size: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(size, generator=generator).add(0.5).mul(1e-3).to(dtype)


def exact(x1: torch.Tensor, x2: torch.Tensor) -> torch.Tensor:
    return x1.long() @ x2.long()


def npu(tensor: torch.Tensor | None) -> torch.Tensor | None:
    return None if tensor is None else tensor.to("npu")


SHAPES = [
    ((1, 16), (16, 8)),
    ((7, 300), (300, 33)),
    ((3, 5, 64), (64, 32)),
    ((2, 4, 64), (2, 64, 8)),
]


@pytest.mark.parametrize(("left", "right"), SHAPES)
def test_int32_result_is_exact(left: tuple[int, ...], right: tuple[int, ...]) -> None:
    x1, x2 = integers(*left), integers(*right, seed=1)
    bias = torch.arange(right[-1], dtype=torch.int32) * 1_000_003
    for addend in (None, bias):
        result = torch_npu.npu_quant_matmul(
            npu(x1), npu(x2), npu(scales(1)), bias=npu(addend), output_dtype=torch.int32
        )
        expected = exact(x1, x2) if addend is None else exact(x1, x2) + addend
        assert torch.equal(result.cpu().long(), expected)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize(("left", "right"), SHAPES)
@pytest.mark.parametrize("addend", [None, torch.int32, torch.float32, "own"])
def test_scaled_by_token_equals_reference(
    conformance: Any,
    dtype: torch.dtype,
    left: tuple[int, ...],
    right: tuple[int, ...],
    addend: Any,
) -> None:
    x1, x2 = integers(*left), integers(*right, seed=1)
    weight, token = scales(right[-1]), scales(left[-2], seed=3)
    kind = dtype if addend == "own" else addend
    bias = None if kind is None else torch.arange(-4, right[-1] - 4).to(kind)
    result = torch_npu.npu_quant_matmul(
        npu(x1),
        npu(x2),
        npu(weight),
        pertoken_scale=npu(token),
        bias=npu(bias),
        output_dtype=dtype,
    )
    factor = weight.double() * token.double().unsqueeze(-1)
    total = exact(x1, x2).double()
    if bias is None:
        expected = total * factor
    elif kind == torch.int32:
        expected = (total + bias) * factor
    else:
        expected = total * factor + bias.double()
    size = total.abs() * factor + (0 if bias is None else bias.double().abs())
    conformance.close(result.cpu(), expected, magnitude=size)


@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("single", [False, True])
def test_bfloat16_result_without_tokens_equals_reference(
    conformance: Any, kind: torch.dtype, single: bool
) -> None:
    x1, x2 = integers(5, 64), integers(32, 64, seed=1).t()
    weight = scales(1 if single else 32, dtype=kind)
    result = torch_npu.npu_quant_matmul(npu(x1), npu(x2), npu(weight), output_dtype=torch.bfloat16)
    conformance.close(result.cpu(), exact(x1, x2).double() * weight.double())


def shortened(values: torch.Tensor) -> torch.Tensor:
    """Return float32 values cut to the 19 bits that the matrix unit takes."""
    return (values.view(torch.int32) & ~0x1FFF).view(torch.float32)


def test_static_float16_result_takes_shortened_scales(conformance: Any) -> None:
    x1, x2, weight = integers(5, 64), integers(64, 32, seed=1), scales(32)
    bias = torch.arange(32, dtype=torch.int32) * 100
    packed = torch_npu.npu_trans_quant_param(npu(weight))
    total = (exact(x1, x2) + bias).double()
    for scale in (packed, npu(weight)):
        result = torch_npu.npu_quant_matmul(
            npu(x1), npu(x2), scale, bias=npu(bias), output_dtype=torch.float16
        )
        conformance.close(result.cpu(), total * shortened(weight).double())


@pytest.mark.parametrize("shift", [None, 0.0, 17.0, -40.0])
def test_int8_result_is_shifted_and_saturates(conformance: Any, shift: float | None) -> None:
    x1, x2, weight = integers(5, 64), integers(64, 32, seed=1), scales(32)
    offset = None if shift is None else torch.full((32,), shift)
    result = torch_npu.npu_quant_matmul(npu(x1), npu(x2), npu(weight), offset=npu(offset))
    expected = exact(x1, x2).double() * shortened(weight).double() + (shift or 0)
    assert result.dtype == torch.int8
    conformance.quantized(result.cpu(), expected, slack=1e-3)


@pytest.mark.parametrize("offset", [None, -256.0, -3.0, 255.0, 1000.0])
def test_packed_scale_has_the_documented_bits(offset: float | None) -> None:
    values = torch.tensor([1.0, 0.1, -2.5, 1e-30])
    shift = None if offset is None else torch.full((4,), offset)
    packed = torch_npu.npu_trans_quant_param(npu(values), npu(shift)).cpu()
    bits = (values.view(torch.int32).long() & 0xFFFFE000) | (1 << 46)
    if offset is not None:
        bits |= (int(min(offset, 255.0)) & 0x1FF) << 37
    assert torch.equal(packed, bits)


def test_packed_scale_can_be_rounded() -> None:
    value = torch.tensor([1.0 + 2**-10 - 2**-20])
    packed = torch_npu.npu_trans_quant_param(npu(value), None, 1).cpu() & 0xFFFFFFFF
    assert packed.int().view(torch.float32).item() == 1.0 + 2**-10


def test_quant_matmul_refuses_what_the_device_refuses() -> None:
    x1, x2 = npu(integers(4, 64)), npu(integers(64, 32, seed=1))
    weight, token = npu(scales(32)), npu(scales(4))
    assert x1 is not None
    assert x2 is not None
    assert weight is not None
    assert token is not None
    half, wide = torch.float16, torch.bfloat16
    refusals: list[tuple[str, tuple[torch.Tensor, ...], dict[str, Any]]] = [
        ("argument 'x1': expected one of the dtypes", (x1.half(), x2, weight), {}),
        ("argument 'x2': expected 64 rows", (x1, x2[:32], weight), {"output_dtype": wide}),
        ("argument 'x2Scale': expected shape", (x1, x2, weight[:3]), {"output_dtype": wide}),
        ("argument 'x1Scale': expected shape", (x1, x2, weight), {"pertoken_scale": token[:2]}),
        ("argument 'x2Scale': expected one", (x1, x2, weight.bfloat16()), {"output_dtype": half}),
        (
            "argument 'bias': expected one of the dtypes",
            (x1, x2, weight),
            {"bias": weight, "output_dtype": torch.int32},
        ),
        (
            "argument 'bias': expected one of the dtypes",
            (x1, x2, weight),
            {"bias": weight.half(), "output_dtype": wide},
        ),
        (
            "argument 'x1Scale': expected none where the result is an integer",
            (x1, x2, weight),
            {"pertoken_scale": token, "output_dtype": torch.int32},
        ),
        (
            "argument 'x1': expected a contiguous tensor",
            (x1[:, ::2], x2[::2], weight),
            {"output_dtype": wide},
        ),
    ]
    for text, arguments, keywords in refusals:
        options = {"output_dtype": wide, **keywords}
        if "int8" in text:
            options = {"output_dtype": half}
        with pytest.raises(RuntimeError, match=text):
            torch_npu.npu_quant_matmul(*arguments, **options)


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_int4_matrices_are_multiplied_exactly(
    conformance: Any, transposed: bool, dtype: torch.dtype
) -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randint(-8, 8, (4, 64), generator=generator)
    weight = torch.randint(-8, 8, (64, 16), generator=generator)
    scale, own = torch.rand(16, generator=generator), torch.rand(4, generator=generator)
    stored = weight.T.contiguous() if transposed else weight
    words = [torch_npu.npu_convert_weight_to_int4pack(t.int().to("npu")) for t in (x, stored)]
    result = torch_npu.npu_quant_matmul(
        words[0],
        words[1].T if transposed else words[1],
        scale.to("npu"),
        pertoken_scale=own.to("npu"),
        output_dtype=dtype,
    ).cpu()
    expected = (x.double() @ weight.double()) * scale.double() * own.double()[:, None]
    conformance.close(result, expected)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("form", ["gelu_erf", "gelu_tanh"])
@pytest.mark.parametrize("addend", [None, torch.int32, torch.float32])
@pytest.mark.parametrize("nz", [False, True])
def test_gelu_follows_the_scaled_product(
    conformance: Any, dtype: torch.dtype, form: str, addend: torch.dtype | None, nz: bool
) -> None:
    x1, x2 = integers(5, 64), integers(64, 32, seed=1)
    weight, token = scales(32, dtype=torch.bfloat16), scales(5, seed=3)
    # torch_npu passes float16 with scales in float32.
    weight = weight if dtype == torch.bfloat16 else weight.float()
    bias = None if addend is None else torch.arange(-4, 28).to(addend)
    torch_npu.npu.config.allow_internal_format = nz
    matrix = torch_npu.npu_format_cast(x2.to("npu"), 29) if nz else x2.to("npu")
    torch_npu.npu.config.allow_internal_format = False
    result = torch_npu.npu_quant_matmul_gelu(
        npu(x1), matrix, npu(token), npu(weight), bias=npu(bias), approximate=form
    )
    assert result.dtype == dtype
    factor = weight.double() * token.double().unsqueeze(-1)
    total = exact(x1, x2).double()
    if bias is None:
        value = total * factor
    else:
        value = (total + bias) * factor if addend == torch.int32 else total * factor + bias
    reference = torch.nn.functional.gelu(value, approximate=form[5:].replace("erf", "none"))
    conformance.close(result.cpu(), reference, ulps=16, magnitude=value.abs())


def test_gelu_needs_scales_of_both_matrices_and_a_known_form(capfd: Any) -> None:
    del capfd
    x1, x2 = npu(integers(5, 64)), npu(integers(64, 32, seed=1))
    with pytest.raises(RuntimeError, match="approximate"):
        torch_npu.npu_quant_matmul_gelu(x1, x2, npu(scales(5)), npu(scales(32)), approximate="tanh")
    with pytest.raises(RuntimeError, match="'x1Scale'"):
        torch_npu.npu_quant_matmul_gelu(x1, x2, npu(scales(4)), npu(scales(32)))
