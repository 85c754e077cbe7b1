"""The replay-and-update protocol, and each classic mistake in it, under many schedules.

`--schedules 10000` runs the protocol under that many, and each mistake under a tenth of them.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

PROGRAM = Path(__file__).with_name("update_protocol.py")
Outcomes = Callable[..., dict[str, int]]


@pytest.fixture
def outcomes(run_forked: Any) -> Outcomes:
    """Return a function that says how many schedules of a scenario ended how."""

    def run(
        scenario: str, count: int, *, form: str = "value", queue: str = "1", check: str = "on"
    ) -> dict[str, int]:
        environment = {
            "CANN_SIM_EXTERNAL_EVENTS": form,
            "CANN_SIM_UPDATE_CHECK": check,
            "TASK_QUEUE_ENABLE": queue,
            "CANN_SIM_DEADLOCK_SECONDS": "0.05",
        }
        arguments = [str(PROGRAM), scenario, "0", str(count)]
        source = (
            f"import runpy, sys\nsys.argv = {arguments}\nrunpy.run_path({str(PROGRAM)!r}, "
            "run_name='__main__')"
        )
        done = run_forked(source, environment=environment, seconds=3600)
        assert done.status == 0, done.errors[-2000:]
        found: dict[str, int] = json.loads(done.output.splitlines()[-1])
        assert sum(found.values()) == count
        return found

    return run


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
def test_protocol_that_is_kept_gives_the_right_values(
    outcomes: Outcomes, schedules: int, form: str
) -> None:
    assert outcomes("kept", schedules, form=form) == {"right": schedules}


def test_protocol_that_is_kept_without_task_queue_gives_the_right_values(
    outcomes: Outcomes, schedules: int
) -> None:
    count = max(schedules // 10, 10)
    assert outcomes("kept", count, queue="0") == {"right": count}


@both_forms
def test_order_of_the_seed_with_its_synchronisation_is_in_order(
    outcomes: Outcomes, schedules: int, form: str
) -> None:
    count = max(schedules // 10, 10)
    assert outcomes("synchronised", count, form=form) == {"right": count}


@both_forms
@pytest.mark.parametrize("mistake", ["early_update", "two_updaters", "no_wait"])
def test_update_that_nothing_orders_is_named_under_every_schedule(
    outcomes: Outcomes, schedules: int, form: str, mistake: str
) -> None:
    found = outcomes(mistake, max(schedules // 10, 10), form=form)
    assert found.keys() <= {"named race", "named deadlock"}
    assert "named race" in found


@both_forms
def test_update_that_does_not_wait_is_taken_by_the_replay_before(
    outcomes: Outcomes, schedules: int, form: str
) -> None:
    found = outcomes("early_update", max(schedules // 10, 40), form=form, check="off")
    assert found.keys() == {"right", "stale", "named deadlock", "named freed arguments"}


@both_forms
def test_record_that_is_missing_is_a_named_deadlock(
    outcomes: Outcomes, schedules: int, form: str
) -> None:
    count = max(schedules // 10, 10)
    assert outcomes("missing_record", count, form=form) == {"named deadlock": count}


@both_forms
def test_second_update_after_the_record_is_too_late(
    outcomes: Outcomes, schedules: int, form: str
) -> None:
    found = outcomes("two_updaters", max(schedules // 10, 40), form=form, check="off")
    assert found.keys() == {"right", "stale", "named freed arguments"}


def test_update_of_a_group_without_a_wait_can_be_missed(outcomes: Outcomes, schedules: int) -> None:
    found = outcomes("no_wait", max(schedules // 10, 60), check="off")
    assert found.keys() == {"right", "stale", "named freed arguments"}


def test_argument_that_changes_without_an_update_stays_as_captured(
    outcomes: Outcomes, schedules: int
) -> None:
    count = max(schedules // 10, 10)
    assert outcomes("no_update", count) == {"stale": count}
