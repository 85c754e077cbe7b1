"""A package of a checkout: where its parts lie, what it declares, which siblings it needs."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from nox.project import dependency_groups, load_toml
from packaging.requirements import Requirement
from packaging.version import Version

from sessions.errors import WorkspaceError

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class Declared:
    """The dependencies of a package.

    Attributes:
        siblings: Packages of the same checkout, by name.
        others: Requirements that an index answers, sorted.
    """

    siblings: tuple[Package, ...]
    others: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Package:
    """One folder below ``packages`` of a checkout.

    Attributes:
        root: The checkout; the repository itself, or a worktree that a release is made in.
        name: Name of the folder and of the distribution.
    """

    root: Path
    name: str

    @property
    def folder(self) -> Path:
        """The folder that holds ``pyproject.toml``."""
        return self.root / "packages" / self.name

    @property
    def module(self) -> str:
        """The name that users import."""
        return self.name.replace("-", "_")

    @property
    def about(self) -> Path:
        """The file that states the version."""
        return self.folder / "src" / self.module / "__about__.py"

    @property
    def changelog(self) -> Path:
        """The changelog that users read."""
        return self.folder / "CHANGELOG.md"

    @property
    def changes(self) -> Path:
        """The folder of change notes that no release has collected yet."""
        return self.folder / "changes"

    @cached_property
    def project(self) -> dict[str, Any]:
        """The content of ``pyproject.toml``."""
        return load_toml(self.folder / "pyproject.toml")

    @property
    def version(self) -> Version:
        """The version that the sources state."""
        return Version(_stated(self.about.read_text(encoding="utf-8"), self.about))

    def set_version(self, version: str) -> None:
        """Write the version into the sources."""
        text = self.about.read_text(encoding="utf-8")
        old = f'__version__ = "{_stated(text, self.about)}"'
        self.about.write_text(text.replace(old, f'__version__ = "{version}"'), encoding="utf-8")

    def tag(self, version: Version) -> str:
        """Return the name of the tag of a version."""
        return f"{self.name}-v{version}"

    @property
    def extras(self) -> tuple[str, ...]:
        """The names of the optional parts that users may install."""
        return tuple(self.project["project"].get("optional-dependencies", {}))

    @property
    def public_modules(self) -> tuple[str, ...]:
        """The modules whose names are promised to users: the package itself and those it lists."""
        listed = self.project.get("tool", {}).get("public-names", {}).get("modules", [])
        return (self.module, *listed)

    def requirements(
        self, *, extras: bool | Collection[str] = False, tests: bool = False
    ) -> list[Requirement]:
        """Return the requirements that the package declares.

        Args:
            extras: With the optional parts: all, or those of these names.
            tests: With the dependency group ``test``.
        """
        project = self.project["project"]
        texts: list[str] = list(project["dependencies"])
        for name, group in project.get("optional-dependencies", {}).items():
            if extras is True or (extras and name in extras):
                texts += group
        if tests:
            texts += dependency_groups(self.project, "test")
        return [Requirement(text) for text in texts]

    def declared(self, *, extras: bool | Collection[str] = False, tests: bool = False) -> Declared:
        """Return the dependencies of the package, and those of its siblings.

        Args:
            extras: For its optional parts too: all, or those of these names.
            tests: For its tests too.
        """
        known = {package.name: package for package in packages(self.root)}
        siblings: dict[str, Package] = {}
        others: set[str] = set()
        pending = self.requirements(extras=extras, tests=tests)
        while pending:
            requirement = pending.pop()
            sibling = known.get(requirement.name)
            if sibling is None:
                others.add(str(requirement))
            elif sibling != self and sibling.name not in siblings:
                siblings[sibling.name] = sibling
                pending += sibling.requirements(extras=requirement.extras)
        return Declared(
            siblings=tuple(siblings[name] for name in sorted(siblings)),
            others=tuple(sorted(others)),
        )

    def content_key(self) -> str:
        """Return a key that changes whenever the content of the package's wheel changes."""
        digest = hashlib.sha256()
        for path in sorted(self.folder.rglob("*")):
            parts = path.relative_to(self.folder).parts
            if (
                path.is_file()
                and parts[0] not in {"tests", "changes"}
                and "__pycache__" not in parts
            ):
                digest.update(str(path.relative_to(self.folder)).encode() + b"\0")
                digest.update(path.read_bytes() + b"\0")
        return digest.hexdigest()[:16]


def packages(root: Path) -> list[Package]:
    """Return all packages of a checkout, by name."""
    files = sorted(root.glob("packages/*/pyproject.toml"))
    return [Package(root=root, name=path.parent.name) for path in files]


def find_package(root: Path, name: str) -> Package:
    """Return the package of a name.

    Raises:
        WorkspaceError: There is none.
    """
    names = [package.name for package in packages(root)]
    if name not in names:
        raise WorkspaceError(f"no package is named {name!r}; there are: {', '.join(names)}")
    return Package(root=root, name=name)


def _stated(text: str, path: Path) -> str:
    lines = [line for line in text.splitlines() if line.startswith('__version__ = "')]
    if len(lines) != 1:
        raise WorkspaceError(
            f'reading the version in {path}: expected one line `__version__ = "..."`, '
            f"found {len(lines)}; state the version there, and only once"
        )
    return lines[0].split('"')[1]
