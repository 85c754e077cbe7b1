"""Gathers the pages of the documentation's site: ``python tools/site_pages.py FOLDER``.

The documents lie where they belong, beside what they tell of, and link to each other and to
sources as files of the repository. They are copied into a folder of the same shape, with what they
link to; a link to a folder goes to its README. A page ``api/<package>.md`` for each package names
its public modules, whose reference mkdocstrings makes of the docstrings.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from sessions.package import packages

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[1]
PATTERNS = (
    "README.md",
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "docs/**/*.md",
    "packages/*/README.md",
    "packages/*/docs/**/*.md",
    "examples/*/README.md",
)

_LINK = re.compile(r"(\]\()([^)\s#]+)(#[^)\s]*)?(\))")
_CODE = re.compile(r"(^```.*?^```$|`[^`\n]*`)", flags=re.MULTILINE | re.DOTALL)


class DeadLinkError(ValueError):
    """A page links to a file that does not exist."""


def pages(root: Path = ROOT) -> list[Path]:
    """Return the documents, relative to the repository."""
    found = {path.relative_to(root) for pattern in PATTERNS for path in root.glob(pattern)}
    return sorted(found)


def with_site_links(text: str, page: Path, root: Path = ROOT) -> tuple[str, set[Path]]:
    """Return a page with the site's links, and the other files that it links to.

    Args:
        text: the document.
        page: its path in the repository.
        root: the repository.

    Raises:
        DeadLinkError: a linked file does not exist.
    """
    known = set(pages(root))
    files: set[Path] = set()

    def rewrite(match: re.Match[str]) -> str:
        begin, target, anchor, end = match.groups()
        if "://" in target or target.startswith("mailto:"):
            return match[0]
        path = Path(os.path.normpath(page.parent / target))
        if not (root / path).exists():
            raise DeadLinkError(f"{page} links to {target}, expected a file of the repository")
        readme = path / "README.md"
        if (root / path).is_dir():
            if readme not in known:
                # What it says stays; the files themselves are not on the site.
                return f"{begin}{_up(page, Path('README.md'))}{end}"
            path = readme
        elif path not in known:
            files.add(path)
        return f"{begin}{_up(page, path)}{anchor or ''}{end}"

    parts = _CODE.split(text)
    # Every second part is code, in which nothing is a link.
    parts[::2] = [_LINK.sub(rewrite, part) for part in parts[::2]]
    return "".join(parts), files


def api_pages(root: Path = ROOT) -> dict[Path, str]:
    """Return the pages of the API reference: the public modules of each package."""
    found = {}
    for package in packages(root):
        named = package.project.get("tool", {}).get("public-names", {}).get("modules", ())
        modules = "\n\n".join(f"::: {module}" for module in (package.module, *named))
        found[Path("api") / f"{package.name}.md"] = f"# API of {package.name}\n\n{modules}\n"
    return found


def gather(folder: Path, root: Path = ROOT) -> None:
    """Copy the pages and the files that they link to into a folder, which is emptied first."""
    shutil.rmtree(folder, ignore_errors=True)
    for page, text, files in _converted(root):
        target = folder / page
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
        for file in files:
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(root / file, folder / file)
    for page, text in api_pages(root).items():
        (folder / page).parent.mkdir(parents=True, exist_ok=True)
        (folder / page).write_text(text, encoding="utf-8")


def _converted(root: Path) -> Iterator[tuple[Path, str, set[Path]]]:
    for page in pages(root):
        text, files = with_site_links((root / page).read_text(encoding="utf-8"), page, root)
        yield page, text, files


def _up(page: Path, target: Path) -> str:
    return Path(os.path.relpath(target, page.parent)).as_posix()


if __name__ == "__main__":
    gather(Path(sys.argv[1]))
