"""Checks that a change has a change note, and a breaking note if it breaks public names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from release.change_notes import BREAKING, read_change_notes
from release.changed_files import changed_files
from release.errors import ReleaseError
from release.public_names import changed_names
from release.releases import last_release
from sessions.package import packages

if TYPE_CHECKING:
    from pathlib import Path

    from sessions.package import Package


def check_changes(root: Path, base: str) -> list[str]:
    """Check every package of a checkout, and return the findings as lines.

    Args:
        root: The checkout.
        base: The revision that the change is for, for instance ``origin/main``.

    Raises:
        ReleaseError: Sources of a package changed without a note, or public names were removed or
            changed since its last release without a ``breaking`` note; the message lists them all.
    """
    files = changed_files(root, base)
    lines: list[str] = []
    wrong: list[str] = []
    for package in packages(root):
        for check in (lambda each: check_notes(each, files), check_names):
            try:
                lines.append(f"{package.name}: {check(package)}")
            except ReleaseError as error:  # noqa: PERF203 - reports all problems at once
                wrong.append(str(error))
    if wrong:
        raise ReleaseError("\n".join(wrong))
    return lines


def check_notes(package: Package, files: list[str]) -> str:
    """Check that a package whose sources are among changed files has a note among them too.

    A change that releases the package (its version and changelog, and no other source) needs none.

    Raises:
        ReleaseError: It has none.
    """
    prefix = f"packages/{package.name}/"
    sources = [file for file in files if file.startswith(f"{prefix}src/")]
    notes = [note.path.relative_to(package.root).as_posix() for note in read_change_notes(package)]
    new = sorted({*notes} & {*files})
    about = package.about.relative_to(package.root).as_posix()
    if not sources or sources == [about]:
        return "sources as they were"
    if not new:
        shown = ", ".join(sources[:3]) + (f" and {len(sources) - 3} more" if sources[3:] else "")
        raise ReleaseError(
            f"{package.name}: {shown} changed, and nothing below {prefix}changes/ says so; add "
            f"{prefix}changes/<what>.<kind>.md with a sentence for users (kinds: CONTRIBUTING.md)"
        )
    return f"{len(sources)} sources changed, noted in {', '.join(new)}"


def check_names(package: Package) -> str:
    """Check the public names against the last release.

    Raises:
        ReleaseError: Names broke, and no change note has the kind ``breaking``.
    """
    last = last_release(package)
    if last is None:
        return "public names compared with nothing, as there is no release"
    broken = changed_names(package, last)
    if not broken:
        return f"public names keep what {last} had"
    if BREAKING not in {note.kind for note in read_change_notes(package)}:
        listed = "\n".join(f"  {line}" for line in broken)
        raise ReleaseError(
            f"{package.name}: public names of {last} are gone or changed, and no change note has "
            f"the kind {BREAKING!r}:\n{listed}\nkeep them, or add "
            f"packages/{package.name}/changes/<what>.{BREAKING}.md that says what users do"
        )
    return "; ".join([f"public names break what {last} had, as noted", *broken])
