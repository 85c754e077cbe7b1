"""Measures the steps of a graph key in each available run mode, and chooses the fastest.

Note [what is measured]. On these devices decoding is limited by the host, so the host time of a
step counts: from its call to its return, including everything that belongs to it, such as attention
updates after a replay. The host waits for the device before each step and not inside it, so no step
pays for the previous one. In each round every candidate runs once, and another one goes first, so
machine drift affects all alike. The medians of the rounds are compared.

The number of rounds is fixed. Ranks whose steps contain collectives therefore run the same steps in
the same order, independent of their clocks.
"""

from __future__ import annotations

import contextlib
import dataclasses
import statistics
import time
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from npu_graph_runtime.errors import DeviceError, RankDisagreementError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from npu_graph_runtime.agreement import Exchange
    from npu_graph_runtime.device import GraphDevice
    from npu_graph_runtime.graph_key import GraphKey
    from npu_graph_runtime.observer import RuntimeObserver
    from npu_graph_runtime.run_mode import RunMode

_TOLERANCE: Final = 0.03
# The first replay compares addresses, and an update lane binds the launches of a plan.
_WARMUP_ROUNDS: Final = 2
_REFUSED: Final = -1
_NANOSECONDS: Final = 1e9


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class RunModeCandidate:
    """One way to run the steps of a key.

    Attributes:
        step: queues one step, as in serving, and returns. Each step must do everything that a step
            with new values does, without skipping work for equal values.
        capture: called once before all steps, if there is something to capture.
        release: called once after all steps if ``capture`` returned; releases what it captured.
    """

    step: Callable[[], object]
    capture: Callable[[], object] | None = None
    release: Callable[[], object] | None = None


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class RunModeChoice:
    """The run mode chosen for a key, with its figures; observers receive it.

    Attributes:
        key: key of the steps.
        chosen: the run mode.
        seconds: median host time of a step in each measured run mode; if ranks chose
            together, that of the slowest rank.
        rounds: number of steps measured in each mode.
        refused: run modes that the device could not capture, each with its error; ``None`` for one
            that another rank's device could not capture.
    """

    key: GraphKey
    chosen: RunMode
    seconds: Mapping[RunMode, float]
    rounds: int
    refused: Mapping[RunMode, DeviceError | None]

    @property
    def chosen_seconds(self) -> float:
        """Median host time of a step in the chosen mode."""
        return self.seconds[self.chosen]

    def __str__(self) -> str:
        own = self.chosen_seconds
        parts = [f"{self.key}: {self.chosen.value} {_microseconds(own)} a step"]
        for mode, seconds in sorted(self.seconds.items(), key=lambda each: each[1]):
            if mode is not self.chosen:
                parts.append(f"{mode.value} {_microseconds(seconds)} ({seconds / own:.2f}x)")
        parts += [
            f"{mode.value} refused: {error or 'by another rank'}"
            for mode, error in self.refused.items()
        ]
        return f"{', '.join(parts)}; median of {self.rounds}"


def _microseconds(seconds: float) -> str:
    return f"{seconds * 1e6:,.0f} us"


class RunModeChooser:
    """Chooses the run mode of each graph key by measurement; see Note [what is measured].

    Graphs captured for the measurement are released before :meth:`choose` returns, including the
    fastest. Capture them in a session of their own, whose memory pool is freed with its last graph,
    and the chosen ones afterwards in the session whose pool they share::

        chooser = RunModeChooser(device)
        with CaptureSession(device, context):
            for key in largest_first(keys):
                choice = chooser.choose(key, candidates_of(key))
        with CaptureSession(device, context):
            ...  # capture each key in chooser.choices[key].chosen

    Use it from one host thread.

    Args:
        device: device that the steps run on.
        rounds: steps measured in each mode, at least 1.
        clock: returns host time in seconds.
        exchange: a host collective, for ranks that must choose the same modes. All ranks choose
            for the same keys in the same order; a mode that one device rejects is rejected for all,
            and the slowest rank's time counts. Without it, this rank chooses by its own figures.
        observer: receives each `RunModeChoice`.

    Raises:
        ValueError: ``rounds`` is below 1.
    """

    def __init__(
        self,
        device: GraphDevice,
        *,
        rounds: int = 7,
        clock: Callable[[], float] = time.perf_counter,
        exchange: Exchange | None = None,
        observer: RuntimeObserver | None = None,
    ) -> None:
        if rounds < 1:
            raise ValueError(f"choosing run modes: rounds is {rounds}, expected 1 or more")
        self._device = device
        self._rounds = rounds
        self._clock = clock
        self._exchange = exchange
        self._observer = observer
        self._choices: dict[GraphKey, RunModeChoice] = {}

    @property
    def choices(self) -> Mapping[GraphKey, RunModeChoice]:
        """The choices so far, by key; the latest one if a key was measured again."""
        return MappingProxyType(self._choices)

    def choose(
        self, key: GraphKey, candidates: Mapping[RunMode, RunModeCandidate]
    ) -> RunModeChoice:
        """Capture, measure and release all candidates, and choose one.

        Args:
            key: key of the steps.
            candidates: candidates in order of preference: among those at most 3 % slower than the
                fastest, the first one is chosen.

        Raises:
            ValueError: There is no candidate.
            DeviceError: The device could not capture any of them.
            RankDisagreementError: Ranks have different candidates.
            Exception: Any error of a step or a capture; captured graphs are released.
        """
        if not candidates:
            raise ValueError(f"choosing the run mode of {key}: there is no candidate")
        try:
            with contextlib.ExitStack() as captured:
                refused = self._captured(candidates, captured)
                steps = {mode: each.step for mode, each in candidates.items()}
                seconds = self._measured(
                    {mode: step for mode, step in steps.items() if mode not in refused}
                )
        finally:
            self._device.empty_cache()
        best = min(seconds.values())
        chosen = next(mode for mode, each in seconds.items() if each <= best * (1 + _TOLERANCE))
        choice = RunModeChoice(
            key=key,
            chosen=chosen,
            seconds=MappingProxyType(seconds),
            rounds=self._rounds,
            refused=MappingProxyType(refused),
        )
        self._choices[key] = choice
        if self._observer is not None:
            self._observer.observe(choice)
        return choice

    def __str__(self) -> str:
        return "\n".join(map(str, self._choices.values()))

    def _captured(
        self, candidates: Mapping[RunMode, RunModeCandidate], captured: contextlib.ExitStack
    ) -> dict[RunMode, DeviceError | None]:
        """Capture the candidates and return those that a device rejected."""
        refused: dict[RunMode, DeviceError | None] = {}
        for mode, candidate in candidates.items():
            try:
                if candidate.capture is not None:
                    candidate.capture()
            except DeviceError as error:
                # Its frames hold tensors of the capture, and memory may be what is short.
                error.__cause__ = error.__context__ = None
                refused[mode] = error.with_traceback(None)
                continue
            if candidate.release is not None:
                captured.callback(candidate.release)
        if self._exchange is not None:
            flags = self._agreed([_REFUSED if mode in refused else 0 for mode in candidates])
            for mode, flag in zip(candidates, flags, strict=True):
                if flag == _REFUSED:
                    refused.setdefault(mode, None)
        if len(refused) == len(candidates):
            raise next((error for error in refused.values() if error), None) or DeviceError(
                "choosing a run mode: devices of other ranks refused to capture all candidates"
            )
        return refused

    def _measured(self, steps: Mapping[RunMode, Callable[[], object]]) -> dict[RunMode, float]:
        """Return the median of the host time of each step, agreed on by all ranks."""
        modes = list(steps)
        times: dict[RunMode, list[float]] = {mode: [] for mode in modes}
        for turn in range(_WARMUP_ROUNDS + self._rounds):
            for place in range(len(modes)):
                mode = modes[(turn + place) % len(modes)]
                self._device.synchronize()
                started = self._clock()
                steps[mode]()
                times[mode].append(self._clock() - started)
        self._device.synchronize()
        medians = [statistics.median(times[mode][_WARMUP_ROUNDS:]) for mode in modes]
        if self._exchange is not None:
            whole = self._agreed([round(each * _NANOSECONDS) for each in medians])
            medians = [each / _NANOSECONDS for each in whole]
        return dict(zip(modes, medians, strict=True))

    def _agreed(self, own: Sequence[int]) -> list[int]:
        """Return for each number the maximum over all ranks, or that a rank rejected it."""
        assert self._exchange is not None  # noqa: S101
        rows = [list(row) for row in self._exchange(tuple(own))]
        if any(len(row) != len(own) for row in rows):
            raise RankDisagreementError(
                f"choosing a run mode: ranks gave {', '.join(str(len(row)) for row in rows)} "
                "figures, expected one for each candidate, the same ones on all ranks; configure "
                "all ranks alike"
            )
        return [_REFUSED if _REFUSED in each else max(each) for each in zip(*rows, strict=True)]
