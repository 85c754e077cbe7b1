"""The comparison of inputs in C: built once, absent without a word where it cannot be built."""

from __future__ import annotations

import gc
import subprocess
import sys
import weakref
from typing import TYPE_CHECKING, Any

import pytest
import torch

from npu_graph_runtime import CaptureSession, FakeDevice, GraphContext
from npu_graph_runtime.capturing.native import native_comparison
from npu_graph_runtime.capturing.native.native_comparison import find_native_comparison
from npu_graph_runtime.capturing.plain_values import is_plain

if TYPE_CHECKING:
    from pathlib import Path


class Mask(torch.Tensor):
    """A tensor of a type of its own."""


class Other:
    """A value that a graph does not compare."""


def make_compiler(folder: Path, script: str) -> None:
    program = folder / "cc"
    program.write_text(f"#!/bin/sh\necho run >> '{folder}/log'\n{script}\n")
    program.chmod(0o755)


def test_comparison_is_built_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_compiler(tmp_path, 'PATH=/usr/bin:/bin:/usr/local/bin exec gcc "$@"')
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    for _ in range(2):
        assert find_native_comparison(tmp_path / "built") is not None
    assert (tmp_path / "log").read_text() == "run\n"
    assert len(list((tmp_path / "built").iterdir())) == 1


def test_comparison_whose_file_was_truncated_is_built_again(tmp_path: Path) -> None:
    """In a process of its own: loading the truncated file would end it by SIGBUS."""
    assert find_native_comparison(tmp_path) is not None
    (built,) = tmp_path.glob("*/*")
    size = built.stat().st_size
    # A new file, since this process uses the old one.
    content = built.read_bytes()
    built.unlink()
    built.write_bytes(content[: size // 4])
    program = f"""
from pathlib import Path
from npu_graph_runtime.capturing.native.native_comparison import find_native_comparison
assert find_native_comparison(Path({str(tmp_path)!r})) is not None
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    (built,) = tmp_path.glob("*/*")
    assert built.stat().st_size == size


@pytest.mark.parametrize(
    "script", ["exit 1", "exit 0", 'while [ "$1" != "-o" ]; do shift; done; echo > "$2"']
)
def test_compiler_that_fails_leaves_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str
) -> None:
    make_compiler(tmp_path, script)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    assert find_native_comparison(tmp_path / "built") is None


def test_without_compiler_or_folder_python_compares(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    assert find_native_comparison(tmp_path / "file") is None
    with monkeypatch.context() as context:
        context.setattr(native_comparison, "tensor_offset", lambda: None)
        assert find_native_comparison(tmp_path / "built") is None
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_native_comparison(tmp_path / "built") is None


def test_session_compares_in_c() -> None:
    with CaptureSession(FakeDevice(), GraphContext()) as session:
        assert session.native_comparison is session.native_comparison is not None


def test_values_of_any_type_are_distinguished() -> None:
    native = find_native_comparison()
    assert native is not None
    x, weight = torch.zeros(4), torch.nn.Parameter(torch.zeros(4))
    values: tuple[Any, ...] = (x, weight, 1, None, Other(), float("nan"))
    holds = native.holds(values, is_plain)
    assert holds is not None
    assert holds(values)
    assert holds((x[:], weight, 1, None, Other(), values[5]))
    others = [Other(), Other(), True, 0, x, 0.5]
    for index, other in enumerate(others):
        assert not holds((*values[:index], other, *values[index + 1 :]))
    assert not holds(values[:-1])
    assert not holds((*values, 1))
    with pytest.raises(TypeError, match="expected a tuple"):
        holds(list(values))  # type: ignore[arg-type]
    assert native.holds((x.as_subclass(Mask),), is_plain) is None
    assert native.holds((torch.eye(2).to_sparse(),), is_plain) is None


def test_comparison_that_raises_falls_back_to_the_full_comparison() -> None:
    class Bad(int):
        def __eq__(self, other: object) -> bool:
            raise LookupError

        __hash__ = int.__hash__

    native = find_native_comparison()
    assert native is not None
    holds = native.holds((Bad(1),), is_plain)
    assert holds is not None
    assert not holds((Bad(1),))


def test_comparison_keeps_no_tensor_and_releases_what_it_kept() -> None:
    class Kept(str):
        __slots__ = ("__weakref__",)

    native = find_native_comparison()
    assert native is not None
    x, text = torch.zeros(4), Kept("silu")
    holds = native.holds((x, text), is_plain)
    assert holds is not None
    references = weakref.ref(x), weakref.ref(text)
    del x, text
    assert [reference() is None for reference in references] == [True, False]
    del holds
    gc.collect()
    assert references[1]() is None
