"""Documents link to what is there, and to each other on the site."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from architecture_picture import dependencies, picture
from sessions.package import packages
from site_pages import DeadLinkError, api_pages, gather, pages, with_site_links

if TYPE_CHECKING:
    from sessions.package import Package

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("page", pages(), ids=str)
def test_document_links_to_existing_files(page: Path) -> None:
    with_site_links((ROOT / page).read_text(encoding="utf-8"), page)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    root = tmp_path / "repository"
    for name, text in {
        "README.md": "see [one](packages/one), `[code](nowhere)` and [sources](packages/one/src)\n",
        "packages/one/README.md": "up [to](../../README.md#see), [file](src/a.py)\n",
        "packages/one/src/a.py": "",
    }.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_links_to_folders_go_to_their_readme(repository: Path, tmp_path: Path) -> None:
    site = tmp_path / "site"
    (site / "old").mkdir(parents=True)

    gather(site, repository)

    found = {str(path.relative_to(site)) for path in site.rglob("*") if path.is_file()}
    assert found == {"README.md", "packages/one/README.md", "packages/one/src/a.py"}
    text = (site / "README.md").read_text()
    assert "[one](packages/one/README.md)" in text
    assert "`[code](nowhere)`" in text
    assert "[to](../../README.md#see)" in (site / "packages" / "one" / "README.md").read_text()


def test_dead_link_is_an_error_that_names_both(repository: Path) -> None:
    with pytest.raises(DeadLinkError, match=r"README.md links to gone.md"):
        with_site_links("[gone](gone.md)", Path("README.md"), repository)


def test_navigation_has_every_page() -> None:
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:\n")[2]
    named = re.findall(r"^ +- .*: (\S+\.md)$", text, flags=re.MULTILINE)

    assert sorted(named) == sorted(str(page) for page in (*pages(), *api_pages()))


def test_api_reference_finds_the_sources_of_every_package() -> None:
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    (paths,) = re.findall(r"paths: \[(.*?)\]", text, flags=re.DOTALL)

    assert {path.strip() for path in paths.split(",")} == {
        f"packages/{package.name}/src" for package in packages(ROOT)
    }


def test_picture_of_the_architecture_shows_what_the_packages_declare() -> None:
    drawn = (ROOT / "docs" / "pictures" / "architecture.svg").read_text(encoding="utf-8")

    assert drawn == picture(dependencies()), (
        "run PYTHONPATH=tools python tools/architecture_picture.py docs/pictures/architecture.svg"
    )


@pytest.mark.parametrize("package", packages(ROOT), ids=lambda package: package.name)
def test_links_of_a_package_readme_hold_on_an_index(package: Package) -> None:
    text = (package.folder / "README.md").read_text(encoding="utf-8")

    links = re.findall(
        r"\]\(([^)\s]+)\)", re.sub(r"```.*?```|`[^`\n]*`", "", text, flags=re.DOTALL)
    )
    assert [link for link in links if not link.startswith(("#", "https://"))] == []


@pytest.mark.parametrize("page", pages(), ids=str)
def test_pages_install_our_packages_from_wheels_of_a_clone_or_by_git(page: Path) -> None:
    names = "|".join(package.name for package in packages(ROOT))
    for line in (ROOT / page).read_text(encoding="utf-8").splitlines():
        for command in re.findall(rf"pip install [^|`]*?\b(?:{names})\b[^|`]*", line):
            assert "--find-links dist" in command or "git+" in command, f"{page}: {command}"
