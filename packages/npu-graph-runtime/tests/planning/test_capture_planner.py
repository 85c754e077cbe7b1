"""The planner: which sizes it asks for, which it drops and why, on the fake device."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import pytest
import torch

from npu_graph_runtime import (
    CaptureSession,
    FakeDevice,
    GraphContext,
    GraphedCallable,
    GraphKey,
    RunMode,
    runs_eagerly,
)
from npu_graph_runtime.errors import CaptureSizeError, OutOfDeviceResourcesError
from npu_graph_runtime.planning import CaptureBudget, CapturePlanner
from npu_graph_runtime.planning.capture_planner import evenly

if TYPE_CHECKING:
    from collections.abc import Sequence

    from npu_graph_runtime.planning import CapturePlan

SIZES = (1, 2, 4, 8, 16, 24, 32)
ROW_BYTES = 2 * 64 * 4  # what a capture of `doubled_twice` allocates for a row, of float32
SEGMENTS = 3


@dataclasses.dataclass
class Outcome:
    captures: list[int]
    early: CapturePlan | None
    plan: CapturePlan
    graphed: GraphedCallable  # holds the graphs


def capture_planned(
    device: FakeDevice,
    sizes: Sequence[int] = SIZES,
    *,
    budget: CaptureBudget | None = None,
    mode: RunMode = RunMode.FULL,
    refused: Sequence[int] = (),
) -> Outcome:
    """Capture the sizes that the planner requests; sizes in ``refused`` are not captured."""
    context = GraphContext()

    @runs_eagerly(context)
    def break_here(values: torch.Tensor) -> torch.Tensor:
        return values

    def doubled_twice(values: torch.Tensor) -> torch.Tensor:
        return break_here(break_here(values + 1) * 2)

    graphed = GraphedCallable(
        doubled_twice, device=device, context=context, run_mode=mode, name="model"
    )
    buffer = torch.zeros(max(sizes), 64)
    captures: list[int] = []
    early = None
    with CaptureSession(device, context):
        planner = CapturePlanner(device, sizes, budget=budget)
        while (size := planner.next_size()) is not None:
            captures.append(size)
            if size in refused:
                planner.refused(size, OutOfDeviceResourcesError("no stream left"))
                continue
            key = GraphKey(num_tokens=size)
            with context.run(mode, key):
                graphed(buffer[:size])
            if not planner.captured(size):
                graphed.release(key)
            early = planner.plan if len(captures) == 2 else early
    assert graphed.captured_keys == tuple(
        GraphKey(num_tokens=size) for size in planner.plan.captured
    )
    return Outcome(captures, early, planner.plan, graphed)


def taken(device: FakeDevice) -> tuple[int, int]:
    figures = device.memory_figures()
    return 2048 - device.free_streams(), figures.total - figures.free


def test_everything_fits_and_is_captured_once_largest_first(fake: FakeDevice) -> None:
    outcome = capture_planned(fake)

    assert outcome.captures == sorted(SIZES, reverse=True)
    assert outcome.plan.sizes == SIZES
    assert outcome.plan.dropped == {}
    assert outcome.early is not None
    assert outcome.early.forecast == outcome.plan.used == outcome.plan.forecast
    assert (outcome.plan.used.streams, outcome.plan.used.num_bytes) == (7, sum(SIZES) * ROW_BYTES)
    assert outcome.early.planned == (16, 8, 4, 2, 1)


@pytest.mark.parametrize(
    ("streams", "mode", "kept"),
    [
        (7, RunMode.FULL, SIZES),
        (4, RunMode.FULL, (1, 4, 16, 32)),
        (2, RunMode.FULL, (1, 32)),
        (1, RunMode.FULL, (32,)),
        (9, RunMode.BREAKABLE, (1, 8, 32)),
        (5, RunMode.BREAKABLE, (32,)),
    ],
)
def test_budget_of_few_streams_thins_sizes_evenly(
    fake: FakeDevice, streams: int, mode: RunMode, kept: tuple[int, ...]
) -> None:
    outcome = capture_planned(fake, budget=CaptureBudget(streams=streams), mode=mode)

    assert outcome.plan.sizes == kept
    assert sorted(outcome.captures) == [*kept]
    assert outcome.plan.used.streams <= streams
    assert taken(fake)[0] == outcome.plan.used.streams
    assert set(outcome.plan.dropped) == set(SIZES) - set(kept)
    each = SEGMENTS if mode is RunMode.BREAKABLE else 1
    for reason in outcome.plan.dropped.values():
        assert f"it would take about {each} streams" in reason
        assert f"the budget of {streams} streams" in reason
        assert f"holds {len(kept)} of 7 sizes" in reason


def test_budget_of_bytes_thins_what_the_first_two_leave(fake: FakeDevice) -> None:
    budget = CaptureBudget(num_bytes=70 * ROW_BYTES)

    outcome = capture_planned(fake, budget=budget)

    assert outcome.plan.sizes == (1, 4, 24, 32)
    assert outcome.captures == sorted(outcome.plan.sizes, reverse=True)
    assert taken(fake)[1] == outcome.plan.used.num_bytes <= 70 * ROW_BYTES
    assert "size 16 dropped: it would take about 1 streams and 0.0 MiB" in str(outcome.plan)


def test_size_above_the_budget_is_given_up_and_smaller_ones_stay(fake: FakeDevice) -> None:
    """The cost of a size is known after its capture; those that cannot fit are not tried."""
    outcome = capture_planned(fake, budget=CaptureBudget(num_bytes=20 * ROW_BYTES))

    assert outcome.captures[:2] == [32, 16]
    assert "more than the budget" in outcome.plan.dropped[32]
    assert "by what size 32 took" in outcome.plan.dropped[24]
    assert outcome.plan.sizes[-1] == 16
    assert taken(fake)[1] == outcome.plan.used.num_bytes <= 20 * ROW_BYTES


def test_budget_below_one_size_drops_all_after_one_capture(fake: FakeDevice) -> None:
    outcome = capture_planned(fake, budget=CaptureBudget(streams=2), mode=RunMode.BREAKABLE)

    assert outcome.captures == [32]
    assert outcome.plan.sizes == ()
    assert set(outcome.plan.dropped) == set(SIZES)
    assert outcome.graphed.num_graphs == 0
    assert taken(fake) == (0, 0)
    assert "capture sizes: 0 of 7 (none)" in str(outcome.plan)


def test_without_a_budget_the_device_is_the_limit() -> None:
    device = FakeDevice(streams=10)

    outcome = capture_planned(device, mode=RunMode.BREAKABLE)

    assert outcome.plan.sizes == (1, 8, 32) == tuple(sorted(outcome.captures))
    assert outcome.graphed.num_graphs == 9
    assert device.free_streams() == 1


def test_refused_size_is_dropped_with_the_error_and_the_others_are_captured(
    fake: FakeDevice,
) -> None:
    outcome = capture_planned(fake, refused=(32, 8))

    assert outcome.captures == sorted(SIZES, reverse=True)
    assert outcome.plan.sizes == (1, 2, 4, 16, 24)
    assert outcome.plan.dropped[8] == "the device refused its capture: no stream left"


def test_planner_receives_the_outcome_of_each_size(fake: FakeDevice) -> None:
    planner = CapturePlanner(fake, SIZES)
    assert planner.next_size() == 32
    with pytest.raises(CaptureSizeError, match="nothing was said of size 32"):
        planner.next_size()
    with pytest.raises(CaptureSizeError, match="told of size 16, expected 32"):
        planner.captured(16)


def test_budget_of_streams_on_a_device_that_does_not_tell_is_refused() -> None:
    class Silent(FakeDevice):
        def free_streams(self) -> None:  # type: ignore[override]
            return None

    with pytest.raises(CaptureSizeError, match="does not tell how many it has left"):
        CapturePlanner(Silent(), SIZES, budget=CaptureBudget(streams=8))


@pytest.mark.parametrize("limit", [0, -1, 1.5, True, "8"])
def test_budget_that_is_not_a_number_is_refused(limit: object) -> None:
    with pytest.raises(CaptureSizeError, match="expected a whole number of at least 1"):
        CaptureBudget(streams=limit)  # type: ignore[arg-type]


@pytest.mark.parametrize("length", range(1, 70))
def test_evenly_chosen_sizes_are_distinct_and_end_with_the_last(length: int) -> None:
    sizes = range(length)
    for number in range(1, length + 1):
        chosen = evenly(sizes, number)
        gaps = [high - low for low, high in zip((-1, *chosen), chosen, strict=False)]
        assert chosen[-1] == length - 1
        assert len(chosen) == number
        assert max(gaps) - min(gaps) <= 1
    assert evenly(sizes, 0) == ()
