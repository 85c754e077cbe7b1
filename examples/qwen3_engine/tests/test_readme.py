"""The README of the example is up to date."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import qwen3_engine

FOLDER = Path(qwen3_engine.__file__).parent
README = (FOLDER / "README.md").read_text(encoding="utf-8")


def _section(title: str) -> str:
    return README.split(f"\n## {title}\n")[1].split("\n## ")[0]


def test_files_to_read_first_are_few_and_short() -> None:
    names = re.findall(r"^\| `([\w/]+\.py)` \|", _section("Read it in ten minutes"), re.MULTILINE)
    lines = {name: len((FOLDER / name).read_text(encoding="utf-8").splitlines()) for name in names}

    assert "serving/compiled_model_runner.py" in lines
    assert len(names) == 5
    assert sum(lines.values()) <= 1000, lines


@pytest.mark.parametrize("package", ["npu_compile", "attn_update", "npu_graph_runtime"])
def test_only_a_file_to_read_first_uses_a_package(package: str) -> None:
    """Only those files use the packages; no other file hides a use."""
    users = {
        path.relative_to(FOLDER).as_posix()
        for folder in ("qwen3", "serving")
        for path in (FOLDER / folder).rglob("*.py")
        if re.search(rf"^(import|from) {package}\b", path.read_text(encoding="utf-8"), re.MULTILINE)
    }

    assert users == {"serving/compiled_model_runner.py"}


def test_every_file_of_the_engine_is_named() -> None:
    parts = _section("The parts")
    files = [path for folder in ("qwen3", "serving") for path in (FOLDER / folder).glob("*.py")]

    unnamed = [path.name for path in files if f"{path.name}`" not in parts]

    assert [name for name in unnamed if name != "__init__.py"] == []
