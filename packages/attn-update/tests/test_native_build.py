"""The build of the native updater: cached, keyed, whole or not there, clear when impossible."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch

from attn_update import UpdateLane
from attn_update.errors import NativeUnavailableError
from attn_update.issuing.native.native_build import build_native, default_folder
from attn_update.issuing.native.native_updater import NativeUpdater

if TYPE_CHECKING:
    from collections.abc import Iterator

    from npu_graph_runtime import NpuDevice

# Stands for a compiler where only the handling of files is at stake.
COPYING_COMPILER = """#!/bin/sh
echo run >> "{log}"
while [ "$1" != "-o" ]; do shift; done
echo built > "$2"
exit {status}
"""


@pytest.fixture(autouse=True)
def children() -> Iterator[None]:
    """The end of a child can be learnt, also below a parent that ignores SIGCHLD."""
    before = signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGCHLD, before)


def make_compiler(folder: Path, name: str = "compiler", status: int = 0) -> Path:
    program = folder / name
    program.write_text(COPYING_COMPILER.format(log=folder / "log", status=status))
    program.chmod(0o755)
    return program


def num_runs(folder: Path) -> int:
    return len((folder / "log").read_text().splitlines())


def test_build_native_twice_compiles_once(tmp_path: Path) -> None:
    compiler = make_compiler(tmp_path)
    first = build_native(tmp_path / "cache", str(compiler))
    second = build_native(tmp_path / "cache", str(compiler))
    assert first == second
    assert first.read_text() == "built\n"
    assert num_runs(tmp_path) == 1
    assert not list((tmp_path / "cache").glob("partial-*"))


def test_build_native_with_another_compiler_compiles_again(tmp_path: Path) -> None:
    first = build_native(tmp_path / "cache", str(make_compiler(tmp_path)))
    second = build_native(tmp_path / "cache", str(make_compiler(tmp_path, "other")))
    assert first != second
    assert num_runs(tmp_path) == 2


def test_build_native_in_another_environment_of_the_same_versions_compiles_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler = make_compiler(tmp_path)
    first = build_native(tmp_path / "cache", str(compiler))
    monkeypatch.setattr(torch, "__file__", str(tmp_path / "elsewhere" / "torch" / "__init__.py"))
    assert build_native(tmp_path / "cache", str(compiler)) == first
    assert num_runs(tmp_path) == 1


def test_build_native_with_another_torch_compiles_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler = make_compiler(tmp_path)
    first = build_native(tmp_path / "cache", str(compiler))
    monkeypatch.setattr(torch, "__version__", f"{torch.__version__}.another")
    assert build_native(tmp_path / "cache", str(compiler)) != first
    assert num_runs(tmp_path) == 2


def test_build_native_refused_by_the_compiler_leaves_nothing(tmp_path: Path) -> None:
    compiler = make_compiler(tmp_path, status=3)
    with pytest.raises(NativeUnavailableError, match="ended with status 3"):
        build_native(tmp_path / "cache", str(compiler))
    assert not [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]


@pytest.mark.parametrize("num_bytes", [0, 3])
def test_build_native_of_a_truncated_file_builds_it_again(tmp_path: Path, num_bytes: int) -> None:
    compiler = make_compiler(tmp_path)
    built = build_native(tmp_path / "cache", str(compiler))
    os.truncate(built, num_bytes)
    assert build_native(tmp_path / "cache", str(compiler)) == built
    assert built.read_text() == "built\n"
    assert num_runs(tmp_path) == 2


def test_native_updater_whose_file_was_truncated_is_built_again_and_loads(tmp_path: Path) -> None:
    """In a process of its own: loading the truncated file would end it by SIGBUS."""
    whole = build_native(default_folder())
    folder = tmp_path / "cache" / whole.parent.name
    folder.mkdir(parents=True)
    content = whole.read_bytes()
    (folder / whole.name).write_bytes(content[: len(content) // 2])
    compiler = tmp_path / Path(shutil.which("g++") or "").name
    compiler.write_text(
        f"""#!/bin/sh
echo run >> "{tmp_path / "log"}"
while [ "$1" != "-o" ]; do shift; done
cp "{whole}" "$2"
"""
    )
    compiler.chmod(0o755)
    program = f"""
import os, sys
os.environ["PATH"] = {str(tmp_path)!r} + os.pathsep + os.environ["PATH"]
from pathlib import Path
from attn_update.issuing.native.native_updater import NativeUpdater
NativeUpdater.load(Path({str(tmp_path / "cache")!r}))
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert num_runs(tmp_path) == 1


def test_build_native_removes_what_a_killed_build_has_left(tmp_path: Path) -> None:
    cache, hanging = tmp_path / "cache", tmp_path / "hanging"
    hanging.write_text("#!/bin/sh\nexec sleep 60\n")
    hanging.chmod(0o755)
    program = f"""
from pathlib import Path
from attn_update.issuing.native.native_build import build_native, default_folder
build_native(Path({str(cache)!r}), {str(hanging)!r})
"""
    with subprocess.Popen([sys.executable, "-c", program], start_new_session=True) as build:
        while not list(cache.glob("partial-*/launches.cpp")):
            assert build.poll() is None
            time.sleep(0.05)
        os.killpg(build.pid, signal.SIGKILL)
    (left,) = cache.glob("partial-*")
    compiler = str(make_compiler(tmp_path))
    build_native(cache, compiler)
    assert left.exists()  # it could be a build that is under way
    hours_ago = time.time() - 2 * 3600
    os.utime(left, (hours_ago, hours_ago))
    build_native(cache, compiler)
    assert not list(cache.glob("partial-*"))


def test_lane_builds_the_native_updater_in_the_folder_that_it_is_given(
    npu_device: NpuDevice, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = build_native(default_folder())
    compiler = tmp_path / "g++"
    compiler.write_text(f"""#!/bin/sh
while [ "$1" != "-o" ]; do shift; done
cp "{whole}" "$2"
""")
    compiler.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setattr(Path, "home", tmp_path.joinpath)
    for updater in ("auto", "native"):
        folder = tmp_path / updater
        lane = UpdateLane(npu_device, updater=updater, native_folder=str(folder))
        lane.close()
        assert lane.updater == "native"
        assert len(list(folder.glob("*/attn_update_native-*"))) == 1
    assert not (tmp_path / ".cache").exists()


def test_native_updater_without_a_compiler_says_so(tmp_path: Path) -> None:
    with pytest.raises(NativeUnavailableError, match="found none; install one"):
        NativeUpdater.load(tmp_path, "no-such-compiler")


def test_native_updater_in_a_folder_that_cannot_be_made_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(NativeUnavailableError, match="give another folder"):
        NativeUpdater.load(tmp_path / "file", str(make_compiler(tmp_path)))


def test_native_updater_of_a_broken_module_says_so(tmp_path: Path) -> None:
    with pytest.raises(NativeUnavailableError, match="remove the file to build it again"):
        NativeUpdater.load(tmp_path / "cache", str(make_compiler(tmp_path)))


def test_native_updater_where_children_are_ignored_builds_nothing(tmp_path: Path) -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with pytest.raises(NativeUnavailableError, match="ignores SIGCHLD"):
        NativeUpdater.load(tmp_path / "cache", str(make_compiler(tmp_path, status=3)))
    assert not [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]


def test_native_updater_without_a_home_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", no_home)
    with pytest.raises(NativeUnavailableError, match="set HOME, or give a folder"):
        NativeUpdater.load()
