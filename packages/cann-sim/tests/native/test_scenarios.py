"""Runtime and collectives without torch, driven from C++ by several host threads.

The gate runs every scenario once on the normal libraries. `--sanitizers=address,thread` recompiles
their sources and those of the driver with each sanitizer, and fails on its reports; this is
`nox -s sanitizers`.
"""

from __future__ import annotations

import os
import subprocess
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from cann_sim import build
from cann_sim.building.compiler import find_compiler
from cann_sim.building.native_library import NATIVE, native_libraries
from cann_sim.inventory.installation import find_installation

HCCL = "libhccl.so"
SOURCES = sorted(Path(__file__).parent.glob("*.cpp"))
FLAGS = {
    "none": [],
    "address": ["-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"],
    "thread": ["-fsanitize=thread"],
}
SCENARIOS = [
    "streams",
    "copies",
    "memory",
    "virtual-memory",
    "events",
    "external-values",
    "external-events",
    "host-functions",
    "counters",
    "captures",
    "replays",
    "destruction",
    "task-updates",
    "fuzzed-schedules",
    "faults",
    "stop",
    "collectives",
    "deadlock",
    "slow-workers",
    "exit",
]
PLANTED = {
    "planted-race": ("thread", "ThreadSanitizer: data race"),
    "planted-overflow": ("address", "AddressSanitizer: heap-buffer-overflow"),
    "planted-use-after-free": ("address", "AddressSanitizer: heap-use-after-free"),
}


@dataclass(frozen=True, kw_only=True)
class Driver:
    """The compiled driver and the sanitizer that it was compiled with."""

    program: Path
    sanitizer: str

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        environment = {
            **os.environ,
            "CANN_SIM_DEADLOCK_SECONDS": "0.5",
            "CANN_SIM_DEVICES": "2",
            # Kernels that have not run when the process ends are dropped with all they own.
            "ASAN_OPTIONS": "detect_leaks=1",
            "TSAN_OPTIONS": "second_deadlock_stack=1",
        }
        return subprocess.run(
            [str(self.program), *arguments],
            capture_output=True,
            text=True,
            env=environment,
            timeout=900,
            check=False,
        )


def compile_driver(folder: Path, sanitizer: str) -> Path:
    """Compile and link the driver; without a sanitizer against the libraries that exist."""
    compiler = find_compiler()
    libraries = native_libraries(find_installation())
    runtime, collectives = libraries[0], next(each for each in libraries if each.name == HCCL)
    # Those of the collectives contain those of the runtime.
    flags = [*collectives.compile_flags, "-g", "-fno-omit-frame-pointer", *FLAGS[sanitizer]]
    flags.append(f"-I{NATIVE / 'runtime'}")
    tested = [] if sanitizer == "none" else [*runtime.sources, *collectives.sources]
    sources = [*tested, *SOURCES]
    objects = [folder / f"{number}-{source.stem}.o" for number, source in enumerate(sources)]

    def compile_one(source: Path, target: Path) -> None:
        arguments = [*flags, "-c", str(source), "-o", str(target)]
        compiler.run(arguments, f"compiling {source.name} for sanitizer {sanitizer}")

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(compile_one, sources, objects))
    linked = ["-pthread", *FLAGS[sanitizer]]
    if sanitizer == "none":
        for library in build().library_paths("value"):
            if library.name in (runtime.name, HCCL):
                linked += [str(library), f"-Wl,-rpath,{library.parent}"]
    program = folder / "driver"
    compiler.run([*map(str, objects), *linked, "-o", str(program)], "linking the driver")
    return program


@pytest.fixture(scope="module")
def driver(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Driver:
    sanitizer = request.param
    folder = tmp_path_factory.mktemp(f"driver-{sanitizer}")
    return Driver(program=compile_driver(folder, sanitizer), sanitizer=sanitizer)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "driver" in metafunc.fixturenames:
        chosen = metafunc.config.getoption("--sanitizers").split(",")
        metafunc.parametrize("driver", chosen, indirect=True, scope="module")


def test_driver_lists_the_scenarios_that_are_tested(driver: Driver) -> None:
    listed = driver.run().stdout.split()
    assert listed == [*SCENARIOS, *PLANTED]


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_scenario_ends_well_and_nothing_is_reported(driver: Driver, scenario: str) -> None:
    done = driver.run(scenario)
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")


@pytest.mark.parametrize("scenario", PLANTED)
def test_planted_fault_is_reported_by_its_sanitizer(driver: Driver, scenario: str) -> None:
    sanitizer, report = PLANTED[scenario]
    if driver.sanitizer != sanitizer:
        pytest.skip(f"a fault for the sanitizer {sanitizer}")
    done = driver.run(scenario)
    assert done.returncode != 0
    assert report in done.stderr
