"""docs/fidelity.md, the probes of npu-graph-check and the rows in its wheel say the same."""

from __future__ import annotations

import json

import pytest

from fidelity_register import PAGE, ROWS, in_step, observing_probes, problems, register

TABLE = "### Capture\n\n| behaviour | source |\n|---|---|\n| a | own |\n| b | read |\n"
NEW = in_step(TABLE, {})
NUMBERED = NEW.replace("| unwritten |", "| unwritten: needs a tape |")


def test_page_probes_and_rows_of_the_wheel_are_in_step() -> None:
    text, observed = PAGE.read_text(encoding="utf-8"), observing_probes()

    assert in_step(text, observed) == text
    assert problems(text, observed) == []
    assert json.loads(ROWS.read_text(encoding="utf-8")) == register(text)


def test_new_rows_get_the_next_ids_and_old_ones_keep_theirs() -> None:
    grown = NUMBERED.replace("| capture-2 ", "| between | read |\n| capture-2 ")

    assert list(register(NUMBERED)) == ["capture-1", "capture-2"]
    assert list(register(in_step(grown, {}))) == ["capture-1", "capture-3", "capture-2"]


def test_row_names_the_probes_that_observe_it() -> None:
    observed = {"capture-2": ["capture.one", "capture.two"]}

    assert register(in_step(NUMBERED, observed))["capture-2"]["observed"] == (
        "`capture.one`, `capture.two`"
    )
    assert register(in_step(in_step(NUMBERED, observed), {}))["capture-2"]["observed"] == (
        "unwritten"
    )


@pytest.mark.parametrize(
    ("text", "observed", "found"),
    [
        (NUMBERED, {"capture-7": ["capture.one"]}, "which is not there"),
        (NUMBERED.replace("capture-2", "capture-1"), {}, "used 2 times"),
        (NEW, {}, "capture-2: expected 'unwritten: ' and a phrase"),
        (NEW.replace("| unwritten |", "| open |"), {}, "found 'open'"),
    ],
)
def test_problems_that_a_person_must_fix_are_named(
    text: str, observed: dict[str, list[str]], found: str
) -> None:
    assert any(found in each for each in problems(text, observed))


def test_page_in_step_has_no_problems() -> None:
    assert problems(NUMBERED, {}) == []
    assert in_step(NUMBERED, {}) == NUMBERED
