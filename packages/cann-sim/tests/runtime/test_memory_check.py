"""Each classic memory error: found and named with the check, and its effect without it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

PROGRAM = Path(__file__).with_name("memory_mistakes.py")
SCHEDULES = 10
Outcomes = Callable[..., tuple[dict[str, int], str]]

MISTAKES = {
    "streams_without_an_event": r"aclnnMuls on stream \d+: nothing orders its read of 'self' "
    r"\(float32 \[64\]\) behind aclnnAdd on stream \d+, which writes 'out' \(float32 \[64\]\)"
    r".*wait for an event that is recorded behind aclnnAdd"
    r"|aclnnAdd on stream \d+: nothing orders its write of 'out' \(float32 \[64\]\) behind "
    r"aclnnMuls on stream \d+, which reads 'self'",
    "given_on_without_record_stream": r"aclnnInplaceZero on stream \d+: nothing orders its write "
    r"of 'selfRef' \(float32 \[65536\]\) behind aclnnMuls on stream \d+, which reads 'self' "
    r"\(float32 \[65536\]\).*record_stream"
    r"|aclnnMuls on stream \d+: nothing orders its read of 'self' \(float32 \[65536\]\) behind "
    r"aclnnInplaceZero",
    "pool_reused_while_its_output_is_read": r"aclnnMuls \(in a graph\) on stream \d+: nothing "
    r"orders its write of 'out' \(float32 \[64\]\) behind aclnnAdds on stream \d+, which reads "
    r"'self'"
    r"|aclnnAdds on stream \d+: nothing orders its read of 'self' \(float32 \[64\]\) behind "
    r"aclnnMuls \(in a graph\)",
    "input_of_a_graph_freed": r"aclnnMuls \(in a graph\): the memory of 'self' \(float32 \[64\]\) "
    r"was freed after it was captured. Keep the tensor for as long as the graph is replayed",
    "freed_before_the_kernel_has_ended": r"aclrtFree: memory was freed of which the host does not "
    r"know that aclrtMemsetAsync on stream \d+, which uses it as 'destination' \(512 bytes\), has "
    r"ended|aclrtMemsetAsync: the memory of 'destination' \(512 bytes\) was freed before",
    "outside_its_allocation": r"aclrtMemsetAsync: 'destination' \(520 bytes\) is 520 bytes from "
    r"0x[0-9a-f]+, which reach outside the allocation",
    "bytes_behind_overwritten": r"aclrtFree: 4 bytes behind an allocation of 512 bytes were "
    r"overwritten",
    "host_copy_that_does_not_wait": r"aclrtMemcpy on the host: nothing orders its read of 'source' "
    r"\(256 bytes\) behind aclnnAdd on stream \d+, which writes 'out' \(float32 \[64\]\)",
}


@pytest.fixture(scope="module")
def outcomes(run_forked: Any) -> Outcomes:
    """Return a function that says how the schedules of a scenario ended, and one error."""
    ended: dict[str, dict[str, tuple[dict[str, int], str]]] = {}

    def outcome(scenario: str, *, check: str) -> tuple[dict[str, int], str]:
        if check not in ended:
            source = (
                f"import runpy, sys\nsys.argv = ['', '{SCHEDULES}']\n"
                f"runpy.run_path({str(PROGRAM)!r}, run_name='__main__')"
            )
            done = run_forked(source, environment={"CANN_SIM_MEMORY_CHECK": check})
            assert done.status == 0, done.errors[-2000:]
            ended[check] = json.loads(done.output.splitlines()[-1])
        found, error = ended[check][scenario]
        return found, error

    return outcome


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistake_is_named_under_every_schedule(outcomes: Outcomes, mistake: str) -> None:
    found, error = outcomes(mistake, check="on")
    assert found == {"named": SCHEDULES}
    assert re.search(MISTAKES[mistake], error), error


# Kernels that take no time seldom meet: only some schedules show a mistake without the check.
@pytest.mark.parametrize("mistake", [*MISTAKES, "read_before_it_is_written"])
def test_mistake_raises_nothing_without_the_check(outcomes: Outcomes, mistake: str) -> None:
    found, error = outcomes(mistake, check="off")
    assert found.keys() <= {"right", "wrong"}, error


def test_race_without_the_check_is_a_wrong_value_under_some_schedules(outcomes: Outcomes) -> None:
    assert outcomes("streams_without_an_event", check="off")[0].keys() == {"right", "wrong"}


@pytest.mark.parametrize("check", ["on", "full"])
@pytest.mark.parametrize(
    "scenario",
    [
        "streams_with_an_event",
        "given_on_with_record_stream",
        "pool_reused_behind_the_reader",
        "freed_behind_a_synchronisation",
    ],
)
def test_ordered_work_is_not_reported(outcomes: Outcomes, scenario: str, check: str) -> None:
    assert outcomes(scenario, check=check) == ({"right": SCHEDULES}, "")


def test_memory_read_before_it_is_written_is_named_by_the_full_check(outcomes: Outcomes) -> None:
    found, error = outcomes("read_before_it_is_written", check="full")
    assert found["named"] >= 1
    assert re.search(
        r"aclnnMuls: 'self' \(float32 \[64\]\) is read, and nothing was written to any of it", error
    )
    assert outcomes("read_before_it_is_written", check="on") == ({"right": SCHEDULES}, "")
