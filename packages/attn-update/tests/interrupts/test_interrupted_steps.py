"""Exceptions of signal handlers at any place of a step: nothing hangs, and the next step is right.

First at every place where the interpreter looks for signals, one by one, then at pairs of places.
The long run with real signals is `./nox -s interrupts`.
"""

from __future__ import annotations

import contextlib
import sys
from random import Random
from typing import TYPE_CHECKING

import pytest
import torch

from attn_update import LaneError, UpdateLane
from interrupts.signal_places import RaiseAt, count_places
from npu_graph_testing.attention import PagedModel, draw_lengths

if TYPE_CHECKING:
    from collections.abc import Callable

    from attn_update import UpdatePlan, UpdaterChoice
    from npu_graph_runtime import NpuDevice

KEY = 2
PAIRS = 40
UPDATERS: tuple[UpdaterChoice, ...] = ("operators", "kernels", "native")
WAYS = ("run", "worker", "bracketed", "update first")

pytestmark = [
    pytest.mark.skipif(
        sys.version_info < (3, 11), reason="3.10 looks for signals in the first line of a handler"
    ),
    # Python drops what is raised in a destructor.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


class Steps:
    """Steps of one model on one lane, each compared with the operators."""

    def __init__(
        self,
        device: NpuDevice,
        updater: UpdaterChoice,
        way: str,
        fail_before: Callable[[UpdatePlan], None],
    ) -> None:
        self.device, self.way, self.fail_before = device, way, fail_before
        self.model = PagedModel(device=device, num_layers=2)
        self.model.capture(KEY)
        self.lane = UpdateLane(device, updater=updater, worker=way == "worker")
        self.stream = device.current_stream()
        self.random = Random(0)

    def step(self, lengths: list[int]) -> None:
        plan, parameters = self.model.plans[KEY], self.model.parameters(KEY, lengths)
        if self.way == "update first":
            self.fail_before(plan)
        if self.way != "bracketed":
            self.lane.run(plan, parameters, self.model.graphs[KEY].replay)
            return
        try:
            self.lane.begin(plan, parameters)
            self.model.graphs[KEY].replay()
            self.lane.finish()
        except BaseException:
            with contextlib.suppress(LaneError):
                self.lane.abandon()
            raise

    def draw(self) -> list[int]:
        return draw_lengths(self.random, KEY)

    def assert_works(self, what: object) -> None:
        """Wait for the device, then run steps and compare them."""
        self.device.synchronize()
        assert self.device.current_stream() == self.stream, what
        for _ in range(2):
            lengths = self.draw()
            self.step(lengths)
            found = [out.cpu() for out in self.model.outputs[KEY]]
            for out, expected in zip(found, self.model.eager(KEY, lengths), strict=True):
                assert torch.equal(out, expected.cpu()), what


@pytest.fixture(params=UPDATERS)
def updater(request: pytest.FixtureRequest) -> UpdaterChoice:
    chosen: UpdaterChoice = request.param
    return chosen


@pytest.fixture(params=WAYS)
def steps(
    request: pytest.FixtureRequest,
    npu_device: NpuDevice,
    updater: UpdaterChoice,
    fail_before: Callable[[UpdatePlan], None],
) -> Steps:
    steps = Steps(npu_device, updater, request.param, fail_before)
    for _ in range(2):
        steps.assert_works("before")
    return steps


def test_exception_at_any_place_of_a_step_leaves_nothing_waiting(steps: Steps) -> None:
    lengths, place = steps.draw(), 1
    while True:
        # Each step changes something, or there would be nothing to update.
        lengths = [length % 40 + 1 for length in lengths]
        interrupt = RaiseAt(place)
        try:
            with interrupt:
                steps.step(lengths)
        except KeyboardInterrupt:
            steps.assert_works(interrupt.raised)
        if not interrupt.raised:
            break
        place += 1
    assert place > count_places(lambda: steps.step(lengths)) // 2 > 10


def test_two_exceptions_at_any_places_leave_nothing_waiting(steps: Steps) -> None:
    lengths = steps.draw()
    num_places = count_places(lambda: steps.step(steps.draw()))
    num_twice = 0
    for _ in range(PAIRS):
        lengths = [length % 40 + 1 for length in lengths]
        interrupt = RaiseAt(steps.random.randint(1, num_places), steps.random.randint(1, 4))
        with contextlib.suppress(KeyboardInterrupt), interrupt:
            steps.step(lengths)
        if steps.way == "bracketed":
            # The second one may have come before the first line of `abandon`.
            with contextlib.suppress(LaneError):
                steps.lane.abandon()
        num_twice += len(interrupt.raised) == 2
        steps.assert_works(interrupt.raised)
    assert num_twice > 2
