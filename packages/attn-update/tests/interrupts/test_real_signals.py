"""Real signals at random times of steps, captures and sessions: nothing hangs or is wrong.

A small share runs every time; the long run is `./nox -s interrupts`.
"""

from __future__ import annotations

import contextlib
import gc
import signal
import sys
import time
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
import torch

from attn_update import LaneError, Recorder, UpdateError, UpdateLane, UpdatePlan
from interrupts.test_interrupted_steps import KEY, Steps
from npu_graph_runtime import (
    CaptureSession,
    GraphContext,
    GraphedCallable,
    GraphKey,
    GraphRuntimeError,
    RunMode,
)
from npu_graph_testing.attention import PagedModel, draw_lengths

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

    from attn_update import UpdaterChoice
    from npu_graph_runtime import NpuDevice

pytestmark = [
    pytest.mark.skipif(
        sys.version_info < (3, 11), reason="3.10 looks for signals in the first line of a handler"
    ),
    # Python drops what is raised in a destructor.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

STEP_RUNS = [
    (updater, way)
    for updater in ("operators", "kernels", "native")
    for way in ("run", "worker", "bracketed")
]
# Of all signals, those that come in captures and sessions; a capture takes as long as many steps.
SHARE_OF_CAPTURES = 0.03


class SignalError(Exception):
    """The exception of the handler."""


class Signals:
    """Sends this process signals after random times.

    Attributes:
        num_raised: How many made the handler raise.
    """

    def __init__(self, random: Random) -> None:
        self.num_raised = 0
        self._random = random
        self._is_wanted = False

    def handle(self, number: int, frame: FrameType | None) -> None:
        """Raise, as the handler of a signal does."""
        if self._is_wanted:
            self._is_wanted = False
            self.num_raised += 1
            raise SignalError

    @contextlib.contextmanager
    def sent(self, seconds: float) -> Iterator[None]:
        """Send one at a random time of the block, which takes some seconds."""
        self._is_wanted = True
        signal.setitimer(signal.ITIMER_REAL, max(1e-6, self._random.random() * seconds))
        try:
            yield
        finally:
            self._is_wanted = False
            signal.setitimer(signal.ITIMER_REAL, 0)


@pytest.fixture
def signals() -> Iterator[Signals]:
    made = Signals(Random(0))
    before = signal.signal(signal.SIGALRM, made.handle)
    yield made
    signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize(("updater", "way"), STEP_RUNS)
def test_signals_in_steps(
    npu_device: NpuDevice,
    signals: Signals,
    fail_before: Callable[[UpdatePlan], None],
    updater: UpdaterChoice,
    way: str,
    num_signals: int,
) -> None:
    steps = Steps(npu_device, updater, way, fail_before)
    steps.assert_works("before")
    wanted = max(3, int(num_signals * (1 - SHARE_OF_CAPTURES) / len(STEP_RUNS)))
    seconds, num_steps = 0.002, 0
    while signals.num_raised < wanted:
        lengths = steps.draw()
        started, num_steps = time.perf_counter(), num_steps + 1
        interrupted = False
        try:
            with signals.sent(seconds):
                steps.step(lengths)
        except SignalError:
            interrupted = True
        except UpdateError as error:
            # What is raised inside of an update is the cause of its error.
            if not isinstance(error.__cause__, SignalError):
                raise
            interrupted = True
        else:
            seconds = 0.9 * seconds + 0.1 * (time.perf_counter() - started)
        if interrupted or num_steps % 50 == 0:
            if way == "bracketed":
                with contextlib.suppress(LaneError):
                    steps.lane.abandon()
            steps.assert_works(f"step {num_steps}")
    print(f"{updater} {way}: {signals.num_raised} signals in {num_steps} steps")  # noqa: T201


class Engine:
    """Captures in sessions and runs steps, and starts again after an interruption."""

    def __init__(self, device: NpuDevice, updater: UpdaterChoice) -> None:
        self.device, self.updater = device, updater
        self.model = PagedModel(device=device, num_layers=2)
        self.model.eager(KEY, [1, 1])
        self.stream, self.pool = device.create_stream(), device.create_memory_pool()
        self.main = device.current_stream()
        self.begin_anew()

    def begin_anew(self) -> None:
        self.key = GraphKey(num_tokens=KEY)
        self.model.recorder = Recorder(self.device)
        self.context = GraphContext()
        self.lane = UpdateLane(self.device, updater=self.updater)
        self.graphed = GraphedCallable(
            lambda: self.model.eager(KEY, [1, 1]),
            device=self.device,
            context=self.context,
            run_mode=RunMode.FULL,
            name="attention",
        )

    def call(self) -> Any:
        with self.context.run(RunMode.FULL, self.key):
            return self.graphed()

    def capture(self) -> UpdatePlan:
        session = CaptureSession(self.device, self.context, self.pool, self.stream)
        with session, self.model.recorder.recording(self.key):
            self.call()
        return UpdatePlan.compile(self.model.recorder, self.key)

    def give_up(self) -> None:
        session = self.context.capture_session
        if session is not None:
            # The interrupt came before the first line of its `__exit__`.
            with contextlib.suppress(GraphRuntimeError):
                session.__exit__(None, None, None)
        self.lane.close()
        self.device.synchronize()
        self.graphed.release_all()

    def assert_works(self, plan: UpdatePlan, lengths: list[int]) -> None:
        parameters = self.model.parameters(KEY, lengths)
        outputs = self.lane.run(
            plan, type(parameters)(key=self.key, groups=parameters.groups), self.call
        )
        found = [out.cpu() for out in outputs]
        for out, expected in zip(found, self.model.eager(KEY, lengths), strict=True):
            assert torch.equal(out, expected.cpu())


def test_signals_in_captures_and_sessions(
    npu_device: NpuDevice, signals: Signals, num_signals: int
) -> None:
    random, engine = Random(0), Engine(npu_device, "native")
    started = time.perf_counter()
    engine.assert_works(engine.capture(), [5, 6])
    seconds = time.perf_counter() - started
    wanted = max(3, int(num_signals * SHARE_OF_CAPTURES))
    num_captures = num_left_open = 0
    while signals.num_raised < wanted:
        engine.give_up()
        engine.begin_anew()
        started, num_captures = time.perf_counter(), num_captures + 1
        try:
            with signals.sent(seconds):
                engine.assert_works(engine.capture(), draw_lengths(random, KEY))
        except (SignalError, UpdateError):
            num_left_open += engine.context.capture_session is not None
            engine.give_up()
            if npu_device.current_stream() != engine.main:
                npu_device.use_stream(engine.main).__enter__()
            gc.enable()
            engine.begin_anew()
            engine.assert_works(engine.capture(), draw_lengths(random, KEY))
        else:
            seconds = 0.9 * seconds + 0.1 * (time.perf_counter() - started)
    print(  # noqa: T201
        f"captures: {signals.num_raised} signals in {num_captures} captures, "
        f"{num_left_open} sessions left open"
    )
