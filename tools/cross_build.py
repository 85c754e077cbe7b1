"""Cross-compiles our C++ code for aarch64, and runs the parts that need no Python in emulation.

Run as ``python tools/cross_build.py WHEELS BUILT``, or by ``./nox -s aarch64``. WHEELS contains the
unpacked aarch64 wheels of torch and torch_npu; BUILT receives the results. The machine needs
g++-aarch64-linux-gnu and, to run the simulated runtime in emulation, qemu-user. An emulator on an
x86 host keeps that host's order of memory accesses. It therefore finds missing or wrong code, but
not errors that only aarch64's weaker memory order would reveal.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from importlib.resources import files
from pathlib import Path

from attn_update.issuing.kernels.kernel_signature import render_signatures

ROOT = Path(__file__).parents[1]
COMPILER = "aarch64-linux-gnu-g++"
EMULATOR = "qemu-aarch64"
SYSTEM = "/usr/aarch64-linux-gnu"

# They end within seconds in emulation, and reach every part of the simulated runtime.
SCENARIOS = (
    "streams", "copies", "memory", "events", "external-values", "host-functions", "captures",
    "replays", "task-updates", "fuzzed-schedules", "faults", "collectives",
)  # fmt: skip


def main(wheels: Path, built: Path) -> int:
    """Compile and run; return the exit status."""
    if shutil.which(COMPILER) is None:
        print(
            f"cross_build: looked for {COMPILER}, found none; on Debian and Ubuntu: apt-get "
            "install g++-aarch64-linux-gnu qemu-user",
            file=sys.stderr,
        )
        return 1
    built.mkdir(parents=True, exist_ok=True)
    libraries = _build_simulator(wheels, built)
    _compile_extensions(wheels, built)
    driver = _build_driver(wheels, libraries, built)
    if shutil.which(EMULATOR) is None:
        print(f"compiled and linked; not run: there is no {EMULATOR}")
        return 0
    for scenario in SCENARIOS:
        settings = {"CANN_SIM_DEADLOCK_SECONDS": "5", "CANN_SIM_DEVICES": "2"}
        _run(EMULATOR, "-L", SYSTEM, str(driver), scenario, **settings)
        print(f"{scenario}: ran in emulation")
    return 0


def _build_simulator(wheels: Path, built: Path) -> Path:
    """Build cann-sim's libraries against the aarch64 wheels; return their folder."""
    cache = built / "cache"
    environment = {"PYTHONPATH": str(wheels), "CXX": COMPILER, "CANN_SIM_CACHE": str(cache)}
    _run(sys.executable, "-m", "cann_sim", "build", **environment)
    folder = max((cache / "builds").iterdir(), key=lambda path: path.stat().st_mtime)
    libraries = sorted(folder.rglob("*.so"))
    for library in libraries:
        header = subprocess.run(
            ["readelf", "-h", str(library)], check=True, capture_output=True, text=True
        ).stdout
        if "AArch64" not in header:
            raise SystemExit(f"cross_build: {library} is no library for aarch64:\n{header}")
    print(f"cann-sim: {len(libraries)} libraries compiled and linked for aarch64")
    return folder


def _compile_extensions(wheels: Path, built: Path) -> None:
    """Compile the native parts of packages; a Python for aarch64, to link to, is not here."""
    native = Path(str(files("attn_update.issuing.native")))
    (built / "kernel_signatures.h").write_text(render_signatures(), encoding="utf-8")
    torch = wheels / "torch" / "include"
    python = sysconfig.get_path("include")
    _stand_in_for_python_settings(built)
    includes = [built, native, torch, torch / "torch/csrc/api/include", python]
    _run(
        *(COMPILER, "-std=c++20", "-O2", "-fPIC", "-c", str(native / "launches.cpp")),
        *(f"-I{include}" for include in includes),
        *("-o", str(built / "launches.o")),
    )
    print("attn-update: the native updater compiled for aarch64")
    comparison = Path(str(files("npu_graph_runtime.capturing.native"))) / "input_comparison.c"
    _run(
        *(COMPILER, "-x", "c", "-std=c11", "-O2", "-fPIC", "-c", str(comparison)),
        *(f"-I{include}" for include in includes),
        *("-o", str(built / "input_comparison.o")),
    )
    print("npu-graph-runtime: the comparison of inputs compiled for aarch64")


def _build_driver(wheels: Path, libraries: Path, built: Path) -> Path:
    """Build the C++ scenarios of cann-sim's tests against the libraries."""
    native = ROOT / "packages" / "cann-sim"
    interface = wheels / "torch_npu" / "include"
    runtime = [
        *libraries.glob("external-events-value/libascendcl.so"),
        *libraries.rglob("libhccl.so"),
    ]
    driver = built / "driver"
    _run(
        *(COMPILER, "-std=c++20", "-O1", "-pthread", "-DFUNC_VISIBILITY"),
        f"-I{native / 'src/cann_sim/native/runtime'}",
        *(f"-isystem{path}" for path in (interface, interface / "third_party/acl/inc")),
        *map(str, sorted((native / "tests" / "native").glob("*.cpp"))),
        *map(str, runtime),
        *(f"-Wl,-rpath,{library.parent}" for library in runtime),
        *("-o", str(driver)),
    )
    return driver


def _stand_in_for_python_settings(built: Path) -> None:
    """Make Debian's Python headers use this host's settings where they expect aarch64's.

    Both have 64-bit longs and pointers, and the updater needs nothing else. Other headers contain
    their own settings.
    """
    common = Path(sysconfig.get_config_h_filename())
    own = Path(str(sysconfig.get_config_var("MULTIARCH")), common.parent.name, common.name)
    settings = common.parents[1] / own
    if settings.exists():
        stand_in = built / "aarch64-linux-gnu" / common.parent.name / common.name
        stand_in.parent.mkdir(parents=True, exist_ok=True)
        stand_in.write_text(f'#include "{settings}"\n', encoding="utf-8")


def _run(*command: str, **environment: str) -> None:
    subprocess.run(command, check=True, env={**os.environ, **environment})


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).absolute(), Path(sys.argv[2]).absolute()))
