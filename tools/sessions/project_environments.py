"""Environments that sessions share: of all packages, of one package's wheel, of an engine."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from nox.virtualenv import find_uv

from sessions.engine_environment import engine_environment
from sessions.environment import Installer
from sessions.installer_settings import installer_settings
from sessions.package import packages
from sessions.torch_release import choose_torch
from sessions.workspace import ROOT, tool_requirements

if TYPE_CHECKING:
    import nox

    from sessions.engine_environment import Engine
    from sessions.package import Package
    from sessions.torch_release import TorchRelease


def find_installer(session: nox.Session) -> Installer:
    """Return an installer with pip's settings passed to uv."""
    found, uv, _ = find_uv()
    if not found:
        session.error("uv was looked for, found nothing: start the sessions by ./nox, which has it")
    return Installer(session=session, uv=uv, settings=installer_settings())


def installer_with_torch(session: nox.Session) -> tuple[Installer, TorchRelease]:
    """Return an installer, and the release of torch for the gate and the demo."""
    installer = find_installer(session)
    choice = choose_torch(installer.settings)
    release = choice.release
    session.log(f"torch {release.torch}, torch_npu {release.torch_npu}: {choice.source}")
    return installer.having(choice.settings), release


def declared_by_packages() -> set[str]:
    """Return the requirements of all packages and their tests, without the packages themselves."""
    return {text for package in packages(ROOT) for text in package.declared(tests=True).others}


def everything(session: nox.Session) -> str:
    """Return the Python of the environment with all packages (editable) and all tools."""
    installer, release = installer_with_torch(session)
    requirements = {*declared_by_packages(), *tool_requirements("example", "types", "peers")}
    return installer.environment(
        "everything", requirements, release=release, python=sys.executable, editable=packages(ROOT)
    )


def package_environment(
    installer: Installer, package: Package, release: TorchRelease, *, name: str, python: str
) -> str:
    """Return the Python of an environment that has a package's wheel and what its tests declare."""
    declared = package.declared(tests=True)
    wheels = [installer.wheel(each) for each in (*declared.siblings, package)]
    return installer.environment(name, [*declared.others, *wheels], release=release, python=python)


def engine_python(installer: Installer, engine: Engine, release: TorchRelease, python: str) -> str:
    """Return the Python of the environment of an engine and the package that adapts it."""
    (adapter,) = (package for package in packages(ROOT) if package.name == engine.adapter)
    siblings = [*adapter.declared(tests=True).siblings, adapter]
    return engine_environment(installer, engine, release, siblings, python)
