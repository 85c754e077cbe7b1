"""Errors of the package."""

from __future__ import annotations

import pytest

import piecewise_split
from piecewise_split import PiecewiseSplitError


@pytest.mark.parametrize(
    "name", [name for name in piecewise_split.__all__ if name.endswith("Error")]
)
def test_error_class_is_ours_and_a_built_in(name: str) -> None:
    error = getattr(piecewise_split, name)

    assert issubclass(error, PiecewiseSplitError)
    if error is not PiecewiseSplitError:
        assert issubclass(error, (ValueError, TypeError, RuntimeError))
