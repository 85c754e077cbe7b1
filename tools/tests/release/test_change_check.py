"""A change is stopped without a change note, and where public names break unsaid."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from release.change_check import check_changes
from release.change_notes import kinds
from release.command import git
from release.errors import ReleaseError
from sessions.package import Package, packages

if TYPE_CHECKING:
    from conftest import Repository

ROOT = Path(__file__).parents[3]
PARTS = "packages/leaf/src/leaf/parts.py"


def replace(repository: Repository, old: str, new: str, path: str = PARTS) -> None:
    text = (repository.root / path).read_text()
    assert old in text
    repository.write(path, text.replace(old, new))


@pytest.mark.parametrize("committed", [True, False])
def test_change_of_sources_without_a_note_is_stopped_and_named(
    repository: Repository, committed: bool
) -> None:
    start = git(repository.root, "rev-parse", "HEAD")
    replace(repository, "return x * scale", "return scale * x")
    if committed:
        repository.commit("faster")

    with pytest.raises(ReleaseError) as caught:
        check_changes(repository.root, start)

    assert f"leaf: {PARTS} changed" in str(caught.value)
    assert "packages/leaf/changes/<what>.<kind>.md" in str(caught.value)
    assert "top" not in str(caught.value)


@pytest.mark.parametrize("kind", ["fixed", "internal"])
def test_change_with_a_note_passes(repository: Repository, kind: str) -> None:
    start = git(repository.root, "rev-parse", "HEAD")
    replace(repository, "return x * scale", "return scale * x")
    repository.write(f"packages/leaf/changes/speed.{kind}.md", "Faster.\n")

    assert f"leaf: 1 sources changed, noted in packages/leaf/changes/speed.{kind}.md" in (
        check_changes(repository.root, start)
    )


def test_note_of_an_earlier_change_does_not_serve_a_later_one(repository: Repository) -> None:
    repository.write("packages/leaf/changes/earlier.fixed.md", "Earlier.\n")
    start = repository.commit("earlier")
    replace(repository, "return x * scale", "return scale * x")

    with pytest.raises(ReleaseError, match="leaf: "):
        check_changes(repository.root, start)


def test_note_of_another_package_does_not_serve(repository: Repository) -> None:
    start = git(repository.root, "rev-parse", "HEAD")
    replace(repository, "return x * scale", "return scale * x")
    repository.write("packages/top/changes/speed.fixed.md", "Faster.\n")

    with pytest.raises(ReleaseError, match="leaf: "):
        check_changes(repository.root, start)


def test_change_of_tests_or_readme_needs_no_note(repository: Repository) -> None:
    start = git(repository.root, "rev-parse", "HEAD")
    repository.write("packages/leaf/tests/test_more.py", "")
    repository.write("packages/leaf/README.md", "# leaf\n")

    check_changes(repository.root, start)


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("speed.md", "Faster.", "expected a name"),
        ("speed.quick.md", "Faster.", "expected a name"),
        ("speed.fixed.md", " \n", "it is empty"),
    ],
)
def test_note_that_no_release_would_collect_is_an_error(
    repository: Repository, name: str, text: str, reason: str
) -> None:
    repository.write(f"packages/leaf/changes/{name}", text)

    with pytest.raises(ReleaseError, match=reason):
        check_changes(repository.root, "HEAD")


def test_later_changes_on_main_are_not_changes_of_the_branch(repository: Repository) -> None:
    git(repository.root, "switch", "--quiet", "--create", "branch")
    repository.write("packages/top/tests/test_more.py", "")
    repository.commit("on the branch")
    git(repository.root, "switch", "--quiet", "main")
    replace(repository, "return x * scale", "return scale * x")
    repository.commit("on main")
    git(repository.root, "switch", "--quiet", "branch")

    check_changes(repository.root, "main")


def test_unknown_revision_is_named(repository: Repository) -> None:
    with pytest.raises(ReleaseError, match="'origin/main': git knows no such revision"):
        check_changes(repository.root, "origin/main")


def test_before_the_first_release_names_are_compared_with_nothing(repository: Repository) -> None:
    lines = check_changes(repository.root, "HEAD")

    assert "leaf: public names compared with nothing, as there is no release" in lines


@pytest.mark.parametrize(
    ("path", "old", "new", "line"),
    [
        (
            "packages/leaf/src/leaf/__init__.py",
            '"first", "second"',
            '"first"',
            "leaf.second: public object was removed",
        ),
        (PARTS, "*, scale: int = 1", "", "leaf.parts.first(scale): parameter was removed"),
        (PARTS, "def second(x: int)", "def second(y: int)", "leaf.parts.second(x): parameter was"),
        (
            PARTS,
            "def second(x: int)",
            "def second(x: int, y: int)",
            "leaf.parts.second(y): parameter was added as required",
        ),
        (
            "packages/leaf/src/leaf/testing.py",
            "def check",
            "def checked",
            "leaf.testing.check: public object was removed",
        ),
    ],
)
def test_broken_public_name_is_stopped_and_named_unless_noted_as_breaking(
    repository: Repository, path: str, old: str, new: str, line: str
) -> None:
    repository.tag("leaf-v0.1.0")
    replace(repository, old, new, path)
    repository.write("packages/leaf/changes/names.changed.md", "Names.\n")

    with pytest.raises(ReleaseError) as caught:
        check_changes(repository.root, "HEAD")
    assert line in str(caught.value)
    assert "changes/<what>.breaking.md" in str(caught.value)

    repository.write("packages/leaf/changes/names.breaking.md", "Names.\n")
    assert any(line in found for found in check_changes(repository.root, "HEAD"))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("def not_promised(x: int)", "def renamed(y: int)"),
        ("scale: int = 1", "scale: int = 1, offset: int = 0"),
        (
            "def second(x: int) -> int:\n    return x",
            "def second(x: int) -> int:\n    return x + 0",
        ),
    ],
)
def test_change_that_callers_survive_passes(repository: Repository, old: str, new: str) -> None:
    repository.tag("leaf-v0.1.0")
    replace(repository, old, new)
    repository.write("packages/leaf/changes/names.changed.md", "Names.\n")

    assert "leaf: public names keep what 0.1.0 had" in check_changes(repository.root, "HEAD")


def test_listed_public_module_that_does_not_exist_is_an_error(repository: Repository) -> None:
    repository.tag("leaf-v0.1.0")
    replace(repository, "leaf.testing", "leaf.tests", "packages/leaf/pyproject.toml")

    with pytest.raises(ReleaseError, match=r"leaf\.tests"):
        check_changes(repository.root, "HEAD")


@pytest.mark.parametrize("package", packages(ROOT), ids=lambda package: package.name)
def test_listed_public_modules_of_every_package_exist(package: Package) -> None:
    for module in package.public_modules:
        path = package.folder / "src" / module.replace(".", "/")

        assert path.with_suffix(".py").is_file() or (path / "__init__.py").is_file(), module


@pytest.mark.parametrize("package", packages(ROOT), ids=lambda package: package.name)
def test_every_package_declares_the_same_kinds_of_notes(package: Package) -> None:
    assert " ".join(kinds(package)) == "breaking added changed deprecated fixed internal"
