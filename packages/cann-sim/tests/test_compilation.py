"""Compiling sources with a precompiled header."""

from __future__ import annotations

import dataclasses
import os
import subprocess
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from cann_sim.building.compilation import ObjectFile, compile_all
from cann_sim.building.compiler import Compiler, find_compiler
from cann_sim.building.native_library import native_libraries
from cann_sim.errors import CompilationError
from cann_sim.inventory.installation import find_installation

if TYPE_CHECKING:
    from pathlib import Path

MANY = 12


@pytest.fixture(autouse=True)
def _two_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 2)


@pytest.fixture(name="asked")
def _asked(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Return the command lines that the compiler is given, as it ends."""
    commands: list[list[str]] = []
    run = Compiler.run

    def watched(self: Compiler, arguments: Any, purpose: str) -> None:
        run(self, arguments, purpose)
        commands.append(list(arguments))

    monkeypatch.setattr(Compiler, "run", watched)
    return commands


def files(folder: Path, count: int, *, header: str = "#define NUMBER 7\n") -> list[ObjectFile]:
    """Return sources that need NUMBER but do not include its definition."""
    (folder / "scratch").mkdir()
    (folder / "number.h").write_text(header)
    made = []
    for index in range(count):
        source = folder / f"source{index}.cpp"
        source.write_text(f"int number{index}() {{ return NUMBER; }}\n" + "//\n" * index)
        made.append(
            ObjectFile(
                path=source.with_suffix(".o"),
                sources=(source,),
                flags=("-O1",),
                precompiled_header=folder / "number.h",
            )
        )
    return made


def test_compile_all_of_many_sources_compiles_their_header_once_with_the_first(
    tmp_path: Path, asked: list[list[str]]
) -> None:
    made = files(tmp_path, MANY)
    told: list[ObjectFile] = []
    compile_all(made, find_compiler(), tmp_path / "scratch", told.append)
    assert all(file.path.exists() for file in made)
    assert sorted(file.path for file in told) == sorted(file.path for file in made)
    assert len(asked) == MANY + 1
    assert sum("c++-header" in command for command in asked) == 1


def test_compile_all_lets_the_compiler_find_what_it_precompiled(
    tmp_path: Path, asked: list[list[str]]
) -> None:
    made = files(tmp_path, MANY)
    compiler = find_compiler()
    compile_all(made, compiler, tmp_path / "scratch")
    # The text may go: what is taken is what was compiled.
    for header in (tmp_path / "scratch").glob("*.h"):
        header.write_text("#error the text of the header was read\n")
    subprocess.run([compiler.path, *asked[-1]], check=True)


def test_compile_all_of_few_sources_compiles_no_header(
    tmp_path: Path, asked: list[list[str]]
) -> None:
    made = files(tmp_path, 2)
    for file in made:
        (source,) = file.sources
        source.write_text('#include "number.h"\n' + source.read_text())
    compile_all(made, find_compiler(), tmp_path / "scratch")
    assert len(asked) == len(made)
    assert not any("-include" in command for command in asked)


def test_compile_all_of_a_wrong_header_names_it_and_ends(tmp_path: Path) -> None:
    made = files(tmp_path, MANY, header="#error not this one\n")
    with pytest.raises(CompilationError, match=r"(?s)precompiling .*number\.h.*not this"):
        compile_all(made, find_compiler(), tmp_path / "scratch")
    assert not any(file.path.exists() for file in made)


def test_compile_all_puts_the_sources_of_a_unit_into_one_object_file(
    tmp_path: Path, asked: list[list[str]]
) -> None:
    made = files(tmp_path, MANY)
    parts = [made[:3], made[3:4], made[4:]]
    units = [
        dataclasses.replace(part[0], sources=tuple(file.sources[0] for file in part))
        for part in parts
    ]
    for file in made:
        (source,) = file.sources
        source.write_text('#include "number.h"\n' + source.read_text())
    compile_all(units, find_compiler(), tmp_path / "scratch")
    assert len(asked) == len(units)
    for unit, part in zip(units, parts, strict=True):
        defined = subprocess.run(
            ["nm", "--defined-only", str(unit.path)], check=True, capture_output=True, text=True
        ).stdout
        assert defined.count(" T ") == len(part)


def test_compile_all_of_a_wrong_source_names_it_and_its_unit(tmp_path: Path) -> None:
    first, second, third = files(tmp_path, 3, header="")
    (wrong,) = second.sources
    wrong.write_text("int number1() { return nothing; }\n")
    (last,) = third.sources
    unit = dataclasses.replace(first, sources=(wrong, last))
    with pytest.raises(
        CompilationError,
        match=r"(?s)compiling .*/source2\.cpp behind 1 more of that folder.*source1\.cpp.*nothing",
    ):
        compile_all([unit], find_compiler(), tmp_path / "scratch")
    assert not unit.path.exists()


def test_compile_all_begins_with_the_largest_source(
    tmp_path: Path, asked: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "cann_sim.building.compilation.ThreadPoolExecutor", lambda _: ThreadPoolExecutor(1)
    )
    compile_all(files(tmp_path, MANY), find_compiler(), tmp_path / "scratch")
    sources = [command[command.index("-c") + 1] for command in asked if "-c" in command]
    numbers = [int(source.rpartition("source")[2].removesuffix(".cpp")) for source in sources]
    assert numbers == sorted(numbers, reverse=True)


def test_compile_all_begins_with_the_lowest_rank(
    tmp_path: Path, asked: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "cann_sim.building.compilation.ThreadPoolExecutor", lambda _: ThreadPoolExecutor(1)
    )
    made = files(tmp_path, MANY)
    # The longest come last.
    ranked = [dataclasses.replace(file, rank=number) for number, file in enumerate(made)]
    compile_all(ranked, find_compiler(), tmp_path / "scratch")
    sources = [command[command.index("-c") + 1] for command in asked if "-c" in command]
    numbers = [int(source.rpartition("source")[2].removesuffix(".cpp")) for source in sources]
    assert numbers == sorted(numbers)


def test_precompiled_header_of_the_operators_includes_installed_headers_only() -> None:
    headers = {library.precompiled_header for library in native_libraries(find_installation())}
    texts = [header.read_text() for header in headers if header is not None]
    assert len(texts) == 1
    assert "#include <ATen/" in texts[0]
    assert '#include "' not in texts[0]
