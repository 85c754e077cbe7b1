"""Decides which graph keys of a runner are captured, in which run mode, within which budget."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

from npu_compile.configuration.config import CaptureFailure
from npu_compile.errors import ConfigError, InputError, RunnerStateError
from npu_graph_runtime import CaptureSizes, RunMode, largest_first
from npu_graph_runtime.errors import DeviceError
from npu_graph_runtime.planning import CaptureCost, CapturePlanner, RunModeChooser

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from npu_compile.compilation.compiled_model import CompiledModel
    from npu_compile.runners.step_capture import StepCapture
    from npu_graph_runtime import AgreedStep, Exchange, GraphKey
    from npu_graph_runtime.planning import CapturePlan, RunModeChoice


class CaptureSchedule:
    """Captures the keys of one runner, the largest first. It does not know their inputs.

    Args:
        compiled: the model. Its configuration says what to do with a size that the device rejects,
            and what budget all captures have.
        run_modes: how keys are captured and replayed. If there are several, each key gets the one
            that is measured to be the fastest.
        keys: the graph key of each size.
        what: the kind of steps, for messages, such as ``decode``.

    Attributes:
        keys: the keys that steps may use, by size. Before captures begin, all keys; afterwards,
            those captured so far and those that run eagerly because that was measured to be the
            fastest.
        pending: keys that are not captured yet, the largest first; empty before captures begin.
        skipped: sizes that the device rejected, each with its error.
        choices: measurements and the chosen mode, by size.
        plan: measurements and decisions, if the configuration has a budget.
    """

    def __init__(
        self,
        compiled: CompiledModel,
        run_modes: Sequence[RunMode],
        keys: Mapping[int, GraphKey],
        *,
        what: str,
    ) -> None:
        self.run_modes = tuple(run_modes)
        self.all_keys = dict(keys)
        self.modes = dict.fromkeys(self.all_keys.values(), self.run_modes[0])
        self.keys = self.all_keys
        self.pending: tuple[GraphKey, ...] = ()
        self.skipped: dict[int, DeviceError] = {}
        self.choices: dict[int, RunModeChoice] = {}
        self.plan: CapturePlan | None = None
        self._compiled = compiled
        self._what = what
        self._sizes = CaptureSizes(keys) if keys else None
        self._captured: set[GraphKey] = set()
        self._pool: object = None
        self._is_begun = False

    @property
    def is_to_capture(self) -> bool:
        """Whether any size can be captured in any run mode."""
        return bool(self.all_keys) and self.run_modes != (RunMode.EAGER,)

    def padded_size(self, num_rows: int) -> int:
        """Return the size that a batch is padded to, or ``num_rows`` if no size is large enough."""
        bucket = None if self._sizes is None else self._sizes.bucket_for(num_rows)
        return num_rows if bucket is None else bucket

    def key_of(self, num_rows: int, agreed: AgreedStep | None) -> GraphKey | None:
        """Return the key of a step, or ``None`` if it is to run eagerly.

        `agreed` is ``None`` if ranks need not agree.

        Raises:
            InputError: The batch has no rows, or ranks agreed on a key that these steps do not
                have.
        """
        if agreed is None:
            if num_rows == 0:
                raise InputError(
                    f"running a {self._what} step: the inputs have 0 rows, expected at least 1; "
                    "leave the step out, or agree on it between ranks"
                )
            return self.keys.get(self.padded_size(num_rows))
        if agreed.bucket is None:
            return None
        key = self.keys.get(agreed.bucket)
        if key is None or agreed.mode is not self.modes[key]:
            modes = {self.modes[each].value for each in self.keys.values()}
            raise InputError(
                f"running a {self._what} step: ranks agreed on mode {agreed.mode.value!r} and "
                f"{agreed.bucket} rows, expected mode {' or '.join(map(repr, sorted(modes)))} and "
                f"one of {sorted(self.keys)}; give the agreement the capture sizes of this runner, "
                "and run the step by the runner of the mode that was agreed on"
            )
        return key

    def require_captured(self) -> None:
        """Raise an error if there is something to capture and captures have not begun.

        Raises:
            RunnerStateError: Captures have not begun.
        """
        if not self._is_begun and self.is_to_capture:
            raise RunnerStateError(
                f"running a {self._what} step: the {self._what} graphs are not captured; call "
                "capture() first"
            )

    def begin(self) -> None:
        """Begin captures, if they have not begun. From now on steps use only captured keys.

        Raises:
            RunnerStateError: Everything is captured already, or another runner of the model has
                captured one of the keys. Nothing is changed.
        """
        if self._is_begun and not self.pending:
            raise RunnerStateError(
                f"capturing the {self._what} graphs: they are captured already; release them first"
            )
        wanted = self.pending or largest_first(self.all_keys.values())
        taken = self._compiled.captured_keys.intersection(wanted)
        if taken:
            raise RunnerStateError(
                f"capturing the {self._what} graphs: another runner has captured the same model "
                f"under {', '.join(map(str, taken))}, with inputs of its own; release it first, "
                "or compile the model once for each runner"
            )
        if not self._is_begun:
            self._is_begun = True
            self.pending = tuple(wanted)
            self._run_under({})

    def capture(
        self,
        capture: StepCapture,
        *,
        on_captured: Callable[[int, int, int], None] | None,
        on_forecast: Callable[[CapturePlan], None] | None,
        exchange: Exchange | None,
    ) -> None:
        """Capture all pending keys; call it after :meth:`begin`.

        `on_captured` is called after each size with (size, sizes done, total sizes), `on_forecast`
        once if there is a budget, as soon as the total is forecast. `exchange` is a collective of
        ranks that must choose the same run modes.

        Raises:
            ConfigError: No size fits the budget of the configuration.
            CaptureSizeError: Graphs of other runners have used up the budget, or the device does
                not report the streams that the budget limits.
            DeviceError: The device rejected a size that may not be skipped, or all sizes.
        """
        self._choose_modes(capture, self.pending, exchange)
        if self.pending:
            with self._compiled.capture_session(self._pool) as session:
                self._pool = session.pool
                num_all = len(self.pending)
                planner = self._planner()
                for done, key in enumerate(self._next_keys(planner), start=1):
                    self._capture_key(key, capture, planner)
                    if planner is not None:
                        num_all = done + len(planner.plan.planned)
                        self._follow(planner.plan, on_forecast)
                    if on_captured is not None:
                        on_captured(key.num_tokens, done, num_all)
        self.pending = ()
        self._require_any()
        self._warn_of_left_out()

    def capture_next(self, capture: StepCapture, *, exchange: Exchange | None) -> int | None:
        """Capture the largest pending key in a session of its own, between steps.

        Returns:
            The size that steps may use now, or ``None`` if none is left.

        Raises:
            ConfigError: There is a budget, which can only be measured while nothing else runs.
            RunnerStateError: Another runner of the model has captured one of the keys.
            DeviceError: The device rejected the size, which stays pending; or it rejected all
                sizes, and sizes may be skipped. Captured sizes stay.
        """
        if self._compiled.config.capture_budget is not None:
            raise ConfigError(
                f"capturing a {self._what} graph between steps: the configuration has a "
                "capture_budget, and what a capture takes is measured while no step runs; call "
                "capture(), or leave capture_budget out"
            )
        if not self._is_begun:
            self.begin()
        while self.pending:
            key = self.pending[0]
            self._choose_modes(capture, [key], exchange)
            if key in self.pending:
                with self._compiled.capture_session(self._pool) as session:
                    self._pool = session.pool
                    self._capture_key(key, capture, None)
            if key.num_tokens not in self.skipped:
                return key.num_tokens
            self._warn_of_skipped(key.num_tokens, stacklevel=4)
        self._require_any()
        return None

    def release(self) -> None:
        """Wait for the device and release the graphs of this runner; others of the model stay."""
        self._compiled.release(self._captured)
        self._captured.clear()
        self._is_begun = False
        self._compiled.note_plan(None, before=self.plan)
        self.plan = None
        self.pending = ()
        self.skipped.clear()
        self.choices.clear()
        self.modes = dict.fromkeys(self.all_keys.values(), self.run_modes[0])
        self._run_under(self.all_keys)

    def _choose_modes(
        self, capture: StepCapture, keys: Sequence[GraphKey], exchange: Exchange | None
    ) -> None:
        """Measure the run modes of keys, if there are several; eager keys leave ``pending``.

        Nothing stays captured: the chooser captures in a session of its own and releases its
        memory.
        """
        if len(self.run_modes) == 1:
            return
        is_skipping = self._compiled.config.capture_failure is CaptureFailure.SKIP_SIZE
        chooser = RunModeChooser(
            self._compiled.device, exchange=exchange, observer=self._compiled.observer
        )
        with self._compiled.capture_session():
            for key in keys:
                capture.prepare(key)
                try:
                    choice = chooser.choose(
                        key, {mode: capture.candidate(key, mode) for mode in self.run_modes}
                    )
                except DeviceError as error:
                    if not is_skipping:
                        raise
                    self._give_up(key, capture)
                    self._skip(key, error)
                    continue
                if choice.refused and not is_skipping:
                    raise next(filter(None, choice.refused.values()), None) or DeviceError(
                        f"measuring {self._what} steps of {key}: the device of another rank "
                        "refused a capture; see the error there"
                    )
                self.modes[key], self.choices[key.num_tokens] = choice.chosen, choice
                if choice.chosen is RunMode.EAGER:
                    self._settle(key)

    def _next_keys(self, planner: CapturePlanner | None) -> Iterator[GraphKey]:
        if planner is None:
            yield from self.pending
            return
        while (size := planner.next_size()) is not None:
            yield self.all_keys[size]

    def _capture_key(
        self, key: GraphKey, capture: StepCapture, planner: CapturePlanner | None
    ) -> None:
        """Capture one key; skip or drop it as the configuration and the planner decide."""
        capture.prepare(key)
        self._captured.add(key)
        try:
            capture.capture(key, self.modes[key])
        except DeviceError as error:
            self._give_up(key, capture)
            if self._compiled.config.capture_failure is not CaptureFailure.SKIP_SIZE:
                raise
            self._skip(key, error)
            if planner is not None:
                planner.refused(key.num_tokens, self.skipped[key.num_tokens])
        except BaseException:
            self._give_up(key, capture)
            raise
        else:
            if planner is None or planner.captured(key.num_tokens):
                self._settle(key)
            else:
                self._leave_pending(key)
                self._give_up(key, capture)

    def _give_up(self, key: GraphKey, capture: StepCapture) -> None:
        capture.release(key)
        self._captured.discard(key)

    def _settle(self, key: GraphKey) -> None:
        """Move a key from the pending ones to those that steps may use."""
        self._leave_pending(key)
        self._run_under({**self.keys, key.num_tokens: key})

    def _skip(self, key: GraphKey, error: DeviceError) -> None:
        self._leave_pending(key)
        # Its frames hold tensors of the capture, and memory is what is short.
        error.__cause__ = error.__context__ = None
        self.skipped[key.num_tokens] = error.with_traceback(None)

    def _leave_pending(self, key: GraphKey) -> None:
        self.pending = tuple(other for other in self.pending if other != key)

    def _run_under(self, keys: Mapping[int, GraphKey]) -> None:
        self.keys = dict(keys)
        self._sizes = CaptureSizes(keys) if keys else None

    def _planner(self) -> CapturePlanner | None:
        budget = self._compiled.config.capture_budget
        if budget is None:
            return None
        others = (plan.used for plan in self._compiled.capture_plans)
        used = sum(others, CaptureCost(streams=0, num_bytes=0))
        sizes = [key.num_tokens for key in self.pending]
        return CapturePlanner(self._compiled.device, sizes, budget=budget.left_by(used))

    def _follow(self, plan: CapturePlan, on_forecast: Callable[[CapturePlan], None] | None) -> None:
        """Store the current plan of a planner."""
        had_none = self.plan is None or self.plan.forecast is None
        self._compiled.note_plan(plan, before=self.plan)
        self.plan = plan
        if on_forecast is not None and had_none and plan.forecast is not None:
            on_forecast(plan)

    def _require_any(self) -> None:
        if self.keys:
            return
        if self.skipped:
            raise next(iter(self.skipped.values()))
        raise ConfigError(
            f"capturing the {self._what} graphs: capture_budget holds none of the capture sizes; "
            f"raise it, or name smaller sizes\n{self.plan}"
        )

    def _warn_of_left_out(self) -> None:
        for size in self.skipped:
            self._warn_of_skipped(size, stacklevel=5)
        if self.plan is not None and self.plan.dropped.keys() - self.skipped:
            warnings.warn(
                f"capturing the {self._what} graphs: sizes are left out to keep within "
                "capture_budget; batches are padded to the next larger size that is captured, or "
                f"run eagerly where there is none\n{self.plan}",
                RuntimeWarning,
                stacklevel=4,
            )

    def _warn_of_skipped(self, size: int, *, stacklevel: int) -> None:
        padded = self.padded_size(size)
        instead = f"are padded to {padded}" if padded in self.keys else "run eagerly"
        warnings.warn(
            f"capturing the {self._what} graph of {size} rows: {self.skipped[size]}; the size is "
            f"left out, batches of up to {size} rows that no smaller size fits {instead}",
            RuntimeWarning,
            stacklevel=stacklevel,
        )
