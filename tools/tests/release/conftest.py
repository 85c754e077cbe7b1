"""A small repository of two packages, with the settings that the real ones have."""

from __future__ import annotations

from pathlib import Path

import pytest

from release.command import git, output_of
from sessions.package import Package

ROOT = Path(__file__).parents[3]
KINDS = ("breaking", "added", "changed", "deprecated", "fixed", "internal")


class Repository:
    """A repository in a folder, whose packages `leaf` and `top` can be changed and committed."""

    def __init__(self, root: Path) -> None:
        self.root = root
        output_of("git", "init", "--quiet", "--initial-branch=main", folder=root)
        git(root, "config", "user.name", "Tester")
        git(root, "config", "user.email", "tester@example.org")
        template = "tools/release/changelog.md.jinja"
        self.write(template, (ROOT / template).read_text())
        self.write(".gitignore", "/build/\n")
        self.write("pyproject.toml", "[tool.pytest.ini_options]\n")
        self.write("docs/page.md", "A page.\n")
        self._add("leaf", dependencies=[])
        self._add("top", dependencies=["leaf>=0.1,<0.2"])
        self.leaf = Package(root=root, name="leaf")
        self.top = Package(root=root, name="top")
        self.commit("start")

    def write(self, path: str, text: str) -> None:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def commit(self, message: str) -> str:
        git(self.root, "add", "--all")
        git(self.root, "commit", "--quiet", "--message", message)
        return git(self.root, "rev-parse", "HEAD")

    def tag(self, name: str) -> None:
        git(self.root, "tag", "--annotate", "--message", name, name)

    def _add(self, name: str, *, dependencies: list[str]) -> None:
        rows = "".join(
            f'[[tool.towncrier.type]]\ndirectory = "{kind}"\nname = "{kind.title()}"\n'
            f"showcontent = {'false' if kind == 'internal' else 'true'}\n\n"
            for kind in KINDS
        )
        folder = f"packages/{name}"
        self.write(
            f"{folder}/pyproject.toml",
            f"""
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "{name}"
description = "A package."
readme = "README.md"
dependencies = {dependencies!r}
dynamic = ["version"]

[dependency-groups]
test = ["pytest"]

[tool.hatch.version]
path = "src/{name}/__about__.py"

[tool.hatch.build.targets.wheel]
packages = ["src/{name}"]

[tool.public-names]
modules = ["{name}.testing"]

[tool.towncrier]
directory = "changes"
filename = "CHANGELOG.md"
template = "../../tools/release/changelog.md.jinja"
title_format = false
issue_format = ""

{rows}""",
        )
        self.write(f"{folder}/CHANGELOG.md", "# Changelog\n\n## 0.1.0 (unreleased)\n\n- First.\n")
        self.write(f"{folder}/README.md", f"# {name}\n\n```python\nimport {name}\n```\n")
        self.write(f"{folder}/changes/.gitkeep", "")
        self.write(f"{folder}/src/{name}/py.typed", "")
        self.write(f"{folder}/src/{name}/__about__.py", '__version__ = "0.1.0"\n')
        self.write(
            f"{folder}/src/{name}/__init__.py",
            f"from {name}.__about__ import __version__\nfrom {name}.parts import first, second\n\n"
            '__all__ = ["__version__", "first", "second"]\n',
        )
        self.write(
            f"{folder}/src/{name}/parts.py",
            "def first(x: int, *, scale: int = 1) -> int:\n    return x * scale\n\n\n"
            "def second(x: int) -> int:\n    return x\n\n\n"
            "def not_promised(x: int) -> int:\n    return x\n",
        )
        self.write(f"{folder}/src/{name}/testing.py", "def check(x: int) -> None: ...\n")
        self.write(
            f"{folder}/tests/test_{name}.py",
            f"import {name}\n\n\ndef test_first() -> None:\n    assert {name}.first(2) == 2\n",
        )


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--end-to-end", action="store_true", help="releases on a clone, minutes each")
    parser.addoption("--uv", default="uv", help="the program that makes environments")
    parser.addoption("--override", action="append", default=[], help="such as torch==2.13.0")


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    root = tmp_path / "repository"
    root.mkdir()
    return Repository(root)
