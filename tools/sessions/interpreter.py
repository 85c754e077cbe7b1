"""Interpreters of other versions of Python than the one that runs the sessions."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path


def find_interpreter(version: str) -> str:
    """Return a Python of a version that really starts, or the version, for uv to find or download.

    uv stops at the first ``python3.12`` in ``PATH``, also where that is a shim of pyenv for a
    version that is not chosen.

    Args:
        version: For instance ``3.12``.
    """
    folders = [Path(text) for text in os.environ.get("PATH", "").split(os.pathsep) if text]
    pyenv = Path(os.environ.get("PYENV_ROOT", "~/.pyenv")).expanduser()
    installed = sorted(pyenv.glob(f"versions/{version}.*/bin"))
    for folder in (*folders, *installed):
        candidate = folder / f"python{version}"
        if candidate.is_file() and _starts(candidate):
            return str(candidate)
    return version


def _starts(interpreter: Path) -> bool:
    try:
        command = [str(interpreter), "-c", ""]
        return subprocess.run(command, check=False, capture_output=True).returncode == 0
    except OSError:
        return False
