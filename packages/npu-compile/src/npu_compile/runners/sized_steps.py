"""The steps of one runner by their size: captured, loaded, called, released."""

from __future__ import annotations

import sys
import warnings
from typing import TYPE_CHECKING, Any, TypeVar

from npu_compile.configuration.config import CaptureFailure
from npu_compile.errors import ConfigError, InputError, RunnerStateError
from npu_compile.inputs.static_inputs import StaticInputs
from npu_compile.inputs.step_size import StepSize
from npu_compile.runners.own_rows import own_rows
from npu_compile.runners.runner_statistics import RunnerStatistics, StepCounts
from npu_graph_runtime import (
    CaptureCost,
    CapturePlanner,
    CaptureSizes,
    DeviceError,
    RunMode,
    RunModeCandidate,
    RunModeChooser,
    ShadowValidation,
    largest_first,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from torch import Tensor

    from npu_compile.compilation.compiled_model import CompiledModel
    from npu_compile.inputs.input_spec import InputSpec
    from npu_graph_runtime import AgreedStep, CapturePlan, Exchange, GraphKey, RunModeChoice

_Result = TypeVar("_Result")

# Of steps that run as they are.
_ANY_SIZE = StepSize(tokens=sys.maxsize, sequences=sys.maxsize)


class SizedSteps:
    """Graphs of one model by their size in tokens, and the static buffers that they read.

    Args:
        compiled: the model.
        run_modes: how they are captured and replayed; of several each key has that which is
            measured to be the fastest, see :meth:`choose`.
        keys: the graph key of each size.
        inputs: the model's arguments.
        step_size: returns the sizes of a step of a number of tokens.
        what: the steps, for messages, such as ``decode``.
        outputs_by_sequence: whether an output may have one row a sequence and not one a token. Only
            where the number of sequences differs from size to size, so that one which has as many
            rows by chance is found at capture.

    Attributes:
        compiled: as given.
        run_modes: as given.
        choices: what was measured and chosen, by size.
        keys: by size, those that steps may run under: as given, once captures began those that are
            captured so far, or that are left to run eagerly because that is the fastest.
        pending: keys that are not captured yet, the largest first; empty before captures begin.
        skipped: sizes that the device refused to capture, each with its error.
        plan: what was measured and decided where the configuration has a budget.
    """

    def __init__(
        self,
        compiled: CompiledModel,
        run_modes: Sequence[RunMode],
        keys: Mapping[int, GraphKey],
        *,
        inputs: Mapping[str, InputSpec],
        step_size: Callable[[int], StepSize],
        what: str,
        outputs_by_sequence: bool = False,
    ) -> None:
        self.compiled = compiled
        self.run_modes = tuple(run_modes)
        self.choices: dict[int, RunModeChoice] = {}
        self.keys = dict(keys)
        self.pending: tuple[GraphKey, ...] = ()
        self.skipped: dict[int, DeviceError] = {}
        self.plan: CapturePlan | None = None
        self._what = what
        self._outputs_by_sequence = outputs_by_sequence
        self._sizes = CaptureSizes(self.keys) if keys else None
        self._all_keys = dict(keys)
        self._step_sizes = {key: step_size(size) for size, key in self.keys.items()}
        # Empty without sizes: no step is loaded into them then.
        largest = step_size(max(self.keys)) if self.keys else StepSize(tokens=0, sequences=0)
        self._inputs = StaticInputs(inputs, largest=largest, device=compiled.device)
        self._modes = dict.fromkeys(self.keys.values(), self.run_modes[0])
        self._captured: set[GraphKey] = set()
        self._pool: object = None
        self._is_captured = False
        self._warned_of: set[str] = set()
        self.counts = StepCounts(what)
        every, graphed = compiled.config.shadow_every, compiled.graphed_callables
        self.shadow = ShadowValidation(graphed, every=every) if every and graphed else None

    def padded_size(self, num_rows: int) -> int:
        """Return the bucket of a step; ``num_rows`` where no capture size is large enough."""
        bucket = self._sizes.bucket_for(num_rows) if self._sizes else None
        return num_rows if bucket is None else bucket

    @property
    def is_to_capture(self) -> bool:
        """Whether there is a size, and a run mode of it, that may be captured."""
        return bool(self._all_keys) and self.run_modes != (RunMode.EAGER,)

    def mode_of(self, key: GraphKey) -> RunMode:
        """Return the run mode of the steps of a key."""
        return self._modes[key]

    def choose(
        self,
        prepare: Callable[[int], None],
        candidate: Callable[[GraphKey, RunMode], RunModeCandidate],
        exchange: Exchange | None,
        *,
        only_next: bool = False,
    ) -> None:
        """Measure the run modes of each pending size, if there are several, the largest first.

        Nothing stays captured: what is measured is captured in a session of its own, whose memory
        is given back.

        Args:
            prepare: called with each size before it is measured.
            candidate: returns a way to run steps of padding under a key.
            exchange: for ranks that have to choose alike.
            only_next: measure the first of them alone.

        Raises:
            DeviceError: the device refused a capture, and the configuration does not skip sizes.
        """
        if len(self.run_modes) == 1:
            return
        is_skipping = self.compiled.config.capture_failure is CaptureFailure.SKIP_SIZE
        chooser = RunModeChooser(
            self.compiled.device, exchange=exchange, observer=self.compiled.observer
        )
        with self.compiled.capture_session():
            for key in self.pending[:1] if only_next else self.pending:
                prepare(key.num_tokens)
                try:
                    choice = chooser.choose(
                        key, {mode: candidate(key, mode) for mode in self.run_modes}
                    )
                except DeviceError as error:
                    if not is_skipping:
                        raise
                    self._skip(key, error)
                    continue
                if choice.refused and not is_skipping:
                    raise next(filter(None, choice.refused.values()), None) or DeviceError(
                        f"measuring {self._what} steps of {key}: the device of another rank "
                        "refused a capture; see the error there"
                    )
                self._modes[key], self.choices[key.num_tokens] = choice.chosen, choice

    def candidate(
        self, prepare: Callable[[int], None], key: GraphKey, mode: RunMode
    ) -> RunModeCandidate:
        """Return a way to run steps of padding under a key, whose lengths `prepare` shows."""
        step = self.padding_step(key, mode)

        def run() -> Any:
            # In serving the lengths of each step are shown to what runs eagerly.
            prepare(key.num_tokens)
            return step()

        if mode is RunMode.EAGER:
            return RunModeCandidate(step=run)
        return RunModeCandidate(
            step=run,
            capture=lambda: self.capture_one(key, mode),
            release=lambda: self.compiled.release([key]),
        )

    def padding_step(self, key: GraphKey, mode: RunMode) -> Callable[[], Any]:
        """Return what loads a step of nothing but padding and runs it, under a key."""
        size = self._step_sizes[key]
        inputs = self._inputs.padding(size)

        def run() -> Any:
            self._inputs.load_checked(inputs, own=size, size=size)
            return self._call(key, mode)

        return run

    def begin(self) -> None:
        """Let captures begin, where they have not: from now on steps run under what is captured.

        Raises:
            RunnerStateError: all is captured already, or another runner of the model has captured
                one of the keys; nothing is changed.
        """
        if self._is_captured and not self.pending:
            raise RunnerStateError(
                f"capturing the {self._what} graphs: they are captured already; release them first"
            )
        wanted = self.pending or largest_first(self._all_keys.values())
        taken = self.compiled.captured_keys.intersection(wanted)
        if taken:
            raise RunnerStateError(
                f"capturing the {self._what} graphs: another runner has captured the same model "
                f"under {', '.join(map(str, taken))}, with inputs of its own; release it first, "
                "or compile the model once for each runner"
            )
        if not self._is_captured:
            self._is_captured = True
            self.pending = tuple(wanted)
            self._run_under({})

    def capture(
        self,
        prepare: Callable[[int], None],
        capture_one: Callable[[GraphKey], None],
        on_captured: Callable[[int, int, int], None] | None,
        on_forecast: Callable[[CapturePlan], None] | None,
        release_one: Callable[[GraphKey], None],
    ) -> None:
        """Capture all pending sizes, the largest first; after :meth:`begin`.

        Args:
            prepare: called with each size before it is captured.
            capture_one: runs the model under a key.
            on_captured: called after each size with (size, sizes done, sizes in all).
            on_forecast: called once with the plan, where there is a budget, as soon as it says what
                all captures will take.
            release_one: gives up what goes with a graph that does not stay.

        Raises:
            ConfigError: the budget of the configuration holds no size.
            CaptureSizeError: graphs of other runners have used the budget up, or the device does
                not tell of the streams that it limits.
            DeviceError: the device refused a size that may not be skipped, or all.
        """
        self._leave_eager()
        keys = self.pending
        if keys:
            with self.compiled.capture_session(self._pool) as session:
                self._pool = session.pool
                self._capture_all(keys, prepare, capture_one, on_captured, on_forecast, release_one)
        self.pending = ()
        self._require_any()
        self._warn_of_left_out()

    def capture_next(
        self,
        prepare: Callable[[int], None],
        capture_one: Callable[[GraphKey], None],
        release_one: Callable[[GraphKey], None],
        choose: Callable[[], None],
    ) -> int | None:
        """Capture the largest pending size in a session of its own, between steps.

        Args:
            prepare: called with the size before it is captured.
            capture_one: runs the model under a key.
            release_one: gives up what goes with a graph that does not stay.
            choose: measures the first pending size, where there are several run modes.

        Returns:
            The size; ``None`` where none is left.

        Raises:
            ConfigError: there is a budget, which is measured while nothing else runs.
            RunnerStateError: as for :meth:`begin`, but for what is captured.
            DeviceError: the device refused the size, which stays pending; or all, where it may be
                skipped. What is captured stays.
        """
        if self.compiled.config.capture_budget is not None:
            raise ConfigError(
                f"capturing a {self._what} graph between steps: the configuration has a "
                "capture_budget, and what a capture takes is measured while no step runs; call "
                "capture(), or leave capture_budget out"
            )
        if not self._is_captured:
            self.begin()
        while self.pending:
            key, skipped = self.pending[0], len(self.skipped)
            choose()
            self._leave_eager(only_next=True)
            if key in self.pending:
                with self.compiled.capture_session(self._pool) as session:
                    self._pool = session.pool
                    prepare(key.num_tokens)
                    try:
                        is_captured = self._capture_or_drop(key, capture_one, None)
                    except BaseException:
                        release_one(key)
                        self._give_up(key)
                        raise
                    if not is_captured:
                        release_one(key)
            if len(self.skipped) == skipped:
                return key.num_tokens
            self._warn_of_skipped(key.num_tokens, self.skipped[key.num_tokens])
        self._require_any()
        return None

    def _leave_eager(self, *, only_next: bool = False) -> None:
        """Let sizes run eagerly that were measured to be the fastest so."""
        for key in self.pending[:1] if only_next else self.pending:
            if self._modes[key] is RunMode.EAGER:
                self._settle(key)

    def _settle(self, key: GraphKey) -> None:
        """Let steps run under a key that was pending."""
        self._leave_pending(key)
        self._run_under({**self.keys, key.num_tokens: key})

    def _leave_pending(self, key: GraphKey) -> None:
        self.pending = tuple(other for other in self.pending if other != key)

    def _run_under(self, keys: Mapping[int, GraphKey]) -> None:
        self.keys = dict(keys)
        self._sizes = CaptureSizes(keys) if keys else None

    def _capture_all(
        self,
        keys: Sequence[GraphKey],
        prepare: Callable[[int], None],
        capture_one: Callable[[GraphKey], None],
        on_captured: Callable[[int, int, int], None] | None,
        on_forecast: Callable[[CapturePlan], None] | None,
        release_one: Callable[[GraphKey], None],
    ) -> None:
        planner = self._planner(keys)
        for done, key in enumerate(self._to_capture(keys, planner), start=1):
            prepare(key.num_tokens)
            if not self._capture_or_drop(key, capture_one, planner):
                release_one(key)
            num_all = len(keys)
            if planner is not None:
                plan = planner.plan
                num_all = done + len(plan.planned)
                self._follow(plan, on_forecast)
            if on_captured is not None:
                on_captured(key.num_tokens, done, num_all)

    def _capture_or_drop(
        self, key: GraphKey, capture_one: Callable[[GraphKey], None], planner: CapturePlanner | None
    ) -> bool:
        """Return whether the graph is captured and stays."""
        self._captured.add(key)
        try:
            capture_one(key)
        except DeviceError as error:
            if self.compiled.config.capture_failure is not CaptureFailure.SKIP_SIZE:
                raise
            self._skip(key, error)
            if planner is not None:
                planner.refused(key.num_tokens, self.skipped[key.num_tokens])
            return False
        if planner is None or planner.captured(key.num_tokens):
            self._settle(key)
            return True
        self._leave_pending(key)
        self._give_up(key)
        return False

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
        for size, refusal in self.skipped.items():
            self._warn_of_skipped(size, refusal)
        if self.plan is not None and self.plan.dropped.keys() - self.skipped:
            warnings.warn(
                f"capturing the {self._what} graphs: sizes are left out to keep within "
                "capture_budget; batches are padded to the next larger size that is captured, or "
                f"run eagerly where there is none\n{self.plan}",
                RuntimeWarning,
                stacklevel=4,
            )

    def _planner(self, keys: Sequence[GraphKey]) -> CapturePlanner | None:
        """Return what chooses the sizes; ``None`` where the configuration has no budget."""
        budget = self.compiled.config.capture_budget
        if budget is None:
            return None
        others = (plan.used for plan in self.compiled.capture_plans)
        used = sum(others, CaptureCost(streams=0, num_bytes=0))
        sizes = [key.num_tokens for key in keys]
        return CapturePlanner(self.compiled.device, sizes, budget=budget.left_by(used))

    def _to_capture(
        self, keys: Sequence[GraphKey], planner: CapturePlanner | None
    ) -> Iterator[GraphKey]:
        if planner is None:
            yield from largest_first(keys)
            return
        while (size := planner.next_size()) is not None:
            yield self._all_keys[size]

    def _follow(self, plan: CapturePlan, on_forecast: Callable[[CapturePlan], None] | None) -> None:
        """Take over what a planner knows now."""
        had_none = self.plan is None or self.plan.forecast is None
        self.compiled.note_plan(plan, before=self.plan)
        self.plan = plan
        if on_forecast is not None and had_none and plan.forecast is not None:
            on_forecast(plan)

    def _give_up(self, key: GraphKey) -> None:
        self.compiled.release([key])
        self._captured.discard(key)

    def _skip(self, key: GraphKey, error: DeviceError) -> None:
        self._give_up(key)
        # Its frames hold tensors of the capture, and memory is what is short.
        error.__cause__ = error.__context__ = None
        self.skipped[key.num_tokens] = error.with_traceback(None)
        self._leave_pending(key)

    def _warn_of_skipped(self, size: int, error: DeviceError) -> None:
        padded = self.padded_size(size)
        instead = f"are padded to {padded}" if padded in self.keys else "run eagerly"
        warnings.warn(
            f"capturing the {self._what} graph of {size} rows: {error}; the size is left out, "
            f"batches of up to {size} rows that no smaller size fits {instead}",
            RuntimeWarning,
            stacklevel=5,
        )

    def capture_one(self, key: GraphKey, mode: RunMode | None = None) -> None:
        """Capture the graph of a key, inside a capture session, over a step of padding.

        The warm-up runs write where the static inputs say. Those hold the batch that was served
        last, or nothing that was ever declared, so they are filled with padding first.

        Args:
            key: of the graph.
            mode: in place of the run mode of the key's steps.

        Raises:
            OutputError: an output does not have one row for each padded row, or each sequence.
        """
        step = self.padding_step(key, self._modes[key] if mode is None else mode)
        self.own_rows(step(), own=self._step_sizes[key], key=key)

    def key_of(self, num_rows: int, agreed: AgreedStep | None) -> GraphKey | None:
        """Return the key of a step, or ``None`` where it is to run eagerly.

        Args:
            num_rows: of the batch.
            agreed: what ranks agreed on; ``None`` where there is nothing to agree on.

        Raises:
            InputError: there is no row, or ranks agreed on what these steps are not captured for.
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
        if key is None or agreed.mode is not self._modes[key]:
            modes = {self._modes[each].value for each in self.keys.values()}
            raise InputError(
                f"running a {self._what} step: ranks agreed on mode {agreed.mode.value!r} and "
                f"{agreed.bucket} rows, expected mode {' or '.join(map(repr, sorted(modes)))} and "
                f"one of {sorted(self.keys)}; give the agreement the capture sizes of this runner, "
                "and run the step by the runner of the mode that was agreed on"
            )
        return key

    def check(
        self, key: GraphKey, inputs: Mapping[str, Tensor], *, may_be_idle: bool = False
    ) -> StepSize:
        """Return the size of a step that is to run under a key; nothing is launched.

        Args:
            key: of the graph.
            inputs: of the step.
            may_be_idle: whether there may be no row.

        Raises:
            InputError: as for :meth:`PackedLayout.check`.
            RunnerStateError: nothing is captured, and the steps do not run eagerly.
        """
        least = 0 if may_be_idle else 1
        own = self._inputs.check(inputs, size=self._step_sizes[key], least=least)
        if self.is_to_capture and not self._is_captured:
            raise RunnerStateError(
                f"running a {self._what} step: the {self._what} graphs are not captured; call "
                "capture() first"
            )
        return own

    def own_rows(self, output: Any, *, own: StepSize, key: GraphKey | None) -> Any:
        """Return what the model returned for a step without the rows of padding.

        Args:
            output: of the model.
            own: size of the batch.
            key: of the graph; ``None`` where it was run as it is.

        Raises:
            OutputError: as for `npu_compile.runners.own_rows`.
        """
        padded = own if key is None else self._step_sizes[key]
        if not self._outputs_by_sequence:
            padded = padded._replace(sequences=0)
        return own_rows(output, own=own, padded=padded)

    def size_limit(self) -> str:
        """Return what a step is larger than that no capture size fits; empty without sizes."""
        return f"every capture size (largest: {max(self.keys)})" if self.keys else ""

    def load_and_call(self, key: GraphKey, inputs: Mapping[str, Tensor], own: StepSize) -> Any:
        """Pad a step that was checked and run it; return what the model returns for all rows."""
        self._inputs.load_checked(inputs, own=own, size=self._step_sizes[key])
        return self._call(key)

    def statistics(self) -> RunnerStatistics:
        """Return how the steps so far met the capture sizes."""
        return self.counts.statistics(lambda size: self._modes[self._all_keys[size]])

    def note_eager(self, num_rows: int, limit: str, agreed: AgreedStep | None) -> None:
        """Count a step that ran as it is.

        Args:
            num_rows: of the batch.
            limit: what it is larger than, if it is.
            agreed: what ranks agreed on.
        """
        if limit:
            reason = f"larger than {limit}"
        elif agreed is not None:
            reason = "as ranks agreed"
        elif self._all_keys:
            reason = "before any size was captured"
        else:
            reason = "without a capture size"
        self.counts.note(num_rows, reason)

    def warn_of_missed(self) -> None:
        """Warn once if most of many steps is padding, when all sizes are captured."""
        if self.pending or "padding" in self._warned_of:
            return
        missed = self.counts.often_missed(self.padded_size)
        if missed is None:
            return
        self._warned_of.add("padding")
        size, happened = missed
        prefix = "prefill_" if self._what == "prefill" else ""
        remedy = f"add {size} to {prefix}capture_sizes"
        if size in self._all_keys:
            remedy = f"size {size} was left out, see skipped_sizes and capture_plan of the runner"
        warnings.warn(
            f"running {self._what} steps: {happened}, most often from {size}; {remedy} (said once)",
            RuntimeWarning,
            stacklevel=4,
        )

    def run_compared(self, key: GraphKey, step: Callable[[], _Result], own: StepSize) -> _Result:
        """Run a step under a key with `shadow`, which compares it if it is its turn.

        Args:
            key: of the graph.
            step: runs it.
            own: size of the batch.

        Raises:
            ShadowDifferenceError: the graph gave something else than the eager run.
        """
        if self.shadow is None or self._modes[key] is RunMode.EAGER:
            return step()
        result: _Result = self.shadow.run(step, num_tokens=own.tokens)
        return result

    def call_eagerly(
        self,
        inputs: Mapping[str, Tensor],
        batch: str,
        *,
        limit: str = "",
        remedy: str = "add a capture size",
    ) -> Any:
        """Run a step eagerly, as it is; warn once for each limit that is the reason.

        Args:
            inputs: its inputs.
            batch: how large it is, for the warning.
            limit: what it is larger than, if it is.
            remedy: what helps.

        Raises:
            InputError: as for :meth:`PackedLayout.check`; nothing was launched.
        """
        self._inputs.check(inputs, size=_ANY_SIZE)
        if limit and limit not in self._warned_of:
            self._warned_of.add(limit)
            warnings.warn(
                f"running a {self._what} batch of {batch}: it is larger than {limit}, so it runs "
                f"eagerly; {remedy} if such batches are common (said once)",
                RuntimeWarning,
                stacklevel=3,
            )
        placed = self._inputs.place(inputs)
        with self.compiled.context.run(RunMode.EAGER):
            return self.compiled(**placed)

    def release(self) -> None:
        """Wait for the device and tear these graphs down; others of the model stay."""
        self.compiled.release(self._captured)
        self._captured.clear()
        self._is_captured = False
        self.skipped.clear()
        self.compiled.note_plan(None, before=self.plan)
        self.plan = None
        self.pending = ()
        self._run_under(self._all_keys)
        self.choices.clear()
        self._modes = dict.fromkeys(self.keys.values(), self.run_modes[0])

    def _call(self, key: GraphKey, mode: RunMode | None = None) -> Any:
        with self.compiled.context.run(self._modes[key] if mode is None else mode, key):
            return self.compiled(**self._inputs.views(self._step_sizes[key]))
