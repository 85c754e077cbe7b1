"""The packages of the repository, what they declare, and which of them a change concerns."""

from __future__ import annotations

import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

from sessions import workspace
from sessions.package import Package, packages
from sessions.workspace import ROOT

if TYPE_CHECKING:
    from pathlib import Path


def _package(name: str) -> Package:
    (found,) = (package for package in packages(ROOT) if package.name == name)
    return found


def _git(folder: Path, *arguments: str) -> None:
    identity = ["-c", "user.name=test", "-c", "user.email=test@example.org"]
    subprocess.run(["git", *identity, *arguments], cwd=folder, check=True, capture_output=True)


@pytest.fixture
def clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a new repository with the packages' metadata and one source file each."""
    for package in packages(ROOT):
        folder = tmp_path / "packages" / package.name
        (folder / "src").mkdir(parents=True)
        (folder / "tests").mkdir()
        shutil.copy(package.folder / "pyproject.toml", folder)
        (folder / "src" / "module.py").write_text("")
        (folder / "tests" / "test_module.py").write_text("")
    (tmp_path / "README.md").write_text("")
    (tmp_path / "noxfile.py").write_text("")
    _git(tmp_path, "init", "-q")
    _git(tmp_path, "add", "-A")
    _git(tmp_path, "commit", "-qm", "all")
    monkeypatch.setattr(workspace, "ROOT", tmp_path)
    return tmp_path


def test_declared_packages_include_what_the_siblings_need() -> None:
    declared = _package("npu-compile").declared(tests=True)

    names = {sibling.name for sibling in declared.siblings}
    assert names >= {"fx-passes", "piecewise-split", "npu-graph-runtime", "attn-update"}
    assert any(requirement.startswith("torch>=") for requirement in declared.others)
    assert not any(requirement.startswith("attn-update") for requirement in declared.others)


def test_a_leaf_declares_no_sibling_at_run_time() -> None:
    assert _package("fx-passes").declared().siblings == ()


def test_content_key_changes_with_sources_and_metadata_but_not_with_tests(clone: Path) -> None:
    package = Package(root=clone, name="fx-passes")
    before = package.content_key()

    (package.folder / "tests" / "test_module.py").write_text("1\n")
    assert package.content_key() == before

    (package.folder / "src" / "module.py").write_text("1\n")
    changed = package.content_key()
    assert changed != before

    (package.folder / "src" / "module.py").rename(package.folder / "src" / "other.py")
    assert package.content_key() not in {before, changed}


def test_an_unchanged_tree_concerns_no_package(clone: Path) -> None:
    assert workspace.changed_packages("HEAD") == []


def test_a_change_concerns_the_package_and_those_that_use_it(clone: Path) -> None:
    (clone / "packages" / "piecewise-split" / "src" / "module.py").write_text("1\n")
    names = [package.name for package in workspace.changed_packages("HEAD")]
    assert names == ["npu-compile", "piecewise-split"]


def test_a_new_file_counts_as_a_change(clone: Path) -> None:
    (clone / "packages" / "npu-compile" / "src" / "new.py").write_text("1\n")
    names = [package.name for package in workspace.changed_packages("HEAD")]
    assert names == ["npu-compile"]


def test_a_change_since_an_older_revision_counts_when_committed(clone: Path) -> None:
    (clone / "packages" / "npu-compile" / "src" / "module.py").write_text("1\n")
    _git(clone, "commit", "-qam", "change")

    assert workspace.changed_packages("HEAD") == []
    assert [each.name for each in workspace.changed_packages("HEAD~1")] == ["npu-compile"]


def test_a_change_of_the_sessions_concerns_all_packages(clone: Path) -> None:
    (clone / "noxfile.py").write_text("1\n")
    assert len(workspace.changed_packages("HEAD")) == len(packages(ROOT))


def test_a_change_of_a_document_at_the_top_concerns_no_package(clone: Path) -> None:
    (clone / "README.md").write_text("1\n")
    assert workspace.changed_packages("HEAD") == []
