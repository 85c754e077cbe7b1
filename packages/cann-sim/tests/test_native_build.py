"""Building the native libraries: once, only changed sources, and clear errors."""

from __future__ import annotations

import dataclasses
import shutil
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from cann_sim.building.compiler import Compiler, find_compiler
from cann_sim.building.native_build import build
from cann_sim.building.native_library import NativeLibrary
from cann_sim.errors import CompilationError, CompilerNotFoundError
from cann_sim.inventory.installation import Installation, find_installation

if TYPE_CHECKING:
    from pathlib import Path

Libraries = Callable[[Installation], tuple[NativeLibrary, ...]]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    file = tmp_path / "answer.cpp"
    file.write_text('#include "answer.h"\nextern "C" int answer() { return ANSWER; }\n')
    (tmp_path / "answer.h").write_text("#define ANSWER 42\n")
    (tmp_path / "other.cpp").write_text('extern "C" int other() { return 1; }\n')
    return file


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the names of the files passed to the compiler, in order."""
    names: list[str] = []
    run = Compiler.run

    def watched(self: Compiler, arguments: Any, purpose: str) -> None:
        if purpose.startswith("compiling"):
            names.append(purpose.rpartition("/")[2])
        run(self, arguments, purpose)

    monkeypatch.setattr(Compiler, "run", watched)
    return names


@pytest.fixture(autouse=True)
def _own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, source: Path) -> None:
    """Build two small libraries instead of the real ones, into a cache of the test."""
    monkeypatch.setenv("CANN_SIM_CACHE", str(tmp_path / "cache"))

    def library(name: str, file: Path, headers: tuple[Path, ...]) -> NativeLibrary:
        return NativeLibrary(
            name=f"lib{name}.so",
            folder="common",
            sources=(file,),
            headers=headers,
            compile_flags=("-fPIC",),
            link_flags=(),
        )

    def libraries(installation: Installation) -> tuple[NativeLibrary, ...]:
        other = source.with_name("other.cpp")
        answer = library("answer", source, (source.with_name("answer.h"),))
        include = f"-isystem{installation.torch_folder}/include"
        return (
            dataclasses.replace(answer, compile_flags=("-fPIC", include)),
            library("other", other, ()),
        )

    monkeypatch.setattr("cann_sim.building.native_build.native_libraries", libraries)


def test_build_makes_every_library_with_its_soname() -> None:
    built = build()
    names = [path.name for path in built.library_paths("value")]
    assert names == ["libanswer.so", "libother.so"]
    assert all(path.exists() for path in built.library_paths("value"))


def test_build_again_compiles_nothing(compiled: list[str]) -> None:
    first = build()
    assert sorted(compiled) == ["answer.cpp", "other.cpp"]
    compiled.clear()
    assert build().folder == first.folder
    assert compiled == []


def test_build_after_a_change_compiles_only_what_changed(compiled: list[str], source: Path) -> None:
    first = build()
    compiled.clear()
    source.write_text(source.read_text() + "// changed\n")
    assert build().folder != first.folder
    assert compiled == ["answer.cpp"]


def test_build_after_a_change_of_a_header_compiles_what_includes_it(
    compiled: list[str], source: Path
) -> None:
    build()
    compiled.clear()
    source.with_name("answer.h").write_text("#define ANSWER 43\n")
    build()
    assert compiled == ["answer.cpp"]


def test_build_after_a_change_of_a_header_that_nothing_includes_only_links(
    compiled: list[str], source: Path
) -> None:
    source.write_text('extern "C" int answer() { return 42; }\n')
    first = build()
    compiled.clear()
    source.with_name("answer.h").write_text("#define ANSWER 43\n")
    assert build().folder != first.folder
    assert compiled == []


def test_build_of_a_change_undone_is_found_again(compiled: list[str], source: Path) -> None:
    first = build()
    text = source.read_text()
    source.write_text(text + "// changed\n")
    build()
    source.write_text(text)
    compiled.clear()
    assert build().folder == first.folder
    assert compiled == []


def test_build_for_the_same_torch_elsewhere_links_what_was_compiled(
    compiled: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = build()
    compiled.clear()
    moved = dataclasses.replace(find_installation(), torch_folder=tmp_path / "elsewhere" / "torch")
    monkeypatch.setattr("cann_sim.building.native_build.find_installation", lambda: moved)
    assert build().folder != first.folder
    assert compiled == []


def test_build_for_another_torch_compiles_what_includes_it(
    compiled: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    build()
    compiled.clear()
    other = dataclasses.replace(find_installation(), torch_version="2.99.1+cpu")
    monkeypatch.setattr("cann_sim.building.native_build.find_installation", lambda: other)
    build()
    assert compiled == ["answer.cpp"]


def test_build_by_several_at_once_compiles_once(compiled: list[str]) -> None:
    folders: list[Path] = []
    threads = [threading.Thread(target=lambda: folders.append(build().folder)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(folders) == 4
    assert len(set(folders)) == 1
    assert sorted(compiled) == ["answer.cpp", "other.cpp"]


def test_build_of_a_wrong_source_shows_the_compiler_output(source: Path, tmp_path: Path) -> None:
    source.write_text("int answer() { return nothing; }\n")
    with pytest.raises(CompilationError, match=r"(?s)answer\.cpp.*nothing.*declared"):
        build()
    assert list((tmp_path / "cache" / "builds").iterdir()) == []


def test_build_without_a_compiler_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(CompilerNotFoundError, match=r"'g\+\+' on the path.*apt-get"):
        build()


def test_build_without_a_compiler_uses_an_earlier_build(monkeypatch: pytest.MonkeyPatch) -> None:
    first = build()
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", "")
    assert build().folder == first.folder


def test_compiler_that_does_not_answer_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    false = shutil.which("false")
    assert false is not None
    monkeypatch.setenv("CXX", false)
    with pytest.raises(CompilerNotFoundError, match=r"asked the C\+\+ compiler"):
        find_compiler()


def test_compiler_for_another_processor_shares_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, compiled: list[str]
) -> None:
    """A cache on a disk that several machines share contains the results of each of them."""
    first = build()
    native = find_compiler()
    cross = tmp_path / "cross-g++"
    cross.write_text(
        '#!/bin/sh\ncase "$1" in -dumpmachine) echo other-linux-gnu; exit;; esac\n'
        f'exec {native.path} "$@"\n'
    )
    cross.chmod(0o755)
    compiled.clear()
    monkeypatch.setenv("CXX", str(cross))

    assert build().folder != first.folder
    assert compiled == ["answer.cpp", "other.cpp"]


def test_machine_without_a_compiler_takes_no_build_of_another_processor(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    build()
    monkeypatch.setattr("platform.machine", lambda: "other")
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(CompilerNotFoundError):
        build()
