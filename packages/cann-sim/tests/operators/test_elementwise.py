"""One-input arithmetic against float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

FLOATS = [torch.bfloat16, torch.float16, torch.float32]
Views = Callable[[torch.dtype], dict[str, torch.Tensor]]

# Function and the interval its inputs are drawn from.
SMOOTH: dict[str, tuple[Callable[..., torch.Tensor], float, float]] = {
    "acos": (torch.acos, -0.9, 0.9),
    "acosh": (torch.acosh, 1.1, 5),
    "asin": (torch.asin, -0.9, 0.9),
    "asinh": (torch.asinh, -4, 4),
    "atan": (torch.atan, -4, 4),
    "atanh": (torch.atanh, -0.9, 0.9),
    "cos": (torch.cos, -6, 6),
    "cosh": (torch.cosh, -4, 4),
    "erf": (torch.erf, -3, 3),
    "erfc": (torch.erfc, -3, 3),
    "erfinv": (torch.erfinv, -0.9, 0.9),
    "exp": (torch.exp, -8, 8),
    "exp2": (torch.exp2, -8, 8),
    "expm1": (torch.expm1, -4, 4),
    "log": (torch.log, 0.01, 8),
    "log10": (torch.log10, 0.01, 8),
    "log1p": (torch.log1p, -0.9, 8),
    "log2": (torch.log2, 0.01, 8),
    "reciprocal": (torch.reciprocal, 0.05, 8),
    "rsqrt": (torch.rsqrt, 0.01, 8),
    "sin": (torch.sin, -6, 6),
    "sinh": (torch.sinh, -4, 4),
    "sqrt": (torch.sqrt, 0.0, 8),
    "tan": (torch.tan, -1.2, 1.2),
}
EXACT: dict[str, Callable[..., torch.Tensor]] = {
    "abs": torch.abs,
    "ceil": torch.ceil,
    "floor": torch.floor,
    "frac": torch.frac,
    "isfinite": torch.isfinite,
    "isinf": torch.isinf,
    "isnan": torch.isnan,
    "logical_not": torch.logical_not,
    "neg": torch.neg,
    "round": torch.round,
    "sign": torch.sign,
    "signbit": torch.signbit,
    "trunc": torch.trunc,
}


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", SMOOTH)
def test_float_function_in_every_layout_is_rounded_once(
    conformance: Any, views: Views, name: str, dtype: torch.dtype
) -> None:
    function, low, high = SMOOTH[name]
    for view in views(torch.float32).values():
        values = (torch.sigmoid(view) * (high - low) + low).to(dtype)
        # The functions lose at most a few units near their zeros; their slopes are below 8 here.
        conformance.check(function, values, ulps=16, magnitude=torch.ones(()).double())


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", EXACT)
def test_exact_function_in_every_layout_equals_reference(
    views: Views, name: str, dtype: torch.dtype
) -> None:
    for view in views(dtype).values():
        expected = EXACT[name](view)
        result = EXACT[name](view.to("npu")).cpu()
        assert result.dtype == expected.dtype
        assert torch.equal(result, expected)


@pytest.mark.parametrize("dtype", FLOATS)
def test_inplace_function_writes_through_a_view(conformance: Any, dtype: torch.dtype) -> None:
    values = torch.rand(4, 6).add(0.1).to(dtype)
    device = values.to("npu")
    device[:, ::2].exp_()
    device[:, 1::2].sqrt_()
    reference = values.double()
    reference[:, ::2].exp_()
    reference[:, 1::2].sqrt_()
    conformance.close(device.cpu(), reference)


@pytest.mark.parametrize("dtype", [torch.int8, torch.int16, torch.int32, torch.int64, torch.bool])
def test_float_function_of_integers_gives_floats(conformance: Any, dtype: torch.dtype) -> None:
    values = torch.arange(1, 5).to(dtype)
    result = torch.sqrt(values.to("npu")).cpu()
    assert result.dtype == torch.float32
    conformance.close(result, values.double().sqrt())


NOT_OF_THE_DEVICE = {
    (torch.neg, torch.uint8),
    (torch.sign, torch.uint8),
    (torch.sign, torch.int8),
    (torch.abs, torch.uint8),
}


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int32, torch.int64])
def test_integer_function_is_exact(dtype: torch.dtype) -> None:
    values = torch.tensor([0, 1, 2, 100, 127], dtype=dtype)
    for function in (torch.neg, torch.bitwise_not, torch.sign, torch.abs):
        if (function, dtype) in NOT_OF_THE_DEVICE:
            continue
        assert torch.equal(function(values.to("npu")).cpu(), function(values))


def test_special_values_pass_through() -> None:
    values = torch.tensor([float("nan"), float("inf"), -float("inf"), 0.0, -0.0, 1.0])
    for function in (torch.exp, torch.isnan, torch.isinf, torch.isposinf, torch.isneginf):
        result = function(values.to("npu")).cpu()
        torch.testing.assert_close(result, function(values), equal_nan=True)
    replaced = torch.nan_to_num(values.to("npu"), 7.0, 8.0, -9.0).cpu()
    assert torch.equal(replaced, torch.tensor([7.0, 8.0, -9.0, 0.0, -0.0, 1.0]))


@pytest.mark.parametrize("function", [torch.exp, torch.sin, torch.sqrt, torch.tan, torch.neg])
def test_complex_function_is_computed(function: Any) -> None:
    values = torch.complex(torch.linspace(-2, 2, 7), torch.linspace(1, -1, 7))
    result = function(values.to("npu")).cpu()
    torch.testing.assert_close(result, function(values.to(torch.complex128)).to(torch.complex64))


def test_complex_argument_is_refused_by_name() -> None:
    values = torch.ones(3, dtype=torch.complex64).to("npu")
    with pytest.raises(
        RuntimeError, match=r"aclnnErf: argument 'self': expected one of the dtypes"
    ):
        torch.erf(values)


@pytest.mark.parametrize("name", [n for n in SMOOTH if hasattr(torch.Tensor, f"{n}_")])
def test_inplace_float_function_equals_the_other(name: str) -> None:
    function, low, high = SMOOTH[name]
    values = torch.linspace(low, high, 24).view(4, 6).to("npu")
    expected = function(values).cpu()
    assert torch.equal(getattr(values, f"{name}_")().cpu(), expected)
    assert torch.equal(values.cpu(), expected)


@pytest.mark.parametrize("name", ["ceil", "floor", "frac", "neg", "round", "trunc", "logical_not"])
def test_inplace_exact_function_equals_the_other(name: str) -> None:
    values = torch.linspace(-3, 3, 24).view(4, 6)
    device = values.to("npu")
    getattr(device, f"{name}_")()
    assert torch.equal(device.cpu(), getattr(values, f"{name}_")())
