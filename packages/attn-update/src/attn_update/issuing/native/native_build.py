"""Builds the native updater, once for each source, torch, Python and compiler.

The result is stored in a cache folder under a key of everything it depends on. The location of
torch is not part of the key, so environments with the same versions share it. It is moved into
place when it is complete, so several processes may build at once. Its name contains the digest of
its content: loading a file that was truncated later, by a full disk or an interrupted copy, would
end the process, so such a file is recognised by its name, removed and built again.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import shutil
import signal
import subprocess
import sysconfig
import tempfile
import time
from importlib.resources import files
from pathlib import Path

import torch

from attn_update.errors import NativeUnavailableError
from attn_update.issuing.kernels.kernel_signature import render_signatures

MODULE_NAME = "attn_update_native"
_COMPILERS = ("g++", "c++", "clang++")
_FLAGS = ("-std=c++20", "-O2", "-fPIC", "-shared", "-fvisibility=hidden")
_LIBRARIES = ("-ltorch_cpu", "-ltorch_python", "-lc10")
_TIME_LIMIT_SECONDS = 600
_PARTIAL = "partial-"


def default_folder() -> Path:
    """Return the default folder of built files.

    Raises:
        NativeUnavailableError: The user has no home folder.
    """
    try:
        return Path.home() / ".cache" / "attn-update"
    except RuntimeError as error:
        raise NativeUnavailableError(
            f"building the native updater: {error}; set HOME, or give a folder",
        ) from error


def build_native(folder: Path, compiler: str | None = None) -> Path:
    """Return the built extension module; build it if it is missing or damaged.

    Also removes remains of interrupted builds from the folder.

    Args:
        folder: Folder of the built files. It is created if necessary, and may be shared between
            processes and versions.
        compiler: A program with the command line of g++; by default the first of g++,
            c++ and clang++ on the path.

    Raises:
        NativeUnavailableError: There is no compiler, or no header of Python or torch, the folder
            cannot be written, the compiler failed, or the process ignores SIGCHLD; the
            message says which.
    """
    program = _find_compiler(compiler)
    native = files("attn_update.issuing.native")
    sources = {
        file.name: file.read_text(encoding="utf-8")
        for file in sorted(native.iterdir(), key=lambda f: f.name)
        if file.name.endswith((".h", ".cpp"))
    }
    command = _command(program, Path(torch.__file__).parent)
    suffix = str(sysconfig.get_config_var("EXT_SUFFIX"))
    sources["kernel_signatures.h"] = render_signatures()
    versions = (str(torch.__version__), platform.machine(), suffix)
    parts = (*sources, *sources.values(), *versions, *_command(program, Path("torch")))
    key = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]
    try:
        _remove_abandoned(folder)
        built = _find_whole(folder / key, suffix)
        if built is None:
            (folder / key).mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(prefix=_PARTIAL, dir=folder) as name:
                partial = Path(name) / f"{MODULE_NAME}{suffix}"
                _compile(command, sources, partial)
                built = partial.replace(folder / key / _whole_name(partial, suffix))
    except OSError as error:
        raise NativeUnavailableError(
            f"building the native updater in {folder}: {error}; give another folder",
        ) from error
    return built


def _whole_name(file: Path, suffix: str) -> str:
    """Return the name that a complete built file must have in the folder."""
    digest = hashlib.sha256(file.read_bytes()).hexdigest()[:32]
    return f"{MODULE_NAME}-{digest}{suffix}"


def _find_whole(folder: Path, suffix: str) -> Path | None:
    """Return the built file of a folder, and remove damaged ones."""
    for file in sorted(folder.glob(f"{MODULE_NAME}-*{suffix}")):
        if file.name == _whole_name(file, suffix):
            return file
        file.unlink(missing_ok=True)
    return None


def _remove_abandoned(folder: Path) -> None:
    """Remove folders of builds that did not clean up; no build takes longer than its limit."""
    for partial in folder.glob(f"{_PARTIAL}*"):
        with contextlib.suppress(OSError):
            if time.time() - partial.stat().st_mtime > 2 * _TIME_LIMIT_SECONDS:
                shutil.rmtree(partial)


def _find_compiler(compiler: str | None) -> str:
    names = _COMPILERS if compiler is None else (compiler,)
    for name in names:
        program = shutil.which(name)
        if program is not None:
            return program
    raise NativeUnavailableError(
        f"building the native updater: expected a C++ compiler on the path ({', '.join(names)}), "
        f"found none; install one (Debian and Ubuntu: apt-get install g++)",
    )


def _command(program: str, torch_folder: Path) -> list[str]:
    includes = [
        torch_folder / "include",
        torch_folder / "include" / "torch" / "csrc" / "api" / "include",
        Path(sysconfig.get_path("include")),
    ]
    return [
        program,
        *_FLAGS,
        f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}",
        *(f"-I{include}" for include in includes),
        f"-L{torch_folder / 'lib'}",
    ]


def _compile(command: list[str], sources: dict[str, str], target: Path) -> None:
    if signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN:
        # The kernel then forgets how children end, and Python takes that for success.
        raise NativeUnavailableError(
            "building the native updater: this process ignores SIGCHLD, perhaps because its parent "
            "does, so it cannot learn whether a compiler failed; call signal.signal("
            "signal.SIGCHLD, signal.SIG_DFL) before, or build it in another process once",
        )
    for name, source in sources.items():
        target.with_name(name).write_text(source, encoding="utf-8")
    full = [
        *command,
        os.fspath(target.with_name("launches.cpp")),
        "-o",
        os.fspath(target),
        *_LIBRARIES,
    ]
    try:
        done = subprocess.run(  # noqa: S603 - the caller's own compiler
            full, capture_output=True, text=True, check=False, timeout=_TIME_LIMIT_SECONDS
        )
    except subprocess.TimeoutExpired as error:
        raise NativeUnavailableError(
            f"building the native updater: {command[0]} took more than {_TIME_LIMIT_SECONDS} s",
        ) from error
    if done.returncode != 0:
        raise NativeUnavailableError(
            f"building the native updater: {command[0]} ended with status {done.returncode}. "
            f"Command: {' '.join(full)}\n{done.stdout}{done.stderr}",
        )
