"""Hashes of functions."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest

from fx_passes import FingerprintError
from fx_passes.fingerprint import fingerprint_of_functions

if TYPE_CHECKING:
    from collections.abc import Callable


def one(x: int = 1) -> int:
    return x


def two(x: int = 2) -> int:
    return x


class Opaque:
    pass


class Stable:
    def fingerprint(self) -> str:
        return "stable"


def closing_over(value: object) -> Callable[[], object]:
    def inner() -> object:
        return value

    return inner


def test_same_function_has_the_same_fingerprint() -> None:
    assert fingerprint_of_functions((one,)) == fingerprint_of_functions((one,))
    assert fingerprint_of_functions((one,)) != fingerprint_of_functions((two,))
    assert fingerprint_of_functions((one,), 1) != fingerprint_of_functions((one,), 2)


def test_closed_over_values_and_partial_arguments_count() -> None:
    assert fingerprint_of_functions((closing_over(1),)) != fingerprint_of_functions(
        (closing_over(2),)
    )
    assert fingerprint_of_functions((partial(one, x=1),)) != fingerprint_of_functions(
        (partial(one, x=2),)
    )
    assert fingerprint_of_functions((closing_over({"a": [1]}),)) != fingerprint_of_functions(
        (closing_over({"a": [2]}),)
    )


def test_function_without_source_counts_with_its_code() -> None:
    namespace: dict[str, object] = {}
    exec("def made(x): return x + 1", namespace)
    first = namespace["made"]
    exec("def made(x): return x + 2", namespace)

    assert fingerprint_of_functions((first,)) != fingerprint_of_functions((namespace["made"],))


def test_object_without_stable_content_is_refused() -> None:
    with pytest.raises(FingerprintError, match="address"):
        fingerprint_of_functions((closing_over(Opaque()),))
    assert fingerprint_of_functions((closing_over(Stable()),))
