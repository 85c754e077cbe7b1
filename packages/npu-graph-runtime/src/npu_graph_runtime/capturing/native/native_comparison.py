"""Compiles `input_comparison.c` once per machine and Python version, and loads it.

Reading a tensor's address from Python takes some 70 ns, and its layout as long again, so comparing
the inputs of a piece would cost more than its replay. The file is small and does not include torch:
compiling it takes a third of a second. The result is stored in a cache folder under a key of
everything it depends on, and is moved into place when it is complete, so several processes may
build at once. Its name contains the digest of its content, so that a file truncated later is built
again; loading it would end the process.
"""

from __future__ import annotations

import hashlib
import importlib.util
import platform
import shutil
import subprocess
import sysconfig
import tempfile
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import torch

from npu_graph_runtime.torch_internals import tensor_offset

if TYPE_CHECKING:
    import weakref
    from collections.abc import Callable, Sequence

Holds: TypeAlias = "Callable[[tuple[object, ...] | None], bool]"
"""Returns whether values are those of the capture; false asks for a closer look.

``None`` lets the next of the tensors that are compared in turn have its turn."""

_MODULE_NAME = "input_comparison"
_COMPILERS = ("cc", "gcc", "clang", "c++", "g++")
_FLAGS = ("-x", "c", "-std=c11", "-O2", "-fPIC", "-shared", "-fvisibility=hidden", "-fno-plt")
_TIME_LIMIT_SECONDS = 120


class NativeComparison:
    """Compares the inputs of replays in C. Created by :func:`find_native_comparison`.

    Raises:
        ImportError: The module cannot be loaded.
    """

    def __init__(self, path: Path, offset: int) -> None:
        spec = importlib.util.spec_from_file_location(_MODULE_NAME, path)
        if spec is None or spec.loader is None:
            raise ImportError(f"loading {path}: expected an extension module")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        self._compare: Callable[..., Holds] = module.compare
        self._offset = offset

    def holds(
        self,
        values: Sequence[object] | None,
        is_plain: Callable[[object], bool],
        in_turn: Sequence[tuple[weakref.ref[torch.Tensor], int]] = (),
    ) -> Holds | None:
        """Return a function that compares other values with these, or ``None`` if there is none.

        Compares address, shape, strides, dtype and type of tensors, type and value of plain values,
        and the type of anything else. Keeps no tensor.

        Args:
            values: device tensors or CPU tensors, plain values, others; ``None`` compares no
                values.
            is_plain: decides which are compared by value.
            in_turn: tensors and their addresses, one of which is compared each time.
        """
        kinds = bytearray()
        for value in values or ():
            if isinstance(value, torch.Tensor) and (value.is_complex() or value.is_neg()):
                return None  # has bits that C cannot ask for
            if type(value) in (torch.Tensor, torch.nn.Parameter):
                kinds += b"t"
            elif isinstance(value, torch.Tensor):
                return None  # may have sizes of its own making
            else:
                kinds += b"v" if is_plain(value) else b"-"
        try:
            return self._compare(
                self._offset,
                None if values is None else tuple(values),
                bytes(kinds),
                tuple(tensor for tensor, _ in in_turn),
                tuple(address for _, address in in_turn),
            )
        except ValueError:
            return None


def find_native_comparison(folder: Path | None = None) -> NativeComparison | None:
    """Return the comparison in C, built if necessary, or ``None``.

    There is none without a C compiler or Python's headers, if the folder cannot be written, or if
    this torch has another memory layout. Callers then compare in Python, which is slower.

    Args:
        folder: folder of built files; by default ``~/.cache/npu-graph-runtime``.
    """
    offset = tensor_offset()
    compiler = next(filter(None, map(shutil.which, _COMPILERS)), None)
    if offset is None or compiler is None:
        return None
    try:
        folder = folder or Path.home() / ".cache" / "npu-graph-runtime"
        return NativeComparison(_built(folder, compiler), offset)
    except (OSError, RuntimeError, ImportError, subprocess.SubprocessError):
        return None


def _built(folder: Path, compiler: str) -> Path:
    """Return the built module.

    Raises:
        OSError: The folder cannot be written.
        RuntimeError: There is no home folder.
        SubprocessError: The compiler failed.
    """
    source = (files(__package__) / f"{_MODULE_NAME}.c").read_bytes()
    suffix = str(sysconfig.get_config_var("EXT_SUFFIX"))
    command = [compiler, *_FLAGS]
    parts = (source, *(part.encode() for part in (suffix, platform.machine(), *command)))
    target = folder / hashlib.sha256(b"\0".join(parts)).hexdigest()[:32]
    for file in sorted(target.glob(f"{_MODULE_NAME}-*{suffix}")):
        if file.name == _whole_name(file, suffix):
            return file
        file.unlink(missing_ok=True)
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="partial-", dir=folder) as name:
        partial = Path(name)
        built = partial / (_MODULE_NAME + suffix)
        (partial / f"{_MODULE_NAME}.c").write_bytes(source)
        subprocess.run(  # noqa: S603 - the caller's own compiler
            [
                *command,
                f"-I{sysconfig.get_path('include')}",
                str(partial / f"{_MODULE_NAME}.c"),
                f"-L{Path(torch.__file__).parent / 'lib'}",
                "-ltorch_cpu",
                *("-o", str(built)),
            ],
            check=True,
            capture_output=True,
            timeout=_TIME_LIMIT_SECONDS,
        )
        # A process that ignores SIGCHLD learns of no failure; then there is no file.
        return built.replace(target / _whole_name(built, suffix))


def _whole_name(file: Path, suffix: str) -> str:
    """Return the name that a complete built file must have."""
    return f"{_MODULE_NAME}-{hashlib.sha256(file.read_bytes()).hexdigest()[:32]}{suffix}"
