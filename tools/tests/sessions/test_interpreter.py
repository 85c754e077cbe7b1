"""Interpreters that are found by version."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from sessions.interpreter import find_interpreter

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def _only_this_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path / "pyenv"))


def _executable(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


def test_an_interpreter_in_the_path_is_found(tmp_path: Path) -> None:
    python = _executable(tmp_path / "python3.77", f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    assert find_interpreter("3.77") == str(python)


def test_a_shim_that_does_not_start_is_passed_over(tmp_path: Path) -> None:
    _executable(tmp_path / "python3.77", "#!/bin/sh\nexit 127\n")
    folder = tmp_path / "pyenv" / "versions" / "3.77.1" / "bin"
    python = _executable(folder / "python3.77", f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    assert find_interpreter("3.77") == str(python)


def test_a_version_that_is_not_installed_is_left_to_uv() -> None:
    assert find_interpreter("3.77") == "3.77"
