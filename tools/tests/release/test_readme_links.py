"""Links of package READMEs hold where an index shows the page, without the repository around it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sessions.package import packages

if TYPE_CHECKING:
    from sessions.package import Package

ROOT = Path(__file__).parents[3]
CODE = re.compile(r"```.*?```|`[^`\n]*`", re.DOTALL)
LINK = re.compile(r"\]\((?P<target>[^)]*)\)")
HEADING = re.compile(r"^#+ (?P<title>.*)$", re.MULTILINE)


def anchor(title: str) -> str:
    """Return the address of a section below its page."""
    return "#" + re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


@pytest.mark.parametrize("package", packages(ROOT), ids=lambda package: package.name)
def test_links_are_addresses_or_sections_of_the_page(package: Package) -> None:
    text = (package.folder / "README.md").read_text(encoding="utf-8")
    sections = {anchor(found["title"]) for found in HEADING.finditer(text)}
    targets = {found["target"] for found in LINK.finditer(CODE.sub("", text))}

    assert {each for each in targets - sections if not each.startswith("https://")} == set()


@pytest.mark.parametrize("package", packages(ROOT), ids=lambda package: package.name)
def test_an_index_shows_where_the_sources_and_the_changes_are(package: Package) -> None:
    urls = package.project["project"]["urls"]

    assert urls.keys() == {"Repository", "Changelog", "Issues"}
    changelog = package.changelog.relative_to(ROOT)
    assert urls["Changelog"] == f"{urls['Repository']}/blob/main/{changelog}"
