from __future__ import annotations

from datetime import date
from typing import TYPE_CHECKING

import pytest
from packaging.version import Version

from release.change_notes import changelog_section
from release.changelog import section_of, with_release
from release.errors import ReleaseError

if TYPE_CHECKING:
    from conftest import Repository

DAY = date(2026, 11, 22)
BY_HAND = "# Changelog\n\nVersions.\n\n## 0.1.0 (unreleased)\n\n- First.\n- Second.\n"


def test_section_written_by_hand_is_dated() -> None:
    text = with_release(BY_HAND, Version("0.1.0"), DAY, "")

    assert text == BY_HAND.replace("(unreleased)", "(2026-11-22)")


def test_notes_follow_what_was_written_by_hand() -> None:
    text = with_release(BY_HAND, Version("0.1.0"), DAY, "### Fixed\n\n- Third.")

    assert section_of(text, Version("0.1.0")) == "- First.\n- Second.\n\n### Fixed\n\n- Third."


def test_new_section_precedes_older_ones() -> None:
    first = with_release(BY_HAND, Version("0.1.0"), DAY, "")

    text = with_release(first, Version("0.1.1"), DAY, "### Fixed\n\n- Third.")

    new = "## 0.1.1 (2026-11-22)\n\n### Fixed\n\n- Third.\n\n"
    assert text == first.replace("## 0.1.0", f"{new}## 0.1.0")
    assert section_of(text, Version("0.1.1")) == "### Fixed\n\n- Third."
    assert section_of(text, Version("0.1.0")) == "- First.\n- Second."


def test_first_section_of_an_empty_changelog() -> None:
    text = with_release("# Changelog\n", Version("0.1.0"), DAY, "- First.")

    assert text == "# Changelog\n\n## 0.1.0 (2026-11-22)\n\n- First.\n"


def test_release_that_nothing_is_said_about_is_refused() -> None:
    with pytest.raises(ReleaseError, match="nothing says what is released"):
        with_release("# Changelog\n", Version("0.1.0"), DAY, "")


def test_version_that_has_a_date_is_refused() -> None:
    text = with_release(BY_HAND, Version("0.1.0"), DAY, "")

    with pytest.raises(ReleaseError, match=r"dated section of 0\.1\.0"):
        with_release(text, Version("0.1.0"), DAY, "- Again.")


def test_notes_are_sorted_under_their_headings_and_internal_ones_left_out(
    repository: Repository,
) -> None:
    repository.write("packages/leaf/changes/b.fixed.md", "Second\nline.\n")
    repository.write("packages/leaf/changes/a.fixed.md", "First.\n")
    repository.write("packages/leaf/changes/gone.breaking.md", "`x` is gone.\n")
    repository.write("packages/leaf/changes/moved.internal.md", "Nobody sees it.\n")

    section = changelog_section(repository.leaf, Version("0.2.0"), DAY)

    assert section == ("### Breaking\n\n- `x` is gone.\n\n### Fixed\n\n- First.\n- Second\n  line.")
