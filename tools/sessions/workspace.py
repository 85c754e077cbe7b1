"""This repository: its packages, its tools' requirements, and what a change concerns."""

from __future__ import annotations

import subprocess
from pathlib import Path

from nox.project import dependency_groups, load_toml

from sessions.package import Package, packages

ROOT = Path(__file__).parents[2]


def tool_requirements(*groups: str) -> list[str]:
    """Return the requirements of dependency groups of the repository's own ``pyproject.toml``."""
    return list(dependency_groups(load_toml(ROOT / "pyproject.toml"), *groups))


def changed_packages(base: str) -> list[Package]:
    """Return the packages that differ from a revision, and those that use them.

    Args:
        base: A revision of git. What is not committed counts as changed, files that git does not
            track included.

    Returns:
        Packages by name; all of them where a file outside ``packages`` that every session goes by
        has changed.
    """
    commands = (
        ["git", "diff", "--name-only", base, "--"],
        ["git", "ls-files", "--others", "--exclude-standard"],
    )
    changed = {
        line
        for command in commands
        for line in subprocess.run(
            command, cwd=ROOT, check=True, capture_output=True, text=True
        ).stdout.splitlines()
    }
    if any(
        name in {"noxfile.py", "pyproject.toml"} or name.startswith("tools/sessions/")
        for name in changed
    ):
        return packages(ROOT)
    touched = {name.split("/")[1] for name in changed if name.startswith("packages/")}
    return [
        package
        for package in packages(ROOT)
        if touched & {package.name, *(user.name for user in package.declared(tests=True).siblings)}
    ]
