"""The replay-and-update protocol, and each classic mistake in it, under many schedules.

`--schedules 10000` runs the protocol under that many, and each mistake under a tenth of them.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).with_name("update_protocol.py")


def outcomes(
    scenario: str, schedules: int, *, form: str = "value", queue: str = "1"
) -> dict[str, int]:
    """Return how many schedules of a scenario ended how."""
    environment = {
        **os.environ,
        "CANN_SIM_EXTERNAL_EVENTS": form,
        "TASK_QUEUE_ENABLE": queue,
        "CANN_SIM_DEADLOCK_SECONDS": "0.05",
        "TORCH_DEVICE_BACKEND_AUTOLOAD": "0",
    }
    done = subprocess.run(
        [sys.executable, str(PROGRAM), scenario, "0", str(schedules)],
        capture_output=True,
        text=True,
        env=environment,
        timeout=3600,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found: dict[str, int] = json.loads(done.stdout.splitlines()[-1])
    assert sum(found.values()) == schedules
    return found


@pytest.fixture(scope="module")
def schedules(request: pytest.FixtureRequest) -> int:
    return int(request.config.getoption("--schedules"))


OLDER_FORM = pytest.param(
    "event",
    marks=pytest.mark.absent_in_torch_npu(
        "2.10", reason="external events of this form end no wait in a capture"
    ),
)
both_forms = pytest.mark.parametrize("form", ["value", OLDER_FORM])


@both_forms
def test_protocol_that_is_kept_gives_the_right_values(schedules: int, form: str) -> None:
    assert outcomes("kept", schedules, form=form) == {"right": schedules}


def test_protocol_that_is_kept_without_task_queue_gives_the_right_values(schedules: int) -> None:
    count = max(schedules // 10, 10)
    assert outcomes("kept", count, queue="0") == {"right": count}


@both_forms
def test_update_that_does_not_wait_is_taken_by_the_replay_before(schedules: int, form: str) -> None:
    found = outcomes("early_update", max(schedules // 10, 40), form=form)
    assert found.keys() == {"right", "stale", "named deadlock"}


@both_forms
def test_record_that_is_missing_is_a_named_deadlock(schedules: int, form: str) -> None:
    count = max(schedules // 10, 10)
    assert outcomes("missing_record", count, form=form) == {"named deadlock": count}


@both_forms
def test_second_update_behind_the_record_comes_too_late(schedules: int, form: str) -> None:
    found = outcomes("two_updaters", max(schedules // 10, 40), form=form)
    assert found.keys() == {"right", "stale"}


def test_argument_that_changes_without_an_update_stays_as_captured(schedules: int) -> None:
    count = max(schedules // 10, 10)
    assert outcomes("no_update", count) == {"stale": count}
