"""Finds breaking changes of a package's public names by comparing sources."""

from __future__ import annotations

import io
import tarfile
import tempfile
from pathlib import Path
from subprocess import PIPE, run
from typing import TYPE_CHECKING

import griffe
from nox.project import load_toml

from release.errors import ReleaseError
from release.releases import revision_of
from release.unpacking import unpack

if TYPE_CHECKING:
    from collections.abc import Iterator

    from packaging.version import Version

    from sessions.package import Package


REMOVED = str(griffe.ObjectRemovedBreakage.kind.value).lower()


def changed_names(package: Package, last: Version) -> list[str]:
    """List public names that were removed, or changed so that callers break.

    Public are the names in ``__all__`` of the package, and of the modules that its
    ``pyproject.toml`` lists under ``[tool.public-names]``, with their methods, attributes and
    parameters. Nothing is imported.

    Args:
        package: The package as it is now.
        last: The release to compare with.

    Returns:
        One line for each name: its path, what happened, and the old and new value.

    Raises:
        ReleaseError: A listed module does not exist, or the release does not.
    """
    with tempfile.TemporaryDirectory() as folder:
        _unpack_sources(package, last, Path(folder))
        old = _load(package.module, Path(folder), _listed_then(package, Path(folder)))
        new = _load(package.module, package.folder / "src", package.public_modules)
        broken = {_line(breakage) for breakage in griffe.find_breaking_changes(old, new)}
        return sorted({*broken, *_withdrawn(old, new)})


def _unpack_sources(package: Package, last: Version, folder: Path) -> None:
    """Lay the sources of a release out below a folder, and its ``pyproject.toml``."""
    tree = f"{revision_of(package, last)}:packages/{package.name}"
    archive = run(
        ["git", "archive", tree, "pyproject.toml", "src"],
        cwd=package.root,
        check=True,
        stdout=PIPE,
    ).stdout
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        unpack(files, folder)
    for child in (folder / "src").iterdir():
        child.rename(folder / child.name)


def _listed_then(package: Package, folder: Path) -> tuple[str, ...]:
    """Return the modules that were public in the release whose sources are in a folder."""
    project = load_toml(folder / "pyproject.toml")
    listed = project.get("tool", {}).get("public-names", {}).get("modules", [])
    return (package.module, *listed)


def _load(module: str, folder: Path, public: tuple[str, ...]) -> griffe.Object:
    loaded = griffe.load(module, search_paths=[str(folder)], allow_inspection=False)
    if not isinstance(loaded, griffe.Object):
        raise ReleaseError(f"reading the public names of {module}: {folder} has no such package")
    missing = set(public)
    pending = [loaded]
    while pending:
        each = pending.pop()
        missing.discard(each.path)
        # griffe takes every module without an underscore for public.
        each.public = each.path in public
        pending += [child for child in each.modules.values() if not child.is_alias]
    if missing:
        raise ReleaseError(
            f"reading the public names of {module}: [tool.public-names] lists "
            f"{', '.join(sorted(missing))}, which {folder} does not have; correct the list"
        )
    return loaded


def _withdrawn(old: griffe.Object, new: griffe.Object) -> Iterator[str]:
    """Yield a line for each name that ``__all__`` had and has no more, which griffe overlooks.

    griffe checks that the name still exists, as it does if a module imports it privately.
    """
    for name, module in old.modules.items():
        if module.is_public and not module.is_alias and name in new.modules:
            yield from _withdrawn(module, new.modules[name])
    now = {str(each) for each in new.exports or ()}
    for each in old.exports or ():
        if str(each) not in now:
            yield f"{old.path}.{each}: {REMOVED}"


def _line(breakage: griffe.Breakage) -> str:
    found = breakage.as_dict()
    path = breakage.obj.path
    parameter = getattr(found["old_value"] or found["new_value"], "name", None)
    if breakage.kind.name.startswith("PARAMETER"):
        path = f"{path}({parameter})"
    what = str(breakage.kind.value).lower()
    if breakage.kind is griffe.BreakageKind.OBJECT_REMOVED:
        return f"{path}: {what}"
    return f"{path}: {what}, {found['old_value']} -> {found['new_value']}"
