"""The changelog of a package: where a release's section goes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from release.errors import ReleaseError

if TYPE_CHECKING:
    from datetime import date

    from packaging.version import Version


def with_release(text: str, version: Version, day: date, section: str) -> str:
    """Return a changelog with the section of a release.

    A handwritten section ``## <version> (unreleased)``, as before a first
    release,
    gets its date, and the collected notes are appended to it. Otherwise the section is inserted
    before
    the newest one.

    Args:
        text: The changelog.
        version: The version that is released.
        day: The day of the release.
        section: The collected change notes, without a title; empty if there are none.

    Raises:
        ReleaseError: The version already has a dated section, or there are neither notes nor a
            section for it.
    """
    title = f"## {version} ({day.isoformat()})"
    by_hand = f"## {version} (unreleased)"
    lines = text.splitlines()
    titles = [number for number, line in enumerate(lines) if line.startswith("## ")]
    if by_hand in lines:
        start = lines.index(by_hand)
        end = next((number for number in titles if number > start), len(lines))
        body = "\n".join(lines[start + 1 : end]).strip()
        parts = [
            *_stripped(lines[:start]),
            "",
            title,
            "",
            body,
            *(["", section] if section else []),
        ]
        rest = lines[end:]
    else:
        if any(lines[number].startswith(f"## {version} (") for number in titles):
            raise ReleaseError(f"the changelog has a dated section of {version} already")
        if not section:
            raise ReleaseError(
                f"releasing {version}: there is no change note and no section `{by_hand}`, so "
                "nothing says what is released; add a note below changes/"
            )
        start = titles[0] if titles else len(lines)
        parts = [*_stripped(lines[:start]), "", title, "", section]
        rest = lines[start:]
    return "\n".join(parts).rstrip() + "\n" + ("\n" + "\n".join(rest) + "\n" if rest else "")


def section_of(text: str, version: Version) -> str:
    """Return the section of a changelog about a version, without the title."""
    lines = text.splitlines()
    titles = [number for number, line in enumerate(lines) if line.startswith("## ")]
    start = next(number for number in titles if lines[number].startswith(f"## {version} ("))
    end = next((number for number in titles if number > start), len(lines))
    return "\n".join(lines[start + 1 : end]).strip()


def _stripped(lines: list[str]) -> list[str]:
    return "\n".join(lines).rstrip().splitlines()
