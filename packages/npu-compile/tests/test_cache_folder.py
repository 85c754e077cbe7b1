"""The folder of the compile cache: broken and foreign files, folders that cannot be used, races."""

from __future__ import annotations

import os
import signal
import stat
import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch

import npu_compile
from npu_compile import CompileCacheWarning, CompiledModel
from npu_compile.caching.cache_folder import CacheFolder
from npu_graph_runtime import FakeDevice

if TYPE_CHECKING:
    from collections.abc import Callable

X = torch.linspace(-1, 1, 12).reshape(3, 4)


def _double(x: torch.Tensor) -> torch.Tensor:
    return torch.tanh(x) * 2


def _compiled(folder: Path) -> CompiledModel:
    config = {"mode": "piecewise", "splitting_ops": ["a::b"], "fuse": False}
    return npu_compile.compile_model(
        _double, {**config, "cache_folder": str(folder)}, device=FakeDevice()
    )


def _line(compiled: CompiledModel) -> str:
    (report,) = compiled.reports
    return str(report.cache)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a cache of one entry."""
    compiled = _compiled(tmp_path / "cache")
    compiled(X)
    assert "put into the compile cache" in _line(compiled)
    return tmp_path / "cache"


def _only_file(folder: Path) -> Path:
    (file,) = folder.iterdir()
    return file


def _flipped(data: bytes, place: int) -> bytes:
    return data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]


BROKEN: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "empty": (lambda _: b"", "truncated"),
    "half of the first line": (lambda data: data[:8], "truncated"),
    "first line only": (lambda data: data[:20], "truncated"),
    "half of the hash": (lambda data: data[:36], "truncated"),
    "hash only": (lambda data: data[:52], "truncated"),
    "half-written": (lambda data: data[: len(data) // 2], "truncated"),
    "last byte missing": (lambda data: data[:-1], "truncated"),
    "bytes behind the end": (lambda data: data + b"x", "truncated or changed"),
    "first byte of the content changed": (lambda data: _flipped(data, 52), "changed"),
    "last byte changed": (lambda data: _flipped(data, len(data) - 1), "changed"),
    "byte of the hash changed": (lambda data: _flipped(data, 25), "changed"),
    "zeros, as after a crash": (lambda data: bytes(len(data)), "not an entry"),
    "JSON": (lambda _: b'{"version": 1}', "not an entry"),
    "other version": (lambda data: data.replace(b"cache 1", b"cache 9", 1), "not an entry"),
    "executable": (lambda _: b"\x7fELF" + bytes(100), "not an entry"),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_broken_file_is_named_and_left_as_it_is_and_the_model_compiles(
    folder: Path, kind: str
) -> None:
    file = _only_file(folder)
    whole = file.read_bytes()
    change, reason = BROKEN[kind]
    broken = change(whole)
    file.write_bytes(broken)
    compiled = _compiled(folder)

    with pytest.warns(CompileCacheWarning, match=reason) as caught:
        output = compiled(X)

    assert file.name in str(caught[0].message)
    assert torch.equal(output, _double(X))
    assert _line(compiled).startswith("compiled, and put into the compile cache")
    # What was put in its place is the whole one again, or has a name of its own.
    good = _compiled(folder)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore" if file.read_bytes() == broken else "error")
        assert torch.equal(good(X), _double(X))
    assert _line(good).startswith("from the compile cache")


def test_entry_that_is_something_else_is_named(folder: Path) -> None:
    name = _only_file(folder).name
    _only_file(folder).unlink()
    stored = CacheFolder(folder).store(name.partition(".")[0], b"i\x01\x00\x00\x00")
    compiled = _compiled(folder)

    with pytest.warns(CompileCacheWarning, match=f"{stored}.*not what this version writes"):
        compiled(X)

    assert "put into the compile cache" in _line(compiled)


def test_files_of_other_names_are_not_looked_at(folder: Path) -> None:
    name = _only_file(folder).name
    (folder / "notes.txt").write_text("mine")
    (folder / f".{name}.partial").write_bytes(b"half")
    (folder / f"{name}.bak").write_bytes(b"half")
    (folder / "other.0123456789abcdef.npucompile").write_bytes(b"half")
    compiled = _compiled(folder)

    compiled(X)

    assert _line(compiled).startswith("from the compile cache")
    assert (folder / "notes.txt").read_text() == "mine"


def test_folder_in_the_place_of_an_entry_is_named(folder: Path) -> None:
    file = _only_file(folder)
    file.rename(folder / "kept")
    file.mkdir()
    compiled = _compiled(folder)

    with pytest.warns(CompileCacheWarning, match=rf"{file.name}.*[Dd]irectory"):
        assert torch.equal(compiled(X), _double(X))

    assert file.is_dir()


def test_folder_that_is_a_file_is_named_and_the_model_runs(tmp_path: Path) -> None:
    path = tmp_path / "cache"
    path.write_text("mine")
    compiled = _compiled(path)

    with pytest.warns(CompileCacheWarning) as caught:
        assert torch.equal(compiled(X), _double(X))

    assert [str(path) in str(each.message) for each in caught] == [True, True]
    assert "not put into the compile cache: [Errno" in _line(compiled)
    assert path.read_text() == "mine"


class _Denied:
    """The permission that the test's own user, root say, would have anyway."""

    def __init__(self, what: str) -> None:
        self.what = what

    def __call__(self, *args: object, **kwargs: object) -> bytes:
        del kwargs
        raise PermissionError(13, "Permission denied", str(args[0]) if args else self.what)


def test_entry_that_may_not_be_read_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = _only_file(folder)
    before = file.read_bytes()
    compiled = _compiled(folder)
    with monkeypatch.context() as patch:
        if os.geteuid() == 0:
            patch.setattr(Path, "read_bytes", _Denied("read"))
        else:
            file.chmod(0)
        with pytest.warns(CompileCacheWarning, match=f"{file.name}.*Permission denied"):
            assert torch.equal(compiled(X), _double(X))
    file.chmod(stat.S_IRUSR | stat.S_IWUSR)

    assert file.read_bytes() == before


def test_folder_that_may_not_be_written_is_named_and_the_model_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "cache"
    path.mkdir()
    compiled = _compiled(path)
    with monkeypatch.context() as patch:
        if os.geteuid() == 0:
            patch.setattr("tempfile.mkstemp", _Denied("write"))
        else:
            path.chmod(stat.S_IRUSR | stat.S_IXUSR)
        with pytest.warns(CompileCacheWarning, match=r"writing into .*Permission denied"):
            assert torch.equal(compiled(X), _double(X))
    path.chmod(stat.S_IRWXU)

    assert "not put into the compile cache" in _line(compiled)
    assert not list(path.iterdir())


def test_write_that_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device", str(descriptor))

    monkeypatch.setattr(os, "fsync", full)

    with pytest.raises(OSError, match="No space"):
        CacheFolder(tmp_path).store("key", b"content")

    assert not list(tmp_path.iterdir())


def test_writers_that_are_killed_and_readers_at_once_see_whole_entries_only(
    tmp_path: Path,
) -> None:
    cache = CacheFolder(tmp_path)
    content = [bytes([number]) * 200_000 for number in range(3)]
    writers = []
    for number in range(3):
        with warnings.catch_warnings():
            # Python 3.12 and later warn that other threads are not in the copy; none is needed.
            warnings.simplefilter("ignore", DeprecationWarning)
            process = os.fork()
        if process == 0:  # pragma: no cover - another process
            while True:
                cache.store("key", content[number])
        writers.append(process)
    seen: set[bytes] = set()
    try:
        ends = time.monotonic() + 20
        while len(seen) < 3 and time.monotonic() < ends:
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                seen.update(found for _, found in cache.entries("key"))
    finally:
        for process in writers:
            os.kill(process, signal.SIGKILL)
            os.waitpid(process, 0)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert {found for _, found in cache.entries("key")} == seen == set(content)
