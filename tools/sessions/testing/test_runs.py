"""How sessions run pytest: on simulated CANN, on all cores, from the folder of what is tested."""

from __future__ import annotations

import os
from types import MappingProxyType
from typing import TYPE_CHECKING

from sessions.testing.timer_slack import let_sleeps_end_late
from sessions.workspace import ROOT

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import nox

    from sessions.package import Package

MALLOC_SETTINGS: Mapping[str, str] = MappingProxyType(
    {"MALLOC_MMAP_THRESHOLD_": str(1 << 30), "MALLOC_TRIM_THRESHOLD_": str(1 << 30)}
)
"""What lets malloc keep its memory.

Dynamo fills a large buffer at each compilation, to empty the caches before it times the guards. To
give it back and take it again is a fifth of the CPU time of some tests.
"""

# torch_npu registers itself for loading by `import torch`, which fails without device libraries.
# cann_sim.activate() and `cann-sim run` load the simulated ones; all else imports torch alone.
# Bytecode is written whatever the caller set: without it every start of Python compiles torch
# and torch_npu anew, some 10 seconds, and many tests start one.
ENVIRONMENT: Mapping[str, str] = MappingProxyType(
    {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0", "PYTHONDONTWRITEBYTECODE": "", **MALLOC_SETTINGS}
)
EXAMPLES: Mapping[str, str] = MappingProxyType(
    {**ENVIRONMENT, "PYTHONPATH": str(ROOT / "examples")}
)
"""The environment of what imports the example engine."""


def build_simulator(session: nox.Session, python: str) -> None:
    """Compile the simulator if necessary, with progress, which pytest would not show."""
    session.run(python, "-m", "cann_sim", "build", env=ENVIRONMENT, external=True)


def all_cores() -> list[str]:
    """Return pytest's arguments for all cores."""
    cores = len(os.sched_getaffinity(0))
    return ["-n", str(min(cores, 8)), "--dist", "worksteal"] if cores > 1 else []


def all_tests() -> list[str]:
    """Return pytest's arguments for all tests of a package, on all cores."""
    return ["tests", *all_cores()]


def run_package_tests(
    session: nox.Session,
    python: str,
    package: Package,
    *arguments: str,
    settings: Mapping[str, str] | None = None,
    success_codes: Sequence[int] = (0,),
) -> None:
    """Run tests of one package.

    Args:
        session: The session that runs them.
        python: Of an environment that has the package.
        package: The package; pytest runs in its folder.
        arguments: Of pytest.
        settings: Environment variables; None for those of all sessions.
        success_codes: Exit codes that do not end the session.
    """
    configuration = ["-c", str(ROOT / "pyproject.toml"), "--rootdir", str(package.folder)]
    if "cann-sim" in {package.name, *(each.name for each in package.declared(tests=True).siblings)}:
        build_simulator(session, python)
    let_sleeps_end_late()
    environment = ENVIRONMENT if settings is None else settings
    command = [python, "-m", "pytest", "-q", *configuration, *arguments]
    with session.chdir(package.folder):
        session.run(*command, env=environment, success_codes=success_codes, external=True)


def run_shared_tests(
    session: nox.Session, python: str, *arguments: str, settings: Mapping[str, str] | None = None
) -> None:
    """Run tests of several packages, such as the integration tests, from the root.

    Args:
        session: The session that runs them.
        python: Of an environment that has all packages.
        arguments: Of pytest.
        settings: Environment variables; None for those of all sessions.
    """
    build_simulator(session, python)
    let_sleeps_end_late()
    environment = EXAMPLES if settings is None else settings
    session.run(python, "-m", "pytest", "-q", *arguments, env=environment, external=True)
