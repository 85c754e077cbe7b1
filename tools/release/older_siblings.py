"""Tries npu-compile with siblings of other versions: the oldest in its ranges, and some outside."""

from __future__ import annotations

import io
import shutil
import tarfile
from subprocess import PIPE, run
from typing import TYPE_CHECKING

from packaging.version import Version

from release.errors import ReleaseError
from release.releases import released_versions, revision_of
from release.unpacking import unpack
from sessions.package import Package

if TYPE_CHECKING:
    from pathlib import Path

    from packaging.requirements import Requirement

    from release.installer import Environment, Installer
    from release.wheel_trial import Trial

PACKAGE = "npu-compile"
"""The one package that names siblings, with ranges."""

# Prints the error of the first use, or nothing.
FIRST_USE = """
import torch
import npu_compile
from npu_graph_runtime import FakeDevice

try:
    npu_compile.compile_model(torch.nn.ReLU(), device=FakeDevice())
except npu_compile.NpuCompileError as error:
    print(error)
"""


def try_older_siblings(trial: Trial) -> None:
    """Run npu-compile's tests with its oldest siblings, and check that older ones are rejected.

    A sibling's oldest version is built from the sources of its release. Before there is one, the
    present sources are built under that version, which shows that the range can be installed, not
    that older sources fit. Outside of a range, below it and above, only the version counts.

    Args:
        trial: npu-compile, whose files are built.

    Raises:
        ReleaseError: The oldest siblings do not work, or older ones are not rejected.
    """
    siblings = trial.build_siblings()
    environment = trial.installer.environment(trial.folder / "outside" / "environment")
    (trial.folder / "outside" / "empty").mkdir()
    own = next(trial.built.glob("*.whl"))
    environment.install(own, *siblings.values())
    for requirement in _ranges(trial.package):
        for version in _outside(requirement):
            _try_outside(trial, environment, requirement, version, siblings)
    for requirement in _ranges(trial.package):
        sibling = Package(root=trial.package.root, name=requirement.name)
        oldest = _oldest(requirement)
        siblings[sibling.name], sources = _build_as(
            sibling, oldest, trial.installer, trial.folder / "oldest"
        )
        print(f"{sibling.name} {oldest}, built from {sources}: the oldest in `{requirement}`")
    trial.run(siblings)


def _try_outside(
    trial: Trial,
    environment: Environment,
    requirement: Requirement,
    version: Version,
    siblings: dict[str, Path],
) -> None:
    """Check that the installer rejects a version, and so does the package if it is installed."""
    name = requirement.name
    sibling = Package(root=trial.package.root, name=name)
    own = next(trial.built.glob("*.whl"))
    others = [path for each, path in siblings.items() if each != name]
    folder = trial.folder / "outside" / f"{name}-{version}"
    wheel = _build(sibling, version, trial.installer, folder)
    try:
        environment.install("--dry-run", own, wheel, *others)
    except ReleaseError as error:
        said = " ".join(str(error).split())
        bounds = [str(bound) for bound in requirement.specifier]
    else:
        raise ReleaseError(f"{name} {version}: expected a refusal by `{requirement}`, found none")
    if not all(part in said for part in (trial.package.name, name, *bounds)):
        reason = f"{name} {version}: expected the installer to name `{requirement}`, found: {said}"
        raise ReleaseError(reason)
    print(f"{name} {version}: the installer refuses: {said.partition('Because')[2].strip()}")
    environment.install("--no-deps", wheel)
    empty = trial.folder / "outside" / "empty"
    refusal = environment.run(environment.python, "-c", FIRST_USE, folder=empty).strip()
    environment.install("--no-deps", siblings[name])
    if name not in refusal or str(version) not in refusal:
        raise ReleaseError(
            f"{name} {version}, installed without regard to `{requirement}`: expected the first "
            f"use to name it, found {refusal!r}"
        )
    print(f"{name} {version}, installed with --no-deps: the first use says: {refusal}")


def _ranges(package: Package) -> list[Requirement]:
    names = {each.name for each in package.declared().siblings}
    return [each for each in package.requirements() if each.name in names]


def _oldest(requirement: Requirement) -> Version:
    """Return the lower bound of a range, with three numbers."""
    bounds = [each.version for each in requirement.specifier if each.operator == ">="]
    if len(bounds) != 1:
        raise ReleaseError(f"the range `{requirement}` has no lower bound; give it one `>=`")
    return _three_numbers(Version(bounds[0]))


def _outside(requirement: Requirement) -> list[Version]:
    """Return a version below a range and, where it has an upper bound, the first one above."""
    above = [Version(each.version) for each in requirement.specifier if each.operator == "<"]
    return [Version("0.0.1"), *(_three_numbers(each) for each in above)]


def _three_numbers(version: Version) -> Version:
    return Version(f"{version.major}.{version.minor}.{version.micro}")


def _build_as(
    package: Package, version: Version, installer: Installer, folder: Path
) -> tuple[Path, str]:
    """Build the wheel of a version; return it and which sources it has."""
    if version in released_versions(package):
        tag = package.tag(version)
        revision = revision_of(package, version)
        command = ["git", "archive", revision, f"packages/{package.name}"]
        archive = run(command, cwd=package.root, check=True, stdout=PIPE).stdout
        with tarfile.open(fileobj=io.BytesIO(archive)) as files:
            unpack(files, folder / tag)
        released = Package(root=folder / tag, name=package.name)
        return installer.build_wheel(released, folder / "wheels"), tag
    return _build(package, version, installer, folder), "the present sources"


def _build(package: Package, version: Version, installer: Installer, folder: Path) -> Path:
    """Build the present sources under another version."""
    copy = Package(root=folder / f"{package.name}-sources", name=package.name)
    shutil.copytree(package.folder, copy.folder)
    copy.set_version(str(version))
    return installer.build_wheel(copy, folder / "wheels")
