"""Which run mode is chosen by which times, on a clock of the test's; and for once by real ones."""

from __future__ import annotations

import dataclasses
import itertools
from typing import TYPE_CHECKING

import pytest
import torch

import cann_sim
from npu_graph_runtime import (
    CaptureSession,
    FakeDevice,
    GraphContext,
    GraphedCallable,
    GraphKey,
    RunMode,
    runs_eagerly,
)
from npu_graph_runtime.errors import OutOfDeviceMemoryError, RankDisagreementError
from npu_graph_runtime.planning import RunModeCandidate, RunModeChoice, RunModeChooser

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from npu_graph_runtime import NpuDevice
    from npu_graph_runtime.observer import RuntimeEvent

KEY = GraphKey(num_tokens=4)
EAGER, BREAKABLE, FULL = RunMode.EAGER, RunMode.BREAKABLE, RunMode.FULL


class Clock:
    """Advances only by the cost of steps, which a slow machine may increase."""

    def __init__(self, slow_down: Iterable[float] = itertools.repeat(1.0)) -> None:
        self.now = 100.0
        self.steps: list[RunMode] = []
        self._slow_down = iter(slow_down)

    def __call__(self) -> float:
        return self.now

    def step(self, mode: RunMode, *seconds: float) -> Callable[[], None]:
        """Return a step that takes these times in turn, by the machine's speed."""
        turns = itertools.cycle(seconds)

        def run() -> None:
            self.steps.append(mode)
            self.now += next(turns) * next(self._slow_down)

        return run

    def candidates(self, times: Mapping[RunMode, float]) -> dict[RunMode, RunModeCandidate]:
        return {mode: RunModeCandidate(step=self.step(mode, each)) for mode, each in times.items()}


class Events:
    def __init__(self) -> None:
        self.seen: list[RuntimeEvent] = []

    def observe(self, event: RuntimeEvent, /) -> None:
        self.seen.append(event)


@pytest.mark.parametrize(
    ("times", "chosen"),
    [
        ({EAGER: 10.0, BREAKABLE: 4.0, FULL: 1.0}, FULL),
        ({EAGER: 10.0, BREAKABLE: 1.0, FULL: 4.0}, BREAKABLE),
        ({EAGER: 1.0, BREAKABLE: 4.0, FULL: 10.0}, EAGER),
        # Within 3 % of the fastest the first stays, beyond it does not.
        ({EAGER: 1.029, BREAKABLE: 4.0, FULL: 1.0}, EAGER),
        ({EAGER: 1.031, BREAKABLE: 4.0, FULL: 1.0}, FULL),
        ({EAGER: 1.05, BREAKABLE: 1.02, FULL: 1.0}, BREAKABLE),
        ({FULL: 2.0}, FULL),
    ],
)
def test_the_fastest_is_chosen_and_its_figures_are_kept(
    times: dict[RunMode, float], chosen: RunMode, fake: FakeDevice
) -> None:
    clock, events = Clock(), Events()
    chooser = RunModeChooser(fake, clock=clock, observer=events)

    choice = chooser.choose(KEY, clock.candidates(times))

    assert choice.chosen is chosen
    assert choice.seconds == pytest.approx(times)
    assert chooser.choices == {KEY: choice}
    assert events.seen == [choice]


def test_never_more_than_three_percent_slower_than_the_best_of_its_own_figures(
    fake: FakeDevice,
) -> None:
    times = [round(0.9 + 0.013 * step, 3) for step in range(16)]
    for eager, breakable, full in itertools.product(times, repeat=3):
        clock = Clock()
        chooser = RunModeChooser(fake, rounds=1, clock=clock)
        choice = chooser.choose(
            KEY, clock.candidates({EAGER: eager, BREAKABLE: breakable, FULL: full})
        )
        best = min(choice.seconds.values())
        assert choice.seconds[choice.chosen] <= best * 1.03


def test_a_drift_of_the_machine_affects_all_candidates_equally(fake: FakeDevice) -> None:
    # Twice as slow at the end as at the beginning; measured one after the other, eager would win.
    steps = 3 * 9
    clock = Clock(1 + each / steps for each in range(steps))

    choice = RunModeChooser(fake, clock=clock).choose(
        KEY, clock.candidates({EAGER: 1.1, BREAKABLE: 1.2, FULL: 1.0})
    )

    assert choice.chosen is FULL
    assert choice.seconds[EAGER] / choice.seconds[FULL] == pytest.approx(1.1, rel=0.05)


def test_candidates_take_turns_and_each_of_them_begins_a_round(fake: FakeDevice) -> None:
    clock = Clock()

    RunModeChooser(fake, rounds=4, clock=clock).choose(
        KEY, clock.candidates({EAGER: 3.0, BREAKABLE: 2.0, FULL: 1.0})
    )

    rounds = [clock.steps[place : place + 3] for place in range(0, len(clock.steps), 3)]
    assert len(rounds) == 2 + 4  # two to warm up
    assert all(set(each) == {EAGER, BREAKABLE, FULL} for each in rounds)
    assert [each[0] for each in rounds] == [EAGER, BREAKABLE, FULL] * 2


def test_one_slow_step_changes_nothing(fake: FakeDevice) -> None:
    clock = Clock()
    candidates = clock.candidates({EAGER: 1.5})
    candidates[FULL] = RunModeCandidate(step=clock.step(FULL, 1, 1, 1, 1, 1, 90, 1, 1, 1))

    choice = RunModeChooser(fake, clock=clock).choose(KEY, candidates)

    assert choice.chosen is FULL
    assert choice.seconds == pytest.approx({EAGER: 1.5, FULL: 1.0})


def test_all_of_it_can_be_read(fake: FakeDevice) -> None:
    clock = Clock()
    chooser = RunModeChooser(fake, clock=clock)
    chooser.choose(KEY, clock.candidates({EAGER: 2e-3, FULL: 5e-4}))
    chooser.choose(GraphKey(num_tokens=8), clock.candidates({EAGER: 3e-3}))

    assert str(chooser).splitlines() == [
        "(num_tokens=4): full 500 us a step, eager 2,000 us (4.00x); median of 7",
        "(num_tokens=8): eager 3,000 us a step; median of 7",
    ]


def _refuse() -> None:
    raise OutOfDeviceMemoryError("no memory left for this graph")


def test_a_refused_candidate_is_left_out_and_named(fake: FakeDevice) -> None:
    clock, released = Clock(), []
    candidates = clock.candidates({EAGER: 2.0})
    candidates[FULL] = RunModeCandidate(
        step=clock.step(FULL, 1.0), capture=_refuse, release=lambda: released.append(FULL)
    )

    choice = RunModeChooser(fake, clock=clock).choose(KEY, candidates)

    assert choice.chosen is EAGER
    assert FULL not in clock.steps
    assert released == []
    assert isinstance(choice.refused[FULL], OutOfDeviceMemoryError)
    assert "full refused: no memory left for this graph" in str(choice)


def test_if_all_are_refused_the_first_error_is_raised(fake: FakeDevice) -> None:
    candidate = RunModeCandidate(step=lambda: None, capture=_refuse)

    with pytest.raises(OutOfDeviceMemoryError):
        RunModeChooser(fake).choose(KEY, {FULL: candidate})


@pytest.mark.parametrize("where", ["capture", "step"])
def test_captures_are_released_however_it_ends(where: str, fake: FakeDevice) -> None:
    done: list[str] = []

    def fail() -> None:
        raise KeyError(where)

    candidates = {
        BREAKABLE: RunModeCandidate(
            step=lambda: None,
            capture=lambda: done.append("captured"),
            release=lambda: done.append("released"),
        ),
        FULL: RunModeCandidate(
            step=fail if where == "step" else lambda: None,
            capture=fail if where == "capture" else None,
        ),
    }

    with pytest.raises(KeyError, match=where):
        RunModeChooser(fake).choose(KEY, candidates)

    assert done == ["captured", "released"]


def test_wrong_arguments_are_refused(fake: FakeDevice) -> None:
    with pytest.raises(ValueError, match="rounds is 0"):
        RunModeChooser(fake, rounds=0)
    with pytest.raises(ValueError, match="no candidate"):
        RunModeChooser(fake).choose(KEY, {})


class OtherRank:
    """An exchange with a rank that gives rows of its own."""

    def __init__(self, *rows: Sequence[int]) -> None:
        self._rows = list(rows)
        self.own: list[tuple[int, ...]] = []

    def __call__(self, row: tuple[int, ...]) -> list[Sequence[int]]:
        self.own.append(row)
        return [row, self._rows.pop(0)]


def test_ranks_choose_alike_by_the_slowest(fake: FakeDevice) -> None:
    clock = Clock()
    # The other rank captured all, and its full graph is slow.
    exchange = OtherRank([0, 0], [2_000_000_000, 3_000_000_000])

    choice = RunModeChooser(fake, clock=clock, exchange=exchange).choose(
        KEY, clock.candidates({EAGER: 2.0, FULL: 1.0})
    )

    assert choice.chosen is EAGER
    assert choice.seconds == pytest.approx({EAGER: 2.0, FULL: 3.0})
    assert exchange.own == [(0, 0), (2_000_000_000, 1_000_000_000)]


def test_mode_refused_on_another_rank_is_measured_by_none(fake: FakeDevice) -> None:
    clock = Clock()

    choice = RunModeChooser(fake, clock=clock, exchange=OtherRank([0, -1], [0])).choose(
        KEY, clock.candidates({EAGER: 2.0, FULL: 1.0})
    )

    assert choice.chosen is EAGER
    assert FULL not in clock.steps
    assert "full refused: by another rank" in str(choice)


def test_ranks_with_other_candidates_get_the_error(fake: FakeDevice) -> None:
    chooser = RunModeChooser(fake, exchange=OtherRank([0, 0, 0]))

    with pytest.raises(RankDisagreementError, match="configure all ranks alike"):
        chooser.choose(KEY, {EAGER: RunModeCandidate(step=lambda: None)})


@dataclasses.dataclass
class Model:
    """Sixty layers in each run mode, with two breaks for mode breakable."""

    device: NpuDevice
    context: GraphContext
    captured: dict[RunMode, GraphedCallable]
    layers: Callable[[torch.Tensor], torch.Tensor]
    hidden: torch.Tensor

    @classmethod
    def of(cls, device: NpuDevice) -> Model:
        context = GraphContext()

        @runs_eagerly(context)
        def attend(hidden: torch.Tensor) -> torch.Tensor:
            return hidden * 0.5

        def layers(hidden: torch.Tensor) -> torch.Tensor:
            for layer in range(60):
                hidden = torch.relu(hidden) + 1
                hidden = attend(hidden) if layer % 20 == 10 else hidden
            return hidden

        captured = {}
        for mode in (BREAKABLE, FULL):
            captured[mode] = GraphedCallable(
                layers, device=device, context=context, run_mode=mode, name=f"model in {mode.value}"
            )
        hidden = torch.zeros(64, 256, device=device.torch_device)
        return cls(device, context, captured, layers, hidden)

    def candidate(self, mode: RunMode) -> RunModeCandidate:
        call = self.captured.get(mode, self.layers)

        def run() -> object:
            with self.context.run(mode, KEY):
                return call(self.hidden)

        if mode is EAGER:
            return RunModeCandidate(step=run)
        return RunModeCandidate(
            step=run, capture=run, release=lambda: self.captured[mode].release(KEY)
        )

    def reserved(self) -> int:
        self.device.synchronize()
        self.device.empty_cache()
        return self.device.memory_figures().reserved


def test_full_is_chosen_for_a_model_of_many_layers_and_all_memory_is_freed(
    npu: NpuDevice,
) -> None:
    model = Model.of(npu)
    candidates = {mode: model.candidate(mode) for mode in (EAGER, BREAKABLE, FULL)}
    with CaptureSession(npu, model.context):  # torch_npu makes its streams with the first ones
        RunModeChooser(npu).choose(KEY, {EAGER: candidates[EAGER]})
    reserved, streams = model.reserved(), npu.free_streams()

    def calls_so_far() -> float:
        npu.synchronize()
        counters = cann_sim.counters()
        return float(counters.launches + counters.replays)

    by_time, by_calls = RunModeChooser(npu), RunModeChooser(npu, clock=calls_so_far)
    for chooser in (by_time, by_calls):
        with CaptureSession(npu, model.context):
            chooser.choose(KEY, candidates)

        assert all(not each.captured_keys for each in model.captured.values())
        assert model.reserved() == reserved
        assert npu.free_streams() == streams

    seconds = by_time.choices[KEY].seconds
    assert seconds[by_time.choices[KEY].chosen] <= 1.03 * min(seconds.values())
    assert by_calls.choices[KEY].chosen is FULL
    calls = by_calls.choices[KEY].seconds
    assert calls[FULL] == 1
    # Four segments; what runs eagerly between them, each with a copy to where it is read.
    assert calls[BREAKABLE] == 4 + 2 * 3
    assert calls[EAGER] > 100


def test_choices_are_immutable(fake: FakeDevice) -> None:
    clock = Clock()
    choice = RunModeChooser(fake, clock=clock).choose(KEY, clock.candidates({EAGER: 1.0}))

    assert isinstance(choice, RunModeChoice)
    with pytest.raises(TypeError):
        choice.seconds[EAGER] = 0.0  # type: ignore[index]
