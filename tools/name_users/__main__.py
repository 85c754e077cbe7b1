"""Check that every public name of every package has a user.

Run as ``PYTHONPATH=tools python -m name_users``; ``--table`` prints the users of all names. Public
are the names in ``__all__`` of a package and of the modules that its ``pyproject.toml`` lists under
``[tool.public-names]``. A user is a Python file outside the package's sources and tests that
imports the name or has it in a string, a page with code that has it, or the signature of a public
name that has a user. Changelogs and change notes do not count. Sources are parsed, not imported.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from name_users.exported_names import NoModuleError, PublicName, exported_names, parsed
from name_users.signatures import names_in_signature
from name_users.uses import used_in_code, used_on_page
from sessions.package import packages

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from sessions.package import Package

CODE_FOLDERS = ("packages", "examples", "engines", "benchmarks", "integration-tests")
PAGE_FOLDERS = ("docs", "packages", "examples", "engines")


def users(root: Path) -> dict[PublicName, list[str]]:
    """Return every public name of a checkout, with its users.

    Args:
        root: The checkout.

    Returns:
        Paths below the root; for a name that only signatures have, the names that have them.
    """
    every = packages(root)
    exports = {package.name: exported_names(package) for package in every}
    modules = {module: package for package, listed in exports.items() for module in listed}
    found: dict[PublicName, list[str]] = {
        PublicName(package, name): []
        for package, listed in exports.items()
        for names in listed.values()
        for name in names
    }
    for path, own in _code(root, modules):
        for each in sorted(used_in_code(parsed(path), modules) & found.keys()):
            if each.package != own:
                found[each].append(str(path.relative_to(root)))
    for path in _pages(root):
        for each in sorted(used_on_page(path.read_text(encoding="utf-8"), exports)):
            found[each].append(str(path.relative_to(root)))
    _add_signatures(every, exports, found)
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the names without a user, or the table; return the exit status."""
    parser = argparse.ArgumentParser(prog="name_users", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--table", nargs="*", metavar="PACKAGE", help="print the users of names")
    parser.add_argument("--root", type=Path, default=Path(__file__).parents[2])
    options = parser.parse_args(arguments)
    try:
        found = users(options.root)
    except NoModuleError as error:
        print(f"name_users: {error}", file=sys.stderr)
        return 2
    if options.table is not None:
        print("| package | name | users | one of them |\n|---|---|---|---|")
        for each, files in sorted(found.items()):
            if not options.table or each.package in options.table:
                print(f"| {each.package} | `{each.name}` | {len(files)} | {''.join(files[:1])} |")
    unused = sorted(each for each, files in found.items() if not files)
    for each in unused:
        print(
            f"{each.package}: nothing outside the package uses {each.name}; make it private, "
            "delete it, or show it on a page",
            file=sys.stderr,
        )
    print(f"name_users: {len(found)} public names, {len(unused)} without a user")
    return 1 if unused else 0


def _add_signatures(
    packages: Iterable[Package],
    exports: Mapping[str, Mapping[str, tuple[str, ...]]],
    found: dict[PublicName, list[str]],
) -> None:
    """Add the names that appear in signatures of used names, transitively."""
    by_name = {package.name: package for package in packages}
    pending = [each for each, files in found.items() if files]
    while pending:
        user = pending.pop()
        for module, names in exports[user.package].items():
            if user.name not in names:
                continue
            for name in names_in_signature(by_name[user.package], module, user.name):
                each = PublicName(user.package, name)
                if found.get(each) == []:
                    found[each].append(f"the signature of `{user.name}`")
                    pending.append(each)


def _code(root: Path, modules: Iterable[str]) -> Iterator[tuple[Path, str | None]]:
    """Yield the files that name another package's module, with the package that they belong to."""
    named = re.compile("|".join(sorted({module.partition(".")[0] for module in modules})))
    for folder in CODE_FOLDERS:
        for path in sorted((root / folder).rglob("*.py")):
            own = path.relative_to(root).parts[1] if folder == "packages" else None
            words = set(named.findall(path.read_text(encoding="utf-8")))
            if words - {(own or "").replace("-", "_")}:
                yield path, own


def _pages(root: Path) -> Iterator[Path]:
    yield from sorted(root.glob("*.md"))
    for folder in PAGE_FOLDERS:
        for path in sorted((root / folder).rglob("*.md")):
            if path.name != "CHANGELOG.md" and path.parent.name != "changes":
                yield path


if __name__ == "__main__":
    sys.exit(main())
