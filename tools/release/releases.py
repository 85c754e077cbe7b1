"""Which versions of a package are released, and at which commit.

A release has a tag, ``<package>-v<version>``. A clone may have come without tags; then its commit
tells, which ``release`` made with the subject ``Release <package>-v<version>``.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from packaging.version import VERSION_PATTERN, Version

from release.command import git
from release.errors import ReleaseError

if TYPE_CHECKING:
    from sessions.package import Package

VERSION = re.compile(VERSION_PATTERN, re.VERBOSE | re.IGNORECASE)


def release_subject(tag: str) -> str:
    """Return the first line of the message of a release's commit."""
    return f"Release {tag}"


def released_versions(package: Package) -> list[Version]:
    """Return the released versions, the oldest first; other tags and commits are none of ours."""
    return sorted(_revisions(package))


def last_release(package: Package) -> Version | None:
    """Return the newest released version, or ``None`` before the first release."""
    versions = released_versions(package)
    return versions[-1] if versions else None


def revision_of(package: Package, version: Version) -> str:
    """Return git's name for a release: its tag, or its commit in a clone without the tag.

    Raises:
        ReleaseError: The version is not released.
    """
    revisions = _revisions(package)
    if version not in revisions:
        raise ReleaseError(f"{package.name} {version}: there is neither its tag nor its commit")
    return revisions[version]


def _revisions(package: Package) -> dict[Version, str]:
    prefix = f"{package.name}-v"
    found: dict[Version, str] = {}
    subject = release_subject(prefix)
    lines = git(package.root, "log", "--format=%H %s", f"--grep=^{subject}").splitlines()
    for line in lines:
        commit, _, text = line.partition(" ")
        stated = text.removeprefix(subject)
        if text.startswith(subject) and VERSION.fullmatch(stated):
            # The newest first: the last that is made under a version is the one.
            found.setdefault(Version(stated), commit)
    for tag in git(package.root, "tag", "--list", f"{prefix}*").splitlines():
        stated = tag.removeprefix(prefix)
        if VERSION.fullmatch(stated):
            found[Version(stated)] = tag
    return found
