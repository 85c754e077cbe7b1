"""Operators whose library is compiled while the program that calls them already runs."""

from __future__ import annotations

import ctypes
import fcntl
import shutil
import subprocess
import time
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

import cann_sim
from cann_sim.building.native_build import build_for_start
from cann_sim.inventory.simulated_operators import simulated_atb_operations, simulated_operators

if TYPE_CHECKING:
    from collections.abc import Callable

ABSENT: Final = ("layers", "attention", "training", "atb")

START: Final = """
import sys, time
import cann_sim.building.native_build as native_build
import cann_sim.activation as activation
{before}
activation.activate()
import torch, torch_npu
torch_npu.npu.set_compile_mode(jit_compile=False)
value = torch.ones(2, 2).npu()
print("sum", (value + 1).sum().item(), flush=True)
begin = time.monotonic()
try:
    print("product", (value @ value).sum().item(), flush=True)
except RuntimeError as error:
    print("refused", error, flush=True)
print("waited", time.monotonic() - begin, flush=True)
"""
NO_BUILDER: Final = "native_build._build_behind = lambda log: None"


@pytest.fixture(name="cache")
def _cache(tmp_path: Path) -> Path:
    """Return a cache in which the libraries of most operators are compiled and not yet linked."""
    built = cann_sim.build()
    copy = tmp_path / "cache" / "builds" / built.folder.name
    shutil.copytree(built.folder, copy)
    for name in ABSENT:
        (copy / "common" / f"libcann_sim_{name}.so").unlink()
    objects = tmp_path / "cache" / "objects"
    objects.mkdir()
    for file in (built.folder.parents[1] / "objects").glob("*.o"):
        (objects / file.name).symlink_to(file)
    return tmp_path / "cache"


def library(cache: Path, name: str = "layers") -> Path:
    (build,) = (cache / "builds").iterdir()
    return build / "common" / f"libcann_sim_{name}.so"


def until(reached: Callable[[], bool]) -> None:
    end = time.monotonic() + 900
    while not reached():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_start_leaves_a_process_that_builds_the_rest(
    cache: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CANN_SIM_CACHE", str(cache))
    built = build_for_start()
    assert all(path.exists() for path in built.library_paths("value"))
    assert "compiling the operators behind the program" in capfd.readouterr().err
    until(lambda: all(path.exists() for path in built.deferred_paths))
    assert build_for_start().folder == built.folder
    assert capfd.readouterr().err == ""


def test_operator_whose_library_is_being_built_waits_for_it(cache: Path, run_forked: Any) -> None:
    """Another process holds the lock of the build; it ends a while after the operator is called."""
    (build,) = (cache / "builds").iterdir()
    with (cache / f"{build.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        holder = subprocess.Popen(["sleep", "3"], pass_fds=[lock.fileno()])
    done = run_forked(START.format(before=""), environment={"CANN_SIM_CACHE": str(cache)})
    holder.wait()
    assert "sum 8.0" in done.output, done.errors
    assert "product 8.0" in done.output, done.errors
    assert library(cache).exists()


def test_operator_whose_build_was_killed_builds_it(cache: Path, run_forked: Any) -> None:
    done = run_forked(START.format(before=NO_BUILDER), environment={"CANN_SIM_CACHE": str(cache)})
    assert "product 8.0" in done.output, done.errors
    assert library(cache, "atb").exists()


def test_operator_whose_library_cannot_be_built_says_how_to_see_why(
    cache: Path, run_forked: Any
) -> None:
    before = f"{NO_BUILDER}\nsys.executable = {shutil.which('false')!r}"
    done = run_forked(START.format(before=before), environment={"CANN_SIM_CACHE": str(cache)})
    assert "sum 8.0" in done.output, done.errors
    (line,) = [text for text in done.output.splitlines() if "expected that" in text]
    assert "aclnn" in line
    assert "libcann_sim_layers.so can be compiled" in line
    assert "-m cann_sim build' did not make it; run that command for its reason" in line


def test_every_simulated_operator_is_offered(npu: Any) -> None:
    """Whoever looks a function up in the first libraries finds one that leads to it."""
    built = cann_sim.build()
    first = {path.name: ctypes.CDLL(str(path)) for path in built.library_paths("value")}
    *operators, operations = built.deferred_paths
    names = set(simulated_operators(operators))
    assert {"aclnnAdd", "aclnnFusedInferAttentionScoreV3"} <= names
    assert [name for name in sorted(names) if not hasattr(first["libopapi.so"], name)] == []
    functions = [name for name in simulated_atb_operations(operations) if name.startswith("Atb")]
    assert [name for name in functions if not hasattr(first["libatb.so"], name)] == []


def test_everything_that_torch_npu_links_to_is_offered() -> None:
    spec = find_spec("torch_npu")
    assert spec is not None
    assert spec.origin is not None
    library = Path(spec.origin).parent / "lib" / "libop_plugin_atb.so"
    linked = subprocess.run(
        ["nm", "-D", "--undefined-only", str(library)], check=True, capture_output=True, text=True
    ).stdout
    wanted = [name for name in linked.split() if name.startswith(("_ZN3atb", "_ZNK3atb"))]
    assert len(wanted) >= 10
    path = next(p for p in cann_sim.build().library_paths("value") if p.name == "libatb.so")
    offered = ctypes.CDLL(str(path))
    assert [name for name in wanted if not hasattr(offered, name)] == []
