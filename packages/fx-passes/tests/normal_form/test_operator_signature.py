"""Binding of calls to schemas, and the choice of overloads."""

from __future__ import annotations

import pytest
import torch

from fx_passes.errors import PatternError
from fx_passes.normal_form.operator_signature import (
    OperatorSignature,
    SignatureTable,
    accepts,
    find_operator,
    resolve_overload,
)

aten = torch.ops.aten


def test_bind_fills_defaults_and_takes_keywords() -> None:
    signature = OperatorSignature.of(aten.add.Tensor)

    assert signature.bind((1, 2), {}) == (1, 2, 1)
    assert signature.bind((1,), {"other": 2, "alpha": 3}) == (1, 2, 3)


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [((1,), {}), ((1, 2, 3), {}), ((1, 2), {"beta": 1}), ((1, 2), {"self": 1}), ((), {})],
)
def test_bind_refuses_what_does_not_fit(args: tuple[int, ...], kwargs: dict[str, int]) -> None:
    assert OperatorSignature.of(aten.add.Tensor).bind(args, kwargs) is None


def test_minimal_is_the_inverse_of_bind() -> None:
    signature = OperatorSignature.of(torch.ops.npu.npu_add_rms_norm_quant.default)
    bound = signature.bind((1, 2, 3, 4, None), {"epsilon": 0.5, "div_mode": True})
    assert bound is not None

    args, kwargs = signature.minimal(bound)

    assert args == (1, 2, 3, 4, None)
    assert kwargs == {"epsilon": 0.5}
    assert signature.bind(args, kwargs) == bound


def test_minimal_keeps_a_value_that_only_equals_its_default() -> None:
    signature = OperatorSignature.of(aten.slice.Tensor)

    assert signature.minimal(("x", False, None, None, 1)) == (("x", False), {})


def test_find_operator_knows_default_named_and_missing_ones() -> None:
    assert find_operator("aten::silu") is aten.silu.default
    assert find_operator("aten::add.Tensor") is aten.add.Tensor
    assert find_operator("aten::no_such_operator") is None
    assert find_operator("nowhere::silu") is None
    with pytest.raises(PatternError, match="`namespace::operator`"):
        find_operator("silu")


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        ("Tensor", torch.empty(1, device="meta"), True),
        ("Tensor", 1, False),
        ("Optional[Tensor]", None, True),
        ("List[int]", [1, 2], True),
        ("List[int]", [1, 2.0], False),
        ("List[int]", 1, False),
        ("int", True, False),
        ("float", 1, True),
        ("number", 1.5, True),
        ("bool", True, True),
        ("bool", 1, False),
        ("ScalarType", torch.float16, True),
        ("Device", "cpu", True),
        ("MemoryFormat", torch.contiguous_format, True),
        ("Layout", torch.strided, True),
        ("str", "a", True),
        ("Generator", "a", False),
    ],
)
def test_accepts_follows_the_schema_types(kind: str, value: object, expected: bool) -> None:
    assert accepts(kind, value) is expected


def test_accepts_a_number_for_a_broadcast_list() -> None:
    assert accepts("List[int]", 1, broadcast=True)


def test_resolve_overload_distinguishes_tensors_numbers_and_lists() -> None:
    table, x = SignatureTable(), torch.empty(4, device="meta")

    assert resolve_overload(aten.add, (x, x), {}, table) is aten.add.Tensor
    assert resolve_overload(aten.add, (x, 1), {}, table) is aten.add.Scalar
    assert resolve_overload(aten.split, (x, 2), {}, table) is aten.split.Tensor
    assert resolve_overload(aten.split, (x, [2, 2]), {}, table) is aten.split.sizes
    assert resolve_overload(aten.add, (x, "a"), {}, table) is None
