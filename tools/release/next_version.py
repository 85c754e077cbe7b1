"""Decides which version a release may have.

While a package is 0.x, a new minor number means that users may have to change their code, and a new
patch number means anything else. From 1.0 on, major, minor and patch follow Semantic Versioning.
``npu-compile`` states ranges of its siblings by these numbers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from packaging.version import Version

from release.change_notes import BREAKING
from release.errors import ReleaseError

if TYPE_CHECKING:
    from collections.abc import Collection

PATCHES = frozenset({"fixed", "internal"})


def next_version(last: Version, kinds: Collection[str]) -> Version:
    """Return the smallest version that may follow a release.

    Args:
        last: The newest released version.
        kinds: The kinds of the change notes since then.
    """
    if BREAKING in kinds:
        fits = (last.major + 1, 0, 0) if last.major else (0, last.minor + 1, 0)
    elif last.major and not PATCHES.issuperset(kinds):
        fits = (last.major, last.minor + 1, 0)
    else:
        fits = (last.major, last.minor, last.micro + 1)
    return Version(".".join(str(number) for number in fits))


def check_version(version: Version, last: Version, kinds: Collection[str]) -> None:
    """Raise if a version may not follow the last release.

    Raises:
        ReleaseError: It is not newer, or its numbers promise more than the change notes keep.
    """
    least = next_version(last, kinds)
    if version < least:
        reason = f"a note of kind {BREAKING!r} is among them" if BREAKING in kinds else "by kind"
        raise ReleaseError(
            f"version {version} after {last} with {len(kinds)} kinds of change notes ({reason}): "
            f"expected {least} or newer; leave the version out to take {least}"
        )
