"""Documents link to what is there, and to each other on the site."""

from __future__ import annotations

from pathlib import Path

import pytest

from site_pages import DeadLinkError, gather, pages, with_site_links

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("page", pages(), ids=str)
def test_document_links_to_what_is_there(page: Path) -> None:
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
