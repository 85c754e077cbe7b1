from __future__ import annotations

from typing import TYPE_CHECKING

from release.changed_files import changed_files

if TYPE_CHECKING:
    from conftest import Repository


def test_moved_file_counts_where_it_was_and_where_it_is(repository: Repository) -> None:
    old = repository.root / "packages/leaf/src/leaf/parts.py"
    old.rename(repository.root / "packages/top/src/top/moved.py")
    repository.commit("move")

    assert changed_files(repository.root, "HEAD~1") == [
        "packages/leaf/src/leaf/parts.py",
        "packages/top/src/top/moved.py",
    ]


def test_files_that_git_does_not_know_count(repository: Repository) -> None:
    repository.write("packages/leaf/src/leaf/new.py", "")

    assert changed_files(repository.root, "HEAD") == ["packages/leaf/src/leaf/new.py"]
