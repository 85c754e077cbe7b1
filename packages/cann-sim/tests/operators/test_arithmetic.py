"""Arithmetic on two operands against float64."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from operators.drawn_tensors import random

if TYPE_CHECKING:
    from collections.abc import Callable

FLOATS = [torch.bfloat16, torch.float16, torch.float32]
BINARY: dict[str, Callable[..., torch.Tensor]] = {
    "add": torch.add,
    "sub": torch.sub,
    "mul": torch.mul,
    "div": torch.div,
    "maximum": torch.maximum,
    "minimum": torch.minimum,
    "sub alpha": lambda a, b: torch.sub(a, b, alpha=2.5),
    "rsub": lambda a, b: torch.rsub(a, b, alpha=0.5),
    "atan2": torch.atan2,
    "pow": lambda a, b: a.abs().pow(b),
    "addcmul": lambda a, b: torch.addcmul(a, a, b, value=0.5),
    "addcdiv": lambda a, b: torch.addcdiv(a, a, b.abs() + 1, value=0.5),
    "lerp": lambda a, b: torch.lerp(a, b, 0.25),
    "clamp tensor": lambda a, b: torch.clamp(a, b.abs().neg(), b.abs()),
}
SCALAR: dict[str, Callable[..., torch.Tensor]] = {
    "add": lambda a: a + 1.7,
    "add alpha": lambda a: torch.add(a, 1.7, alpha=3),
    "sub": lambda a: a - 1.7,
    "rsub": lambda a: 1.7 - a,
    "mul": lambda a: a * 1.7,
    "div": lambda a: a / 1.7,
    "rdiv": lambda a: 1.7 / a,
    "pow 2": lambda a: a**2,
    "pow 3": lambda a: a**3,
    "pow 0.5": lambda a: a.abs() ** 0.5,
    "pow -1": lambda a: a**-1,
    "2 pow": lambda a: 2**a,
    "clamp": lambda a: a.clamp(-0.5, 1.25),
    "clamp min": lambda a: a.clamp_min(0.25),
    "clamp max": lambda a: a.clamp_max(0.25),
}


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", BINARY)
def test_two_tensors_broadcast_and_round(conformance: Any, name: str, dtype: torch.dtype) -> None:
    pairs = [
        (random(4, 5, dtype=dtype), random(4, 5, seed=1, dtype=dtype)),
        (random(4, 1, 5, dtype=dtype), random(3, 1, seed=1, dtype=dtype)),
        (random(6, 5, dtype=dtype).t()[1:, ::2], random(4, 3, seed=1, dtype=dtype)),
        (random(0, 5, dtype=dtype), random(1, 5, seed=1, dtype=dtype)),
        (random(1, dtype=dtype)[0], random(1, seed=1, dtype=dtype)),
    ]
    # Composed cases pass a rounded intermediate to the next operator.
    magnitude = torch.tensor(8.0).double()
    for a, b in pairs:
        conformance.check(BINARY[name], a, b, roundings=2, ulps=16, magnitude=magnitude)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", ["add", "sub", "mul", "div"])
def test_basic_operation_is_correctly_rounded(name: str, dtype: torch.dtype) -> None:
    a, b = random(64, 64, dtype=dtype), random(64, 64, seed=1, dtype=dtype)
    result = BINARY[name](a.to("npu"), b.to("npu")).cpu()
    # float64 is wide enough for the exact float32 result, and rounding it once is the definition.
    expected = BINARY[name](a.double(), b.double()).float().to(dtype)
    assert torch.equal(result, expected)


@pytest.mark.parametrize("dtype", FLOATS)
def test_sum_with_alpha_rounds_its_product_in_bfloat16(
    conformance: Any, dtype: torch.dtype
) -> None:
    a, b = random(7, 9, dtype=dtype), random(7, 9, seed=1, dtype=dtype)
    product = b.double() * 2.5
    if dtype == torch.bfloat16:
        product = product.to(dtype).double()
    result = torch.add(a.to("npu"), b.to("npu"), alpha=2.5).cpu()
    conformance.close(result, a.double() + product, magnitude=torch.tensor(8.0).double())


def numbers_of(name: str, dtype: torch.dtype) -> tuple[float, float]:
    """Return the number and alpha of a function of SCALAR, as the device has them.

    Sums round a number to the dtype of the tensor, products and quotients only to float16. Of
    bfloat16 a number is multiplied with alpha before it is added.
    """
    number = torch.tensor(1.7).to(dtype).double().item()
    if name == "add alpha" and dtype == torch.bfloat16:
        return torch.tensor(3 * number).to(dtype).double().item(), 1.0
    if name in {"mul", "div"} and dtype == torch.bfloat16:
        number = 1.7
    return number, 3.0


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", SCALAR)
def test_scalar_operand_has_the_precision_that_the_device_gives_it(
    conformance: Any, name: str, dtype: torch.dtype
) -> None:
    # Two operators: abs and pow, reciprocal and mul.
    roundings = 2 if name in {"pow 0.5", "rdiv"} else 1
    values = random(7, 9, dtype=dtype)
    magnitude = torch.tensor(4.0).double()
    number, alpha = numbers_of(name, dtype)
    references: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
        "add": lambda a: a + number,
        "add alpha": lambda a: a + number * alpha,
        "sub": lambda a: a - number,
        "rsub": lambda a: number - a,
        "mul": lambda a: a * number,
        "div": lambda a: a / number,
        "rdiv": lambda a: number / a,
    }
    reference: Callable[..., torch.Tensor] = references.get(name, SCALAR[name])
    for layout in (values, values.t()[::2]):
        result = SCALAR[name](layout.to("npu")).cpu()
        expected: torch.Tensor = reference(layout.double())
        conformance.close(result, expected, roundings=roundings, magnitude=magnitude)


@pytest.mark.parametrize("name", ["addcmul", "addcdiv"])
def test_scaled_products_of_float16_round_every_step(name: str) -> None:
    a, b, c = (random(64, seed=seed, dtype=torch.float16) for seed in range(3))
    result = getattr(torch, name)(a.to("npu"), b.to("npu"), c.to("npu"), value=0.3).cpu()
    lists = [[values.to("npu")] for values in (a, b, c)]
    listed = getattr(torch, f"_foreach_{name}")(*lists, 0.3)[0].cpu()
    weighted = getattr(torch, f"_foreach_{name}")(*lists, torch.tensor([0.3]))[0].cpu()
    exact = b.double() * c.double() if name == "addcmul" else b.double() / c.double()
    factor = torch.tensor(0.3).half().double()
    scaled = (exact.half().double() * factor).half()
    expected = (a.double() + scaled.double()).half()
    for found in (result, listed, weighted):
        assert torch.equal(found, expected)


@pytest.mark.parametrize("dtype", [torch.int8, torch.int32, torch.int64])
def test_integer_arithmetic_is_exact(dtype: torch.dtype) -> None:
    a = torch.tensor([7, -7, 5, 100, 0], dtype=dtype)
    b = torch.tensor([2, 3, -2, 7, 5], dtype=dtype)
    functions: list[Callable[..., torch.Tensor]] = [
        torch.add,
        torch.sub,
        torch.mul,
        torch.floor_divide,
        torch.remainder,
        torch.fmod,
        torch.maximum,
        lambda x, y: torch.div(x, y, rounding_mode="trunc"),
        lambda x, y: torch.div(x, y, rounding_mode="floor"),
    ]
    for function in functions:
        assert torch.equal(function(a.to("npu"), b.to("npu")).cpu(), function(a, b))
    with_scalar: list[Callable[[torch.Tensor], torch.Tensor]] = [
        lambda x: x + 3,
        lambda x: x * 3,
        lambda x: x // 3,
        lambda x: x**2,
    ]
    if dtype != torch.int8:  # which the device's RemainderTensorScalar does not take
        with_scalar.append(lambda x: x % 3)
    for scalar_function in with_scalar:
        assert torch.equal(scalar_function(a.to("npu")).cpu(), scalar_function(a))


def test_result_of_another_kind_than_its_place_is_refused() -> None:
    whole, real = torch.ones(3, dtype=torch.int64).to("npu"), torch.ones(3).to("npu")
    for name in ("add_", "sub_"):
        with pytest.raises(RuntimeError, match="float32 can't be cast to the desired output type"):
            getattr(whole, name)(real)
    assert whole.cpu().tolist() == [1, 1, 1]


@pytest.mark.parametrize("name", ["add", "sub", "mul", "div"])
def test_complex_numbers_equal_reference(name: str) -> None:
    a, b = (torch.complex(random(4, 3, seed=n), random(4, 3, seed=n + 2)) for n in range(2))
    function = getattr(torch, name)
    torch.testing.assert_close(function(a.to("npu"), b.to("npu")).cpu(), function(a, b))
    torch.testing.assert_close((a.to("npu") * 1.5).cpu(), a * 1.5)


def test_mixed_dtypes_promote() -> None:
    half, single = random(4, dtype=torch.bfloat16), random(4, seed=1)
    result = (half.to("npu") + single.to("npu")).cpu()
    assert result.dtype == torch.float32
    assert torch.equal(result, half + single)
    assert torch.equal((torch.arange(4).to("npu") * 0.5).cpu(), torch.arange(4) * 0.5)


def test_inplace_operation_keeps_dtype_and_writes_a_view() -> None:
    values = random(4, 6, dtype=torch.bfloat16)
    device = values.to("npu")
    device[1:3, ::2] += 1.5
    device[:, 1].mul_(device[:, 0])
    values[1:3, ::2] += 1.5
    values[:, 1].mul_(values[:, 0])
    assert torch.equal(device.cpu(), values)


@settings(max_examples=30)
@given(data=st.data())
def test_add_of_broadcast_shapes_equals_reference(data: st.DataObject) -> None:
    shape = data.draw(st.lists(st.integers(0, 4), min_size=1, max_size=4))
    keep = data.draw(st.lists(st.booleans(), min_size=len(shape), max_size=len(shape)))
    drop = data.draw(st.integers(0, len(shape)))
    other = [size if kept else 1 for size, kept in zip(shape, keep, strict=True)][drop:]
    a, b = random(*shape), random(*other, seed=1)
    assert torch.equal((a.to("npu") + b.to("npu")).cpu(), a + b)


INPLACE: dict[str, Callable[..., torch.Tensor]] = {
    "add": lambda a, b: a.add_(b, alpha=2),
    "add scalar": lambda a, b: a.add_(1.5, alpha=2),
    "sub": lambda a, b: a.sub_(b, alpha=2),
    "sub scalar": lambda a, b: a.sub_(1.5),
    "mul": lambda a, b: a.mul_(b),
    "div": lambda a, b: a.div_(b),
    "div scalar": lambda a, b: a.div_(1.5),
    "div floor": lambda a, b: a.div_(b, rounding_mode="floor"),
    "div floor scalar": lambda a, b: a.div_(0.7, rounding_mode="floor"),
    "floor_divide": lambda a, b: a.floor_divide_(b),
    "floor_divide scalar": lambda a, b: a.floor_divide_(0.7),
    "remainder": lambda a, b: a.remainder_(b),
    "remainder scalar": lambda a, b: a.remainder_(0.7),
    "fmod": lambda a, b: a.fmod_(b),
    "fmod scalar": lambda a, b: a.fmod_(0.7),
    "pow": lambda a, b: a.abs_().pow_(b),
    "pow scalar": lambda a, b: a.pow_(2),
    "clamp max": lambda a, b: a.clamp_max_(0.25),
    "clamp max tensor": lambda a, b: a.clamp_max_(b),
    "clamp min tensor": lambda a, b: a.clamp_min_(b),
    "addcmul": lambda a, b: a.addcmul_(b, b, value=0.5),
    "addcdiv": lambda a, b: a.addcdiv_(b, b.abs() + 1, value=0.5),
}
OTHER: dict[str, Callable[..., torch.Tensor]] = {
    **{f"{name} inplace": function for name, function in INPLACE.items()},
    "clamp max tensor": torch.clamp_max,
    "clamp min tensor": torch.clamp_min,
    "lerp tensor": lambda a, b: torch.lerp(a, b, b.abs()),
    "scalar remainder": lambda a, b: torch.remainder(2.5, b.abs() + 0.5),
    "hardtanh": lambda a, b: torch.nn.functional.hardtanh(a, -0.5, 0.75),
}


@pytest.mark.parametrize("name", OTHER)
def test_other_form_equals_reference_in_float32(name: str) -> None:
    function = OTHER[name]
    a, b = random(5, 7), random(5, 7, seed=1)
    result = function(a.to("npu"), b.to("npu")).cpu()
    torch.testing.assert_close(result, function(a.clone(), b), rtol=1e-6, atol=1e-6)
