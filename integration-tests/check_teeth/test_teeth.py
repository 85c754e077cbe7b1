"""Each probe has a fault, and a device with it gets another verdict."""

from __future__ import annotations

import functools
import os
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import pytest

import cann_sim
from check_teeth.table import TEETH
from npu_graph_check.probes.table import all_probes, find_probe
from npu_graph_check.results.probe_result import ANSWERED, CONFIRMED, OTHERWISE
from npu_graph_check.running.fork_server import ForkServer
from npu_graph_check.running.probe_process import probe_in_process

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from npu_graph_check.results.probe_result import Figure, ProbeResult

_FOLDER = Path(__file__).parents[1]
_SHARE = 8
_PAGE = _FOLDER.parent / "docs" / "check-teeth.md"
# What is measured there has no right value, and the simulator has no profiler.
_NO_CLAIM, _NOT_OVER_THE_SIMULATOR = {"times.stall"}, {"times.kernels"}
_WORDS = """Each probe is *confirmed* by the simulator, or *answered* if it asks an open
question. `./nox -s check_teeth` runs it again with each of its faults, injected between the probe
and the simulator, and expects the verdict in the last column. `-- --write-teeth` writes this
page."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "fault" not in metafunc.fixturenames:
        return
    pairs = [(probe, number) for probe, faults in TEETH.items() for number in range(len(faults))]
    if not metafunc.config.getoption("--every-fault"):
        pairs = Random(0).sample(pairs, min(_SHARE, len(pairs)))
    ids = [f"{probe}-{number}" for probe, number in pairs]
    metafunc.parametrize(("probe", "fault"), pairs, ids=ids)


def test_every_probe_has_a_fault() -> None:
    without = {probe.id for probe in all_probes() if not TEETH.get(probe.id) and not probe.risk}
    assert without == {*_NO_CLAIM, *_NOT_OVER_THE_SIMULATOR}


def test_every_fault_has_a_probe() -> None:
    assert TEETH.keys() <= {probe.id for probe in all_probes()}


def test_page_of_faults_is_in_step(pytestconfig: pytest.Config) -> None:
    lines = ["# Faults that change a verdict of npu-graph-check", "", _WORDS, ""]
    lines += ["| probe | a device on which | verdict |", "|---|---|---|"]
    for probe, faults in TEETH.items():
        changed = "another answer" if find_probe(probe).group == "questions" else "otherwise"
        lines += [f"| `{probe}` | {fault.what} | {changed} |" for fault in faults]
    text = "\n".join(lines) + "\n"
    if pytestconfig.getoption("--write-teeth"):
        _PAGE.write_text(text, encoding="utf-8")

    assert _PAGE.read_text(encoding="utf-8") == text


@pytest.fixture(scope="module")
def server() -> Iterator[ForkServer]:
    """Start the processes of probes over the simulated device, which finds the faults too."""
    environment = dict(os.environ)
    # The tests run with the check of memory on, which is no setting of a device.
    environment.pop("CANN_SIM_MEMORY_CHECK", None)
    paths = [str(_FOLDER), environment.get("PYTHONPATH", "")]
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    with ForkServer(cann_sim.launch_environment(environment)) as server:
        yield server


@pytest.fixture(scope="module")
def without_fault(server: ForkServer) -> Callable[[str], ProbeResult]:
    """Run a probe over the simulated device as it is, once."""
    return functools.cache(lambda name: probe_in_process(find_probe(name), "npu", server))


def test_fault_changes_the_verdict(
    server: ForkServer, without_fault: Callable[[str], ProbeResult], probe: str, fault: int
) -> None:
    wanted = without_fault(probe)
    assert wanted.verdict == (ANSWERED if wanted.group == "questions" else CONFIRMED), wanted

    start = functools.partial(
        server,
        module="check_teeth.faulty_child",
        variables={"CHECK_FAULT": str(fault), **TEETH[probe][fault].environment},
    )
    found = probe_in_process(find_probe(probe), "npu", start)

    if wanted.verdict == CONFIRMED:
        assert found.verdict == OTHERWISE, found
    else:
        assert answers(found) != answers(wanted)


def answers(result: ProbeResult) -> list[Figure]:
    """Return the answers, without the measurements."""
    return [figure for figure in result.figures if not figure.unit]
