from __future__ import annotations

import pytest
from packaging.version import Version

from release.errors import ReleaseError
from release.next_version import check_version, next_version


@pytest.mark.parametrize(
    ("last", "kinds", "expected"),
    [
        ("0.1.0", {"fixed"}, "0.1.1"),
        ("0.1.4", {"added", "changed"}, "0.1.5"),
        ("0.1.4", {"added", "breaking"}, "0.2.0"),
        ("1.2.3", {"fixed", "internal"}, "1.2.4"),
        ("1.2.3", {"added"}, "1.3.0"),
        ("1.2.3", {"breaking"}, "2.0.0"),
    ],
)
def test_next_version_follows_the_kinds(last: str, kinds: set[str], expected: str) -> None:
    assert next_version(Version(last), kinds) == Version(expected)


@pytest.mark.parametrize(("version", "kinds"), [("0.1.1", {"breaking"}), ("0.1.0", {"fixed"})])
def test_version_that_promises_too_much_is_refused(version: str, kinds: set[str]) -> None:
    with pytest.raises(ReleaseError, match="expected 0"):
        check_version(Version(version), Version("0.1.0"), kinds)


def test_version_may_be_larger_than_needed() -> None:
    check_version(Version("1.0.0"), Version("0.1.0"), {"fixed"})
