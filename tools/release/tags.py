"""Which versions of a package are released: its tags, ``<package>-v<version>``."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from packaging.version import VERSION_PATTERN, Version

from release.command import git

if TYPE_CHECKING:
    from sessions.package import Package

VERSION = re.compile(VERSION_PATTERN, re.VERBOSE | re.IGNORECASE)


def released_versions(package: Package) -> list[Version]:
    """Return the versions that have a tag, the oldest first; other tags are none of ours."""
    prefix = f"{package.name}-v"
    tags = git(package.root, "tag", "--list", f"{prefix}*").splitlines()
    stated = [tag.removeprefix(prefix) for tag in tags]
    return sorted(Version(text) for text in stated if VERSION.fullmatch(text))


def last_release(package: Package) -> Version | None:
    """Return the newest released version, or ``None`` before the first release."""
    versions = released_versions(package)
    return versions[-1] if versions else None
