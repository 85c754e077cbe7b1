"""A cast there and back is removed only where every value comes back, for all dtypes by three."""

from __future__ import annotations

from itertools import product

import pytest
import torch
from torch import Tensor
from torch.fx import Graph

from fx_passes import apply_rules
from fx_passes.generic_passes import remove_noops
from fx_passes.generic_passes.noops import holds_every_value

EIGHT_BITS = (
    torch.int8,
    torch.uint8,
    torch.float8_e4m3fn,
    torch.float8_e4m3fnuz,
    torch.float8_e5m2,
    torch.float8_e5m2fnuz,
    torch.float8_e8m0fnu,
)
SIXTEEN_BITS = (torch.int16, torch.uint16, torch.float16, torch.bfloat16)
WIDER = (
    torch.int32,
    torch.int64,
    torch.uint32,
    torch.uint64,
    torch.float32,
    torch.float64,
    torch.complex32,
    torch.complex64,
    torch.complex128,
)
DTYPES = (torch.bool, *EIGHT_BITS, *SIXTEEN_BITS, *WIDER)
INTEGERS = tuple(each for each in DTYPES if not each.is_floating_point and not each.is_complex)


def every_value(dtype: torch.dtype) -> Tensor:
    """Return all values of a dtype of up to 16 bits, and those near the edges of the others."""
    if dtype is torch.bool:
        return torch.tensor([False, True])
    if dtype in EIGHT_BITS:
        return torch.arange(256, dtype=torch.uint8).view(dtype)
    if dtype in SIXTEEN_BITS:
        return torch.arange(-(2**15), 2**15).to(torch.int16).view(dtype)
    if dtype in INTEGERS:
        limits = torch.iinfo(dtype)
        near = {
            sign * 2**power + by for power in range(65) for sign in (1, -1) for by in (-1, 0, 1)
        }
        return torch.tensor(
            [each for each in near if limits.min <= each <= limits.max], dtype=dtype
        )
    if dtype.is_complex:
        parts = every_value({4: torch.float16, 8: torch.float32, 16: torch.float64}[dtype.itemsize])
        parts = parts[:: max(1, len(parts) // 1500)]
        pairs = torch.stack([parts, parts.roll(7)], -1)
        return (
            torch.cat([pairs, pairs.flip(-1), pairs * torch.tensor([1, 0])]).view(dtype).flatten()
        )
    floats = torch.finfo(dtype)
    powers = torch.logspace(-160, 160, 321, base=2, dtype=torch.float64).to(dtype)
    special = [0.0, -0.0, float("inf"), float("nan"), floats.max, floats.tiny, floats.tiny / 2**10]
    some = torch.cat([powers, powers * (1 + floats.eps), torch.tensor(special, dtype=dtype)])
    return torch.cat([some, -some])


def same_bits(left: Tensor, right: Tensor) -> bool:
    """Return whether tensors are equal, zeros by sign; NaN is one value."""
    if left.is_complex():
        parts = (torch.view_as_real(each.to(torch.complex128)) for each in (left, right))
        return same_bits(*parts)
    if not left.is_floating_point():
        return torch.equal(left, right)
    mine, theirs = left.double(), right.double()
    equal = (mine == theirs) & (torch.signbit(mine) == torch.signbit(theirs))
    return bool((equal | (mine.isnan() & theirs.isnan())).all())


@pytest.mark.filterwarnings("ignore:Casting complex values:UserWarning")
@pytest.mark.filterwarnings("ignore:ComplexHalf support:UserWarning")
def test_every_value_is_reproduced_exactly_where_declared() -> None:
    differ = []
    for dtype, wide in product(DTYPES, DTYPES):
        values = every_value(dtype)
        comes_back = same_bits(values, values.to(wide).to(dtype))
        said = holds_every_value(wide, dtype)
        # Of integers others come back modulo a power of two, where the device counts like that.
        wraps = dtype in INTEGERS and wide in INTEGERS and wide.itemsize >= dtype.itemsize
        if said != comes_back and not (wraps and not said):
            differ.append((dtype, wide, said, comes_back))

    assert differ == []


@pytest.mark.parametrize(
    "dtype", [torch.qint8, torch.float4_e2m1fn_x2, torch.quint4x2, torch.bits8]
)
def test_packed_and_quantised_dtypes_hold_no_other_values(dtype: torch.dtype) -> None:
    assert not holds_every_value(torch.float64, dtype)
    assert not holds_every_value(dtype, torch.bool)


@pytest.mark.filterwarnings("ignore:Casting complex values:UserWarning")
@pytest.mark.filterwarnings("ignore:ComplexHalf support:UserWarning")
@pytest.mark.parametrize("target", [torch.ops.aten.to.dtype, torch.ops.aten._to_copy.default])
def test_what_the_rule_removes_of_all_triples_is_exact(target: torch._ops.OpOverload) -> None:
    graph = Graph()
    casts = {}
    for first in DTYPES:
        x = graph.placeholder(f"x_{str(first)[6:]}")
        x.meta["val"] = torch.empty(4, dtype=first, device="meta")
        for through, last in product(DTYPES, DTYPES):
            y = x
            for dtype in (through, last):
                named = target is torch.ops.aten._to_copy.default
                value = y.meta["val"].to(dtype)
                args, kwargs = ((y,), {"dtype": dtype}) if named else ((y, dtype), {})
                y = graph.call_function(target, args, kwargs)  # type: ignore[arg-type]
                y.meta["val"] = value
            user = graph.call_function(torch.ops.aten.isnan.default, (y,))
            casts[user] = (x, first, through, last)
    graph.output(tuple(casts))
    rules = [rule for rule in remove_noops() if rule.name == "remove_double_cast"]

    apply_rules(graph, rules)

    removed = [triple for user, (x, *triple) in casts.items() if user.args == (x,)]
    assert len(removed) > 60
    for first, through, last in removed:
        values = every_value(first)
        assert last is first
        assert same_bits(values, values.to(through).to(last)), (first, through)
    # What engines have in every layer.
    assert [torch.bfloat16, torch.float32, torch.bfloat16] in removed
    assert [torch.int32, torch.float32, torch.int32] not in removed
