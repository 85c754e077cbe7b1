"""Releases are found by their tags and, where a clone has none, by their commits."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from packaging.version import Version

from release.command import git
from release.errors import ReleaseError
from release.releases import last_release, release_subject, released_versions, revision_of

if TYPE_CHECKING:
    from conftest import Repository


def release(repository: Repository, version: str) -> str:
    """Make the commit of a release, and return it."""
    repository.write("packages/leaf/CHANGELOG.md", f"## {version}\n")
    return repository.commit(f"{release_subject(f'leaf-v{version}')}\n\nWhat it brings.")


def test_release_without_a_tag_is_found_by_its_commit(repository: Repository) -> None:
    assert last_release(repository.leaf) is None
    first = release(repository, "0.1.0")
    second = release(repository, "0.10.0")

    assert released_versions(repository.leaf) == [Version("0.1.0"), Version("0.10.0")]
    assert revision_of(repository.leaf, Version("0.1.0")) == first
    assert revision_of(repository.leaf, Version("0.10.0")) == second
    assert last_release(repository.top) is None


def test_tag_precedes_the_commit(repository: Repository) -> None:
    release(repository, "0.1.0")
    repository.tag("leaf-v0.1.0")
    assert revision_of(repository.leaf, Version("0.1.0")) == "leaf-v0.1.0"

    git(repository.root, "tag", "--delete", "leaf-v0.1.0")
    assert last_release(repository.leaf) == Version("0.1.0")


@pytest.mark.parametrize(
    "message",
    [
        'Revert "Release leaf-v0.1.0"',
        "Release leaf-v0.1.0 soon",
        "Release leaf-vnext",
        "Releases\n\nRelease leaf-v0.1.0",
        "Release leaf-version-v0.1.0",
    ],
)
def test_other_commits_are_no_releases(repository: Repository, message: str) -> None:
    repository.write("docs/page.md", message)
    repository.commit(message)
    assert released_versions(repository.leaf) == []


def test_version_that_is_not_released_is_named(repository: Repository) -> None:
    with pytest.raises(ReleaseError, match=r"leaf 0\.2\.0: there is neither its tag nor its"):
        revision_of(repository.leaf, Version("0.2.0"))
