"""The programs of the README run as it says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

README = Path(__file__).parents[1] / "README.md"
PROGRAMS = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)


def run(program: str, folder: Path, *arguments: str) -> str:
    (folder / "example.py").write_text(program, encoding="utf-8")
    command = [sys.executable, *arguments, "example.py"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_contract_of_the_readme_passes_on_the_fake_device(tmp_path: Path) -> None:
    assert re.search(r"^\d+ passed", run(PROGRAMS[0], tmp_path, "-m", "pytest", "-q"), re.MULTILINE)


def test_updates_of_the_readme_are_right_under_any_schedule(tmp_path: Path) -> None:
    assert run(PROGRAMS[1], tmp_path) == "every step saw its own lengths\n"
