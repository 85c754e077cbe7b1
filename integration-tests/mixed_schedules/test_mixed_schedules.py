"""Fuzzed schedules of updates, producers and layer events, with graphs of two keys in flight.

A small share runs every time; the long run is `pytest integration-tests/mixed_schedules
--schedules=10000`. The host launches a burst of steps of both keys without a look at any result.
Every output, and every row that another stream read behind a layer event, is then compared bit by
bit with the eager step.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mixed_schedules.reading_engine import ReadingEngine
from mixed_schedules.schedule_run import run_schedules

if TYPE_CHECKING:
    from npu_graph_runtime import NpuDevice

FORMS = {
    "beside-the-graphs": ((False, False), False),
    "inside-the-graphs": ((True, True), False),
    "beside-and-inside": ((False, True), True),
}


@pytest.mark.parametrize(("captured", "shares_buffers"), FORMS.values(), ids=FORMS)
def test_fuzzed_schedules_with_layer_events_equal_eager_without_a_synchronisation(
    device: NpuDevice,
    num_schedules: int,
    schedule_seed: int,
    captured: tuple[bool, bool],
    shares_buffers: bool,
) -> None:
    engine = ReadingEngine(device, captured=captured, shares_buffers=shares_buffers)
    found = run_schedules(engine, num_schedules // len(FORMS) + 1, schedule_seed)
    assert found.wrong == []
    assert found.early_reads >= found.reads // 20


@pytest.mark.parametrize("missing", ["layers", "readers"])
def test_some_schedules_show_a_wait_that_is_missing(device: NpuDevice, missing: str) -> None:
    engine = ReadingEngine(
        device, awaits_layers=missing != "layers", awaits_readers=missing != "readers"
    )
    assert run_schedules(engine, 20, 0).wrong != []
