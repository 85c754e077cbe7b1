"""Checks whether an installation can run a model on an NPU, and says how to fix problems."""

from __future__ import annotations

import dataclasses
import os
import shutil
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

import torch
from packaging.version import Version

from npu_compile.errors import SiblingVersionError
from npu_compile.sibling_versions import check_sibling_versions

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_OLDEST = Version("2.10")
_COMPILERS = ("g++", "c++", "clang++")
_START_SECONDS = 300

# Its own process: torch_npu may abort it.
_START = "import torch, torch_npu; print(torch.npu.device_count())"


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Check:
    """What was found of one thing, whether it is as required, and the remedy if it is not."""

    name: str
    ok: bool
    found: str
    remedy: str = ""

    def __str__(self) -> str:
        line = f"{'ok     ' if self.ok else 'PROBLEM'} {self.name}: {self.found}"
        return line + (f"\n        {self.remedy}" if self.remedy else "")


def check_installation(environment: Mapping[str, str] | None = None) -> list[Check]:
    """Check the packages, the device and the settings; starts torch_npu in a separate process.

    Args:
        environment: variables to check and to start with; by default those of this process.
    """
    variables = dict(os.environ if environment is None else environment)
    return [*_versions(), *_start(variables), *_settings(variables), _compiler(variables)]


def _check(name: str, *, ok: bool, found: str, remedy: str) -> Check:
    return Check(name=name, ok=ok, found=found, remedy="" if ok else remedy)


def _versions() -> Iterator[Check]:
    found = Version(torch.__version__)
    remedy = f"install torch {_OLDEST} or later"
    yield _check("torch", ok=found >= _OLDEST, found=str(found), remedy=remedy)
    try:
        check_sibling_versions()
    except SiblingVersionError as error:
        yield Check(name="packages", ok=False, found=str(error), remedy="install what it names")
    else:
        yield Check(name="packages", ok=True, found="all in the ranges of npu-compile")
    npu = _installed("torch_npu")
    wanted = f"{found.major}.{found.minor}"
    if npu is None:
        remedy = f"pip install 'torch_npu=={wanted}.*'; without it there is the fake device only"
        yield Check(name="torch_npu", ok=False, found="not installed", remedy=remedy)
        return
    yield _check(
        "torch_npu",
        ok=(npu.major, npu.minor) == (found.major, found.minor),
        found=f"{npu} beside torch {found.public}",
        remedy=f"install the torch_npu that was built for torch {wanted}",
    )


def _start(variables: dict[str, str]) -> Iterator[Check]:
    if _installed("torch_npu") is None:
        return
    # Loading it by `import torch` would hide why it does not load.
    process = {**variables, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    command = [sys.executable, "-c", _START]
    try:
        done = subprocess.run(  # noqa: S603 - this interpreter
            command,
            env=process,
            capture_output=True,
            text=True,
            check=False,
            timeout=_START_SECONDS,
        )
    except subprocess.TimeoutExpired:
        yield Check(
            name="device",
            ok=False,
            found=f"torch_npu did not start within {_START_SECONDS} s",
            remedy="see whether another process holds the device: npu-smi info",
        )
        return
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or [f"status {done.returncode}"]
        said = next((line for line in lines if "Error" in line or "uplicated" in line), lines[-1])
        yield Check(name="device", ok=False, found=said.strip()[:300], remedy=_start_remedy(said))
        return
    count = int(done.stdout.split()[-1])
    yield _check(
        "device",
        ok=count > 0,
        found=f"{count} NPU" if count == 1 else f"{count} NPUs",
        remedy="no NPU is visible: see npu-smi info and ASCEND_RT_VISIBLE_DEVICES",
    )


def _start_remedy(said: str) -> str:
    if "uplicated key" in said:
        return (
            "torch is a build for CUDA, beside which torch_npu ends the process: install the CPU "
            "build (pip install torch --index-url https://download.pytorch.org/whl/cpu)"
        )
    if ".so" in said:
        return (
            "CANN's libraries are not found: source its set_env.sh, or, without an NPU, start the "
            "program with `cann-sim run`"
        )
    return "start `python -c 'import torch_npu'` by hand and see what it says"


def _settings(variables: Mapping[str, str]) -> Iterator[Check]:
    # Both are refused by torch_npu's NPUGraph at a capture.
    queue = variables.get("TASK_QUEUE_ENABLE", "1")
    remedy = "set it to 1 or 0: graphs cannot be captured with 2"
    yield _check("TASK_QUEUE_ENABLE", ok=queue != "2", found=queue, remedy=remedy)
    allocator = variables.get("PYTORCH_NPU_ALLOC_CONF", "")
    settings = dict(part.partition(":")[::2] for part in allocator.replace(" ", "").split(","))
    yield _check(
        "PYTORCH_NPU_ALLOC_CONF",
        ok=settings.get("pin_memory_expandable_segments", "").lower() != "true",
        found=allocator or "not set",
        remedy="take pin_memory_expandable_segments out of it: graphs cannot be captured with it",
    )


def _compiler(variables: Mapping[str, str]) -> Check:
    paths = (shutil.which(name, path=variables.get("PATH")) for name in _COMPILERS)
    path = next(filter(None, paths), None)
    remedy = "install g++: without it attention is updated by the slower updater `kernels`"
    return _check("C++ compiler", ok=path is not None, found=path or "none", remedy=remedy)


def _installed(name: str) -> Version | None:
    try:
        return Version(version(name))
    except PackageNotFoundError:
        return None
