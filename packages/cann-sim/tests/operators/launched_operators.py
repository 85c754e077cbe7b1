"""Every simulated operator needs a test: checked after the tests, over all their processes.

A test could not check this, because with pytest-xdist it sees only the launches of its own process.
Each process reports its launches; the process that has them all adds a report, like a test's.
"""

from __future__ import annotations

import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import cann_sim
from cann_sim.inventory.simulated_operators import simulated_compiled_operators, simulated_operators
from operators.described_call import Interface

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable

FOLDER = Path(__file__).parent
SEEN = pytest.StashKey[list["Launches"]]()
# Launched in a process of its own.
LAUNCHED_ELSEWHERE = {"MatMul"}


@dataclass(frozen=True, kw_only=True)
class Launches:
    """The launches of one process: lists, because they are sent between processes.

    Attributes:
        files: Names of the selected test files of this folder, the same in all processes.
        launched: Operators that the process has launched.
        simulated: Operators that exist.
        compiled: Operators of the older interface that exist.
    """

    files: list[str]
    launched: list[str]
    simulated: list[str]
    compiled: list[str]


def of_this_process(session: pytest.Session) -> Launches:
    """Return the launches of this process, which has run tests on the device."""
    sys.modules["torch_npu"].npu.synchronize()
    libraries = Interface().operator_libraries
    counted = cann_sim.counters().launches_by_operator
    return Launches(
        files=sorted({item.path.name for item in session.items if item.path.parent == FOLDER}),
        launched=sorted(name for name, count in counted.items() if count),
        simulated=list(simulated_operators(libraries)),
        compiled=list(simulated_compiled_operators(libraries)),
    )


def not_launched(seen: Iterable[Launches]) -> dict[str, list[str]]:
    """Return operators that no process has launched, by check; a check needs all its files."""
    processes = list(seen)
    launched = {name for process in processes for name in process.launched}
    files = {path.name for path in FOLDER.glob("test_*.py")}
    compiled_files = {path.name for path in FOLDER.glob("test_compiled_*.py")}
    checks: dict[str, list[str]] = {}
    for process in processes[:1]:
        if files <= set(process.files):
            checks["every_simulated_operator_is_launched"] = [
                name for name in process.simulated if name not in launched
            ]
        if compiled_files <= set(process.files):
            left = set(process.compiled) - launched - LAUNCHED_ELSEWHERE
            checks["every_compiled_operator_is_launched"] = sorted(left)
    return checks


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    """Store the report of a process of pytest-xdist."""
    del error
    said = getattr(node, "workeroutput", {}).get("launches")
    if said is not None:
        node.config.stash.setdefault(SEEN, []).append(Launches(**said))


@pytest.hookimpl(wrapper=True)
def pytest_runtestloop(session: pytest.Session) -> Generator[None, object, object]:
    """Send the launches to the process that started this one, or add reports."""
    result = yield
    config = session.config
    if config.option.collectonly or config.option.keyword:
        return result
    seen = config.stash.get(SEEN, [])
    torch_npu = sys.modules.get("torch_npu")
    if not seen and torch_npu is not None and torch_npu.npu.is_initialized():
        seen = [of_this_process(session)]
    if hasattr(config, "workeroutput"):
        for launches in seen:
            config.workeroutput["launches"] = asdict(launches)
        return result
    for check, missing in not_launched(seen).items():
        report = pytest.TestReport(
            nodeid=f"tests/operators/{Path(__file__).name}::{check}",
            location=(str(Path(__file__).name), None, check),
            keywords={},
            outcome="failed" if missing else "passed",
            longrepr=f"no test launches {', '.join(missing)}: add a row to cases/"
            if missing
            else None,
            when="call",
        )
        config.hook.pytest_runtest_logreport(report=report)
    return result
