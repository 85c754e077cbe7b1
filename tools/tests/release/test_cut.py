"""What ends a release before anything is built, and that it leaves nothing behind."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from packaging.version import Version

from release.command import git
from release.cut import cut_release
from release.errors import ReleaseError
from release.installer import Installer

if TYPE_CHECKING:
    from conftest import Repository

# Nothing here gets as far as to start it.
INSTALLER = Installer(uv="uv-that-is-not-there", python="3.11")


def test_checkout_that_is_not_clean_is_refused_and_shown(repository: Repository) -> None:
    repository.write("packages/leaf/README.md", "# changed\n")
    repository.write("packages/leaf/new.txt", "")

    with pytest.raises(ReleaseError, match="expected a clean checkout, found 2 changes") as caught:
        cut_release(repository.leaf, None, INSTALLER, write=True)

    assert "M packages/leaf/README.md" in str(caught.value)
    assert "?? packages/leaf/new.txt" in str(caught.value)


def test_tag_that_exists_is_refused(repository: Repository) -> None:
    repository.tag("leaf-v0.1.0")

    with pytest.raises(ReleaseError, match=r"it exists already, at leaf-v0\.1\.0"):
        cut_release(repository.leaf, Version("0.1.0"), INSTALLER, write=True)


def test_tag_of_a_form_that_is_read_as_the_same_version_is_refused(repository: Repository) -> None:
    repository.tag("leaf-v0.1")

    with pytest.raises(ReleaseError, match=r"leaf: no change note since 0\.1; nothing"):
        cut_release(repository.leaf, None, INSTALLER, write=True)


def test_version_that_hides_a_break_is_refused(repository: Repository) -> None:
    repository.tag("leaf-v0.1.0")
    repository.write("packages/leaf/changes/names.breaking.md", "Names.\n")
    repository.commit("names")

    with pytest.raises(ReleaseError, match=r"expected 0\.2\.0 or newer"):
        cut_release(repository.leaf, Version("0.1.1"), INSTALLER, write=True)


def test_removed_public_name_is_refused_and_named(repository: Repository) -> None:
    repository.tag("leaf-v0.1.0")
    path = "packages/leaf/src/leaf/__init__.py"
    text = (repository.root / path).read_text()
    repository.write(path, text.replace(', "second"', ""))
    repository.write("packages/leaf/changes/names.changed.md", "Names.\n")
    repository.commit("names")

    with pytest.raises(ReleaseError, match=r"leaf\.second: public object was removed"):
        cut_release(repository.leaf, None, INSTALLER, write=True)


def test_failed_release_leaves_the_repository_as_it_was(repository: Repository) -> None:
    before = git(repository.root, "rev-parse", "HEAD")

    with pytest.raises(FileNotFoundError, match="uv-that-is-not-there"):
        cut_release(repository.leaf, None, INSTALLER, write=True)

    assert git(repository.root, "rev-parse", "HEAD") == before
    assert not git(repository.root, "tag", "--list")
    assert not git(repository.root, "status", "--porcelain")
    assert len(git(repository.root, "worktree", "list").splitlines()) == 1
