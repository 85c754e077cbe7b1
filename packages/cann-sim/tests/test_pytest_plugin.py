"""Tests that leave behind a device that has failed or waits forever."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pathlib import Path

CONFTEST = """
import cann_sim
cann_sim.activate()
pytest_plugins = "cann_sim.pytest_plugin"
"""
TESTS = """
import torch, torch_npu

def test_first():
    {body}

def test_second():
    assert torch.ones(2).npu().sum().item() == 2
"""
# Without warnings, as the last line counts them: a torch_npu that has no bytecode yet gives some.
PYTEST = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:warnings"]
FAILS = "torch.ones(2).npu().index_select(0, torch.tensor([9]).npu())"
SEEN = f"""try:
        {FAILS}.cpu()
    except RuntimeError:
        pass"""
CAPTURES = "torch_npu.npu.graph(torch_npu.npu.NPUGraph()).__enter__()"
WAITS = "torch_npu.npu.ExternalEvent().wait(torch_npu.npu.Stream())"

# A copy of memory that is not pinned is refused, by the thread of torch_npu's task queue.
REFUSED = """try:
        with torch_npu.npu.graph(torch_npu.npu.NPUGraph()):
            torch.ones(2).to("npu", non_blocking=True)
    except RuntimeError:
        pass"""
MEETS_AN_EVENT = """

def test_third():
    event = torch_npu.npu.Event()
    event.record()
    event.synchronize()
"""


@pytest.fixture
def run_tests(run_python: Any, tmp_path: Path) -> Any:
    def run(body: str, further_tests: str = "", **variables: str) -> Any:
        (tmp_path / "conftest.py").write_text(CONFTEST)
        (tmp_path / "test_device.py").write_text(TESTS.format(body=body) + further_tests)
        return run_python(
            str(tmp_path),
            program=(sys.executable, *PYTEST),
            environment={"CANN_SIM_DEADLOCK_SECONDS": "0.5", **variables},
            seconds=300,
        )

    return run


def test_device_left_idle_is_no_error(run_tests: Any) -> None:
    done = run_tests("torch.ones(2).npu().add_(1.0)")
    assert "2 passed" in done.output, done.output + done.errors
    assert done.status == 0


def test_failure_left_behind_is_an_error_of_the_test_that_left_it(run_tests: Any) -> None:
    done = run_tests(FAILS)
    assert "2 passed, 1 error" in done.output, done.output + done.errors
    assert re.search(r"ERROR .*test_device.py::test_first", done.output)
    assert "left a failure of the device behind: " in done.output


def test_device_left_waiting_is_an_error_of_the_test_that_left_it(run_tests: Any) -> None:
    done = run_tests(WAITS)
    assert "2 passed, 1 error" in done.output, done.output + done.errors
    assert re.search(r"ERROR .*test_device.py::test_first", done.output)
    assert "deadlock: stream" in done.output


def test_failure_that_the_test_saw_does_not_affect_the_next(run_tests: Any) -> None:
    done = run_tests(SEEN)
    assert "2 passed" in done.output, done.output + done.errors
    assert done.status == 0


def test_device_left_capturing_ends_the_run_and_names_the_test(run_tests: Any) -> None:
    done = run_tests(CAPTURES)
    named = "test_device.py::test_first left a device that no later test can use: "
    assert named in done.output, done.output + done.errors
    assert "1 passed" in done.output
    assert done.status == 1


def test_task_queue_left_dead_ends_the_run_and_names_the_test(run_tests: Any) -> None:
    """torch_npu drops later launches, and its wait for an event never returns."""
    done = run_tests(REFUSED, MEETS_AN_EVENT, TASK_QUEUE_ENABLE="1")
    named = "test_device.py::test_first left torch_npu's task queue dead: "
    assert named in done.output, done.output + done.errors
    assert "1 passed" in done.output
    assert done.status == 1


def test_refusal_without_a_task_queue_does_not_affect_the_next_test(run_tests: Any) -> None:
    done = run_tests(REFUSED, MEETS_AN_EVENT, TASK_QUEUE_ENABLE="0")
    assert "3 passed" in done.output, done.output + done.errors
    assert done.status == 0
