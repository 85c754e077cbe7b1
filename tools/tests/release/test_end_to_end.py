"""Releases of the smallest package, cut on a clone of this repository as it is committed."""

from __future__ import annotations

import re
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from packaging.version import Version

from release.command import git, output_of
from release.cut import cut_release
from release.errors import ReleaseError
from release.installer import Installer
from sessions.package import Package

if TYPE_CHECKING:
    from release.cut import Release

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def installer(request: pytest.FixtureRequest) -> Installer:
    if not request.config.getoption("--end-to-end", default=False):
        pytest.skip("takes minutes: --end-to-end")
    return Installer(
        uv=request.config.getoption("--uv"),
        python=sys.executable,
        overrides=tuple(request.config.getoption("--override")),
    )


@pytest.fixture(scope="module")
def package(installer: Installer, tmp_path_factory: pytest.TempPathFactory) -> Package:
    root = tmp_path_factory.mktemp("clone") / "repository"
    output_of("git", "clone", "--quiet", "--no-tags", ROOT, root, folder=ROOT)
    git(root, "config", "user.name", "Tester")
    git(root, "config", "user.email", "tester@example.org")
    package = Package(root=root, name="piecewise-split")
    package.changes.mkdir(exist_ok=True)
    (package.changes / "trial.fixed.md").write_text("Something is better.\n")
    git(root, "add", "--all")
    git(root, "commit", "--quiet", "--message", "something to release")
    return package


@pytest.fixture(scope="module")
def first(package: Package, installer: Installer) -> Release:
    return cut_release(package, None, installer, write=True)


def test_release_has_files_commit_and_tag(package: Package, first: Release) -> None:
    assert first.tag == f"piecewise-split-v{first.version}"
    assert (
        git(package.root, "rev-parse", "HEAD", f"{first.tag}^{{commit}}").split()
        == [first.commit] * 2
    )
    assert git(package.root, "cat-file", "-t", first.tag) == "tag"
    assert not git(package.root, "status", "--porcelain")
    changelog = package.changelog.read_text()
    version = re.escape(str(first.version))
    assert re.search(rf"^## {version} \(\d{{4}}-\d\d-\d\d\)$", changelog, re.MULTILINE)
    assert "unreleased" not in changelog
    wheel, archive = sorted(first.files, key=lambda file: file.suffix != ".whl")
    with tarfile.open(archive) as files:
        names = files.getnames()
    assert f"piecewise_split-{first.version}/tests/test_readme.py" in names
    with zipfile.ZipFile(wheel) as members:
        assert not [name for name in members.namelist() if "tests" in name.split("/")]
        metadata = members.read(f"piecewise_split-{first.version}.dist-info/METADATA").decode()
    assert "Classifier: Programming Language :: Python :: 3.13\n" in metadata
    assert "Project-URL: Repository, " in metadata


def test_same_version_again_is_refused(
    package: Package, installer: Installer, first: Release
) -> None:
    with pytest.raises(ReleaseError, match=f"it exists already, at {re.escape(first.tag)}"):
        cut_release(package, first.version, installer, write=True)


def test_removed_public_name_needs_a_note_and_a_minor_version(
    package: Package, installer: Installer, first: Release
) -> None:
    start = package.folder / "src" / package.module / "__init__.py"
    start.write_text(start.read_text().replace('    "run_uncompiled",\n', ""))
    note = package.changes / "names.changed.md"
    note.write_text("Fewer names.\n")
    git(package.root, "add", "--all")
    git(package.root, "commit", "--quiet", "--message", "fewer names")

    with pytest.raises(ReleaseError, match=r"piecewise_split\.run_uncompiled: public object was"):
        cut_release(package, None, installer, write=True)

    note.rename(note.with_name("names.breaking.md"))
    git(package.root, "add", "--all")
    git(package.root, "commit", "--quiet", "--message", "say so")
    head = git(package.root, "rev-parse", "HEAD")
    tried = cut_release(package, None, installer, write=False, pytest_arguments=["-k", "readme"])

    assert tried.version == Version("0.2.0")
    assert {file.name for file in tried.files} == {
        "piecewise_split-0.2.0-py3-none-any.whl",
        "piecewise_split-0.2.0.tar.gz",
    }
    assert any("+### Breaking" in part for part in tried.report)
    assert any("widen `piecewise-split" in part for part in tried.report)
    assert git(package.root, "rev-parse", "HEAD") == head
    assert git(package.root, "tag", "--list") == first.tag
    assert first.commit != tried.commit


def test_test_that_fails_against_the_wheel_stops_the_release(
    package: Package, installer: Installer, first: Release
) -> None:
    assert first.tag in git(package.root, "tag", "--list")
    module = package.folder / "tests" / "test_new.py"
    module.write_text("def test_new() -> None:\n    assert False\n")
    git(package.root, "add", "--all")
    git(package.root, "commit", "--quiet", "--message", "a test")

    with pytest.raises(ReleaseError, match="ended with 1; its output is above"):
        cut_release(
            package, Version("0.2.0"), installer, write=True, pytest_arguments=["-k", "test_new"]
        )

    assert git(package.root, "tag", "--list") == first.tag
