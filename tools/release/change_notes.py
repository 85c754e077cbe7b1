"""Change notes: one small file each, ``changes/<what>.<kind>.md``, until a release collects it.

The kinds and their headings are defined in ``[tool.towncrier]`` of each package. ``breaking`` is
for changes that require users to change their code. ``internal`` is for changes that users cannot
notice; the changelog leaves them out.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from release.command import output_of
from release.errors import ReleaseError

if TYPE_CHECKING:
    from datetime import date
    from pathlib import Path

    from packaging.version import Version

    from sessions.package import Package

BREAKING = "breaking"


@dataclass(frozen=True, kw_only=True)
class ChangeNote:
    """One file below ``changes``.

    Attributes:
        path: The file.
        kind: Which heading of the changelog it comes under.
    """

    path: Path
    kind: str


def kinds(package: Package) -> tuple[str, ...]:
    """Return the kinds of change notes that a package's ``pyproject.toml`` declares."""
    return tuple(row["directory"] for row in package.project["tool"]["towncrier"]["type"])


def read_change_notes(package: Package) -> list[ChangeNote]:
    """Read a package's change notes and return them by file name.

    Raises:
        ReleaseError: A file is not named ``<what>.<kind>.md``, or is empty.
    """
    return [_read(package, path) for path in sorted(package.changes.glob("*")) if _is_note(path)]


def changelog_section(package: Package, version: Version, day: date) -> str:
    """Return the part of the changelog that the change notes make, without its title."""
    read_change_notes(package)
    command = [sys.executable, "-m", "towncrier", "build", "--draft"]
    text = output_of(
        *command, "--version", str(version), "--date", day.isoformat(), folder=package.folder
    )
    return text.strip()


def _is_note(path: Path) -> bool:
    return path.name not in {".gitkeep", "README.md"}


def _read(package: Package, path: Path) -> ChangeNote:
    parts = path.name.rsplit(".", maxsplit=2)
    known = kinds(package)
    if len(parts) != 3 or parts[1] not in known or parts[2] != "md":
        raise ReleaseError(
            f"reading the change note {path.relative_to(package.root)}: expected a name "
            f"`<what>.<kind>.md` with a kind of {', '.join(known)}; rename the file"
        )
    if not path.read_text(encoding="utf-8").strip():
        raise ReleaseError(
            f"reading the change note {path.relative_to(package.root)}: it is empty; say in a "
            "sentence what a user notices"
        )
    return ChangeNote(path=path, kind=parts[1])
