"""The helpers that compare results can fail."""

from __future__ import annotations

import pytest
import torch

from fx_passes.testing import assert_same_values, tolerance_of


def test_same_values_are_accepted() -> None:
    assert_same_values((torch.ones(2), [3]), (torch.ones(2), [3]))


@pytest.mark.parametrize(
    ("actual", "expected", "message"),
    [
        (torch.ones(2), torch.ones(3), r"\[2\]"),
        (torch.ones(2), torch.ones(2).half(), "float16"),
        (torch.ones(2), torch.zeros(2), "2 of 2 values differ"),
        ((torch.ones(2),), [torch.ones(2)], "structure"),
        ([1], [2], "expected 2, found 1"),
        ([1], [torch.ones(1)], "expected a tensor, found 1"),
    ],
)
def test_differences_are_found(actual: object, expected: object, message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        assert_same_values(actual, expected)


def test_tolerance_is_a_rounding_of_the_dtype() -> None:
    one = torch.ones(1, dtype=torch.bfloat16)
    next_one = one + tolerance_of(torch.bfloat16, roundings=1)

    assert_same_values(next_one, one, roundings=1)
    with pytest.raises(AssertionError, match="largest difference"):
        assert_same_values(next_one + 0.03, one, roundings=1)


def test_nan_is_a_difference() -> None:
    with pytest.raises(AssertionError, match="largest difference nan"):
        assert_same_values(torch.tensor([float("nan")]), torch.ones(1), roundings=1)


def test_quantised_values_may_be_off_by_few_steps() -> None:
    values = torch.full((100,), 100, dtype=torch.int8)
    near, far, many = values.clone(), values.clone(), values.clone()
    near[:3] += 1
    far[0] += 2
    many[:90] += 1

    assert_same_values(near, values, roundings=2, dtype=torch.bfloat16)
    with pytest.raises(AssertionError, match=r"by up to 2; expected at most \d+, by 1"):
        assert_same_values(far, values, roundings=2, dtype=torch.bfloat16)
    with pytest.raises(AssertionError, match="90 of 100 quantised values differ"):
        assert_same_values(many, values, roundings=1, dtype=torch.bfloat16)
    with pytest.raises(AssertionError, match="3 of 100 values differ"):
        assert_same_values(near, values, roundings=2)
