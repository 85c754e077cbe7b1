"""Build failures of the libraries: one clear line, and the next start works."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import cann_sim
from cann_sim.building.build_cache import locked, require_writable
from cann_sim.building.compiler import find_compiler
from cann_sim.building.native_build import build
from cann_sim.errors import CacheError, CompilerNotFoundError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# Builds one small library instead of the real ones.
BUILD_SMALL = """
import sys
from pathlib import Path
import cann_sim.building.native_build as native_build
from cann_sim.building.native_library import NativeLibrary

library = NativeLibrary(
    name="libanswer.so", folder="common", sources=(Path(sys.argv[1]),), headers=(),
    compile_flags=("-fPIC",), link_flags=(),
)
native_build.native_libraries = lambda installation: (library,)
print(native_build.build().folder)
"""
HANG_SECONDS = 900
NOBODY = 65534


@pytest.fixture(name="cache")
def _cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("CANN_SIM_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture(name="start")
def _start(tmp_path: Path) -> Callable[[], subprocess.Popen[str]]:
    """Return a function that starts a process which builds the small library."""
    source = tmp_path / "answer.cpp"
    source.write_text('extern "C" int answer() { return 42; }\n')

    def start() -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-c", BUILD_SMALL, str(source)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    return start


@pytest.fixture(name="slow_compiler")
def _slow_compiler(tmp_path: Path) -> tuple[Path, Path]:
    """Return a compiler that waits forever, and the file that it creates when it begins to."""
    compiler, begun = tmp_path / "slow-g++", tmp_path / "begun"
    compiler.write_text(
        f'#!/bin/sh\ncase "$*" in *-c*.cpp*) touch {begun}; sleep {HANG_SECONDS};; esac\n'
        f'exec {find_compiler().path} "$@"\n'
    )
    compiler.chmod(0o755)
    return compiler, begun


def finished(process: subprocess.Popen[str]) -> tuple[str, str]:
    output, errors = process.communicate(timeout=HANG_SECONDS)
    assert process.returncode == 0, errors
    return output, errors


def test_compile_that_was_killed_is_made_again_and_leaves_nothing(
    start: Callable[[], subprocess.Popen[str]],
    slow_compiler: tuple[Path, Path],
    cache: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compiler, begun = slow_compiler
    with monkeypatch.context() as slow:
        slow.setenv("CXX", str(compiler))
        killed = start()
    end = time.monotonic() + HANG_SECONDS
    while not begun.exists() and killed.poll() is None:
        assert time.monotonic() < end
        time.sleep(0.05)
    os.killpg(killed.pid, signal.SIGKILL)
    _, errors = killed.communicate(timeout=HANG_SECONDS)
    assert killed.returncode == -signal.SIGKILL, errors
    assert list((cache / "objects").glob("scratch-*"))

    finished(start())
    assert [path.suffix for path in (cache / "objects").iterdir()] == [".o"]
    assert len(list((cache / "builds").iterdir())) == 1


def test_processes_that_build_at_once_get_the_same_build(
    start: Callable[[], subprocess.Popen[str]], cache: Path
) -> None:
    ends = [finished(process) for process in [start() for _ in range(4)]]
    assert len({output for output, _ in ends}) == 1
    assert sum("compiling 1 native sources" in errors for _, errors in ends) == 1
    assert len(list((cache / "builds").iterdir())) == 1


def test_lock_that_another_process_holds_is_waited_for_with_a_line(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    holding = (
        f"import fcntl, time; handle = open({str(tmp_path / 'lock')!r}, 'w')\n"
        "fcntl.flock(handle, fcntl.LOCK_EX); print('held', flush=True); time.sleep(1)"
    )
    holder = subprocess.Popen([sys.executable, "-c", holding], stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    with locked(tmp_path / "lock") as held:
        assert held
    holder.communicate()
    assert "waiting for another process" in capfd.readouterr().err


def test_cache_without_locks_is_used_with_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def no_locks(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", no_locks)
    with locked(tmp_path / "lock") as held:
        assert not held
    assert f"{tmp_path} has no locks" in capfd.readouterr().err


def test_cache_that_cannot_be_made_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CANN_SIM_CACHE", str(tmp_path / "file" / "cache"))
    (tmp_path / "file").write_text("")
    with pytest.raises(CacheError, match=r"Not a directory.*CANN_SIM_CACHE"):
        build()


@pytest.fixture(name="_not_root")
def _someone_else() -> Iterator[None]:
    """Be nobody for the file system, where the tests are run by root, who may write everywhere."""
    user = os.geteuid()
    if user == 0:
        os.seteuid(NOBODY)
    yield
    os.seteuid(user)


@pytest.mark.usefixtures("_not_root")
def test_cache_without_permission_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CANN_SIM_CACHE", "/proc/1/cwd/cache")
    with pytest.raises(CacheError, match=r"Permission denied.*CANN_SIM_CACHE"):
        require_writable()


@pytest.fixture(name="small_disk")
def _small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    mount, unmount = shutil.which("mount"), shutil.which("umount")
    if mount is None or unmount is None or os.geteuid() != 0:
        pytest.skip("only root can mount a file system of 1 MB")
    mounting = [mount, "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)]
    done = subprocess.run(mounting, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"cannot mount a file system here: {done.stderr.strip()}")
    yield folder
    subprocess.run([unmount, str(folder)], check=True)


def test_full_disk_is_named_and_the_next_start_works(
    small_disk: Path,
    start: Callable[[], subprocess.Popen[str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CANN_SIM_CACHE", str(small_disk))
    (tmp_path / "answer.cpp").write_text("char large[2 << 20] = {1};\n")
    process = start()
    _, errors = process.communicate(timeout=HANG_SECONDS)
    last = errors.strip().splitlines()[-1]
    assert last.startswith("cann_sim.errors.CacheError: cann-sim was "), errors
    assert "No space left on device" in last
    assert "CANN_SIM_CACHE" in last

    monkeypatch.setenv("CANN_SIM_CACHE", str(tmp_path / "cache"))
    finished(start())


def test_compiler_that_is_too_old_is_refused_before_anything_is_compiled(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = tmp_path / "old-g++"
    old.write_text(
        '#!/bin/sh\ncase "$*" in *-dump*) echo 6.3.0; exit 0;; esac\n'
        "echo \"g++: error: unrecognized command line option '$1'\" >&2; exit 1\n"
    )
    old.chmod(0o755)
    monkeypatch.setenv("CXX", str(old))
    with pytest.raises(
        CompilerNotFoundError, match=r"a compiler of c\+\+.*found .*6\.3\.0: .*unrecogn"
    ):
        build()
    assert not cache.exists()


def old_pythons_of_pyenv() -> list[str]:
    return [str(path) for path in Path.home().glob(".pyenv/versions/3.9.*/bin/python")]


def is_old_python(path: str) -> bool:
    asked = [path, "-c", "import sys; sys.exit(sys.version_info >= (3, 10))"]
    return subprocess.run(asked, capture_output=True, check=False).returncode == 0


def test_python_that_is_too_old_gets_an_error_of_one_line() -> None:
    named = filter(None, map(shutil.which, ("python3.9", "python3.8")))
    old = next(filter(is_old_python, (*named, *old_pythons_of_pyenv())), None)
    if old is None:
        pytest.skip("there is no Python before 3.10 here")
    done = subprocess.run(
        [old, "-m", "cann_sim", "info"],
        capture_output=True,
        text=True,
        check=False,
        env={"PYTHONPATH": str(Path(cann_sim.__file__).parent.parent)},
    )
    assert done.returncode != 0
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("ImportError: cann-sim was imported by Python 3."), done.stderr
    assert "expected Python 3.10 or later" in last
