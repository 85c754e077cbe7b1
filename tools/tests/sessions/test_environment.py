"""Environments that hold what was asked for and nothing else."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from sessions import environment as module
from sessions.environment import Installer
from sessions.package import Package

if TYPE_CHECKING:
    from pathlib import Path


class Session:
    """A session as an installer uses it: runs commands, and records them."""

    def __init__(self) -> None:
        self.commands: list[tuple[str, ...]] = []

    def run(self, *command: str, env: dict[str, str], external: bool) -> None:
        self.commands.append(command)
        subprocess.run(command, check=True, capture_output=True)


@pytest.fixture
def session() -> Session:
    return Session()


@pytest.fixture
def installer(session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Installer:
    monkeypatch.setattr(module, "ROOT", tmp_path)
    from nox.virtualenv import find_uv

    return Installer(session=session, uv=find_uv()[1], settings={})  # type: ignore[arg-type]


def _package(root: Path, name: str) -> Package:
    """Write a small package without dependencies, with its own build backend."""
    folder = root / "packages" / name
    folder.mkdir(parents=True)
    folder.joinpath("pyproject.toml").write_text(
        '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
        f'[project]\nname = "{name}"\nversion = "1"\n'
    )
    folder.joinpath("backend.py").write_text(
        f"import zipfile\nNAME = '{name}'\n"
        "def build_wheel(folder, config_settings=None, metadata_directory=None):\n"
        "    with zipfile.ZipFile(f'{folder}/{NAME}-1-py3-none-any.whl', 'w') as wheel:\n"
        "        wheel.writestr(f'{NAME}/__init__.py', open(f'{NAME}.py').read())\n"
        "        wheel.writestr(f'{NAME}-1.dist-info/METADATA',"
        " f'Metadata-Version: 2.1\\nName: {NAME}\\nVersion: 1\\n')\n"
        "        wheel.writestr(f'{NAME}-1.dist-info/WHEEL', 'Wheel-Version: 1.0\\n"
        "Generator: test\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n')\n"
        "        wheel.writestr(f'{NAME}-1.dist-info/RECORD', '')\n"
        "    return f'{NAME}-1-py3-none-any.whl'\n"
    )
    folder.joinpath(f"{name}.py").write_text("VALUE = 1\n")
    return Package(root=root, name=name)


@pytest.fixture
def leaf(tmp_path: Path) -> Package:
    return _package(tmp_path, "leaf")


def _prints(python: str, program: str) -> str:
    return subprocess.run(
        [python, "-c", program], check=True, capture_output=True, text=True
    ).stdout.strip()


def test_a_wheel_follows_its_sources_and_replaces_the_old_one(
    installer: Installer, leaf: Package
) -> None:
    python = installer.environment("x", [installer.wheel(leaf)], python=sys.executable)
    assert _prints(python, "import leaf; print(leaf.VALUE)") == "1"

    leaf.folder.joinpath("leaf.py").write_text("VALUE = 2\n")
    python = installer.environment("x", [installer.wheel(leaf)], python=sys.executable)
    assert _prints(python, "import leaf; print(leaf.VALUE)") == "2"


def test_requirement_that_was_dropped_is_uninstalled(
    installer: Installer, leaf: Package, tmp_path: Path
) -> None:
    installer.environment("x", [installer.wheel(leaf)], python=sys.executable)
    other = installer.wheel(_package(tmp_path, "other"))
    python = installer.environment("x", [other], python=sys.executable)
    assert _prints(python, "import other; print(other.VALUE)") == "1"
    assert _prints(python, "import importlib.util as u; print(u.find_spec('leaf'))") == "None"


def test_the_same_environment_again_runs_nothing(
    installer: Installer, session: Session, leaf: Package
) -> None:
    installer.environment("x", [installer.wheel(leaf)], python=sys.executable)
    session.commands.clear()
    installer.environment("x", [installer.wheel(leaf)], python=sys.executable)
    assert session.commands == []


def test_an_environment_whose_making_was_interrupted_is_made_good(
    installer: Installer, session: Session, leaf: Package, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel = installer.wheel(leaf)
    run = session.run

    def interrupted(*command: str, **options: Any) -> None:
        if "install" in command:
            raise KeyboardInterrupt
        run(*command, **options)

    monkeypatch.setattr(session, "run", interrupted)
    with pytest.raises(KeyboardInterrupt):
        installer.environment("x", [wheel], python=sys.executable)
    monkeypatch.setattr(session, "run", run)

    python = installer.environment("x", [wheel], python=sys.executable)
    assert _prints(python, "import leaf; print(leaf.VALUE)") == "1"
