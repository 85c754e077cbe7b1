"""Hashes of functions."""

from __future__ import annotations

import linecache
from dataclasses import replace
from functools import partial
from types import ModuleType
from typing import TYPE_CHECKING

import pytest
import torch

import fx_passes
from fx_passes import FingerprintError
from fx_passes.fingerprint import fingerprint_of_functions
from fx_passes.fusions import fuse_split_qkv_rms_norm_rope
from fx_passes.operators.vendor_kernel import KNOWN_KERNELS

if TYPE_CHECKING:
    from collections.abc import Callable


def one(x: int = 1) -> int:
    return x


def two(x: int = 2) -> int:
    return x


LIMITS = {"size": 3}
OPAQUE = object()


def within(x: int) -> bool:
    return x < LIMITS["size"]


def calls_a_helper(x: int) -> bool:
    return any(within(each) for each in [x])


def even(x: int) -> bool:
    return x == 0 or odd(x - 1)


def odd(x: int) -> bool:
    return x != 0 and even(x - 1)


def reads_an_object() -> object:
    return OPAQUE


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


def test_function_without_source_counts_with_its_code(monkeypatch: pytest.MonkeyPatch) -> None:
    # What Python 3.13 does for the text of `python -c`.
    text = "def made(x): return x\n"
    monkeypatch.setitem(linecache.cache, "<string>", (len(text), None, [text], "<string>"))
    namespace: dict[str, object] = {}
    exec("def made(x): return x + 1", namespace)
    first = namespace["made"]
    exec("def made(x): return x + 2", namespace)

    assert fingerprint_of_functions((first,)) != fingerprint_of_functions((namespace["made"],))


def test_object_without_stable_content_is_refused() -> None:
    with pytest.raises(FingerprintError, match="address"):
        fingerprint_of_functions((closing_over(Opaque()),))
    assert fingerprint_of_functions((closing_over(Stable()),))


def test_constant_that_a_helper_reads_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    before = fingerprint_of_functions((calls_a_helper,))
    assert before == fingerprint_of_functions((calls_a_helper,))

    monkeypatch.setitem(LIMITS, "size", 4)

    assert fingerprint_of_functions((calls_a_helper,)) != before


def test_helper_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    before = fingerprint_of_functions((calls_a_helper,))

    monkeypatch.setitem(globals(), "within", lambda x: x < 2)

    assert fingerprint_of_functions((calls_a_helper,)) != before


def module_of(package: str, limit: int) -> ModuleType:
    module = ModuleType(f"{package}.limits")
    module.LIMIT = limit  # type: ignore[attr-defined]
    return module


def test_constant_of_an_imported_module_counts() -> None:
    fingerprints = set()
    for limit in (1, 2):
        namespace: dict[str, object] = {"__name__": "mine", "limits": module_of("mine", limit)}
        exec("def check(x): return x < limits.LIMIT", namespace)
        fingerprints.add(fingerprint_of_functions((namespace["check"],)))

    assert len(fingerprints) == 2


def test_keyword_only_default_counts() -> None:
    def limited(limit: int) -> Callable[..., bool]:
        def check(x: int, *, most: int = limit) -> bool:
            return x < most

        return check

    assert fingerprint_of_functions((limited(1),)) != fingerprint_of_functions((limited(2),))


def test_functions_that_call_each_other_have_a_fingerprint() -> None:
    assert fingerprint_of_functions((even,)) != fingerprint_of_functions((odd,))


def test_object_of_a_module_without_stable_content_counts_with_its_type() -> None:
    assert fingerprint_of_functions((reads_an_object,))


def test_function_of_another_package_counts_with_its_name() -> None:
    fingerprints = set()
    for body in ("x < 1", "x < 2"):
        other: dict[str, object] = {"__name__": "theirs"}
        exec(f"def helper(x): return {body}", other)
        namespace: dict[str, object] = {"__name__": "mine", "helper": other["helper"]}
        exec("def check(x): return helper(x)", namespace)
        fingerprints.add(fingerprint_of_functions((namespace["check"],)))

    assert len(fingerprints) == 1


RULE = fx_passes.Rule(name="rule", patterns=(lambda x: {"y": x.neg()},), rewrite=lambda *_: {})


@pytest.mark.parametrize(
    "changed",
    [replace(RULE, shares_memory=True), replace(RULE, optional=True), replace(RULE, name="other")],
)
def test_promises_of_a_rule_count(changed: fx_passes.Rule) -> None:
    assert changed.fingerprint() != RULE.fingerprint()


def test_whether_a_pass_repeats_counts() -> None:
    once, often = (
        fx_passes.RulePass(name="rules", rules=(RULE,), repeats=repeats)
        for repeats in (False, True)
    )

    assert once.fingerprint() != often.fingerprint()


def test_operator_that_is_installed_later_counts() -> None:
    rule = replace(RULE, operators=("fx_passes_test::installed_later",))
    (kernel,) = KNOWN_KERNELS[:1]
    kernel = replace(kernel, operator="fx_passes_test::installed_later")
    fusion = fuse_split_qkv_rms_norm_rope(kernels=(kernel,))
    before = [rule.fingerprint(), fusion.fingerprint()]
    assert before == [rule.fingerprint(), fusion.fingerprint()]

    library = torch.library.Library("fx_passes_test", "FRAGMENT")  # type: ignore[no-untyped-call]
    library.define("installed_later(Tensor x) -> Tensor")  # type: ignore[no-untyped-call]
    after = [rule.fingerprint(), fusion.fingerprint()]
    library._destroy()  # type: ignore[no-untyped-call]

    assert before[0] != after[0]
    assert before[1] != after[1]
