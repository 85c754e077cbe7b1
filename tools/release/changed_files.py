"""Which files a branch changed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from release.command import git, is_revision
from release.errors import ReleaseError

if TYPE_CHECKING:
    from pathlib import Path


def changed_files(root: Path, base: str) -> list[str]:
    """Return the files that differ from the merge base with another revision.

    Files that are not committed, or not known to git, count too.

    Args:
        root: The checkout.
        base: A revision, for instance ``origin/main``.

    Raises:
        ReleaseError: git knows no such revision.
    """
    if not is_revision(root, base):
        raise ReleaseError(
            f"comparing with {base!r}: git knows no such revision in {root}; fetch it, or name "
            "another"
        )
    start = git(root, "merge-base", base, "HEAD")
    tracked = git(root, "diff", "--name-only", "--no-renames", start, "--").splitlines()
    untracked = git(root, "ls-files", "--others", "--exclude-standard").splitlines()
    return sorted({*tracked, *untracked})
