"""Base of the decode and prefill runners: capture by size, then pad, load, replay and update."""

from __future__ import annotations

import dataclasses
import time
import warnings
from collections.abc import Mapping
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol

from npu_compile.errors import InputError, RunnerStateError
from npu_compile.runners.capture_schedule import CaptureSchedule
from npu_compile.runners.padded_steps import PaddedSteps
from npu_compile.runners.runner_arguments import require_prepare
from npu_compile.runners.runner_statistics import RunnerStatistics, StepCounts
from npu_compile.runners.step_capture import StepCapture
from npu_graph_runtime import RunMode
from npu_graph_runtime.diagnosis import ShadowValidation

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor

    from attn_update import Lengths, UpdatePlan
    from npu_compile.compilation.compiled_model import CompiledModel
    from npu_compile.inputs.input_spec import StepSize
    from npu_compile.runners.recorded_plans import RecordedPlans
    from npu_compile.runners.step_form import StepForm
    from npu_graph_runtime import AgreedStep, Exchange, GraphKey
    from npu_graph_runtime.errors import DeviceError
    from npu_graph_runtime.planning import CapturePlan, RunModeChoice


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class DecodeStep:
    """The host time of one decode step.

    Attributes:
        num_rows: rows of the batch.
        padded_size: rows after padding; equal to ``num_rows`` if no bucket fits.
        run_mode: how the step ran.
        seconds: host time from the call to its return.
        update_seconds: the part spent on launching attention updates; 0 outside run mode ``FULL``.
    """

    num_rows: int
    padded_size: int
    run_mode: RunMode
    seconds: float
    update_seconds: float


class DecodeObserver(Protocol):
    """Receives every decode step, on the thread that runs it."""

    def observe_decode(self, step: DecodeStep, /) -> None:
        """Handle one step; called when its work is queued, not when it is done."""


class StepRunner:
    """Runs the steps of one compiled model with captured graphs; see its subclasses.

    Args:
        run_modes: how steps are captured and replayed. If there are several, each size gets the one
            that is measured to be the fastest.
        plans: the update plans of graphs in run mode ``FULL``.
        set_lengths: sets the attention lengths of a step that is not updated.
        call: what a step runs; the model by default.
    """

    def __init__(
        self,
        compiled: CompiledModel,
        form: StepForm,
        *,
        run_modes: Sequence[RunMode],
        sizes: Sequence[int],
        plans: RecordedPlans,
        set_lengths: Callable[[Mapping[str, Mapping[str, Lengths]]], None] | None,
        observer: DecodeObserver | None = None,
        call: Callable[..., Any] | None = None,
    ) -> None:
        keys = {size: form.key(size) for size in sizes}
        self.compiled = compiled
        self._form = form
        self._schedule = CaptureSchedule(compiled, run_modes, keys, what=form.what)
        self._steps = PaddedSteps(compiled, form, keys.values(), call)
        self._plans = plans
        self._set_lengths = set_lengths
        self._observer = observer
        self._counts = StepCounts(form.what)
        self._warned_of: set[str] = set()
        every, graphed = compiled.config.shadow_every, compiled.graphed_callables
        self._shadow = ShadowValidation(graphed, every=every) if every and graphed else None

    @property
    def skipped_sizes(self) -> Mapping[int, DeviceError]:
        """Capture sizes that the device rejected, each with its error.

        Always empty unless ``capture_failure="skip_size"``.
        """
        return MappingProxyType(self._schedule.skipped)

    @property
    def pending_sizes(self) -> tuple[int, ...]:
        """Capture sizes that are not captured yet, the largest first; see :meth:`capture_next`."""
        return tuple(key.num_tokens for key in self._schedule.pending)

    @property
    def capture_plan(self) -> CapturePlan | None:
        """The cost of the captures, and the sizes that exceed ``capture_budget``, with reasons.

        ``None`` without a budget, and before :meth:`capture`.
        """
        return self._schedule.plan

    @property
    def run_mode_choices(self) -> Mapping[int, RunModeChoice]:
        """The measured cost of each capture size in each run mode, and the chosen mode.

        Always empty unless ``mode="measured"``, and before :meth:`capture`.
        """
        return MappingProxyType(self._schedule.choices)

    @property
    def update_plans(self) -> Mapping[GraphKey, UpdatePlan]:
        """The update plans of the captured graphs; always empty outside run mode ``FULL``."""
        return MappingProxyType(self._plans.by_key)

    def statistics(self) -> RunnerStatistics:
        """Return how the steps so far used the capture sizes: hits, padding, and eager steps.

        Steps are counted since the runner was created, also across :meth:`release`. Failed steps
        are not counted.
        """
        schedule = self._schedule
        return self._counts.statistics(lambda size: schedule.modes[schedule.all_keys[size]])

    def padded_size(self, num_rows: int) -> int:
        """Return the capture size that a batch is padded to: the number of rows the model sees.

        Returns ``num_rows`` if no capture size is large enough.
        """
        return self._schedule.padded_size(num_rows)

    def split_rows(self, num_rows: int) -> tuple[int, ...]:
        """Return how to run a batch: as one step, or as two if those are faster.

        Padding a batch to the next capture size may cost more than two smaller steps. The decision
        uses the times that mode ``measured`` took at capture; in other modes the batch is one step.
        Run the parts one after another, and copy or use the output of the first before you run the
        second.

        Args:
            num_rows: rows of the batch.

        Returns:
            The rows of each step, in order; they add up to ``num_rows``. Each has whole sequences
            if all sequences have the same number of rows.
        """
        schedule = self._schedule
        if not schedule.choices:
            return (num_rows,)
        seconds = {size: choice.chosen_seconds for size, choice in schedule.choices.items()}
        parts: tuple[int, ...] = (num_rows,)
        least = seconds.get(schedule.padded_size(num_rows), 0.0)
        for first, cost in seconds.items():
            if first < num_rows:
                both = cost + seconds.get(schedule.padded_size(num_rows - first), least)
                if both < least:
                    parts, least = (first, num_rows - first), both
        return parts

    def padded_sequences(self, size: int) -> int:
        """Return the number of sequences of a captured step, including padding.

        Args:
            size: its rows, a capture size.
        """
        return self._form.step_size(size).sequences

    def capture(
        self,
        prepare: Callable[[int], object],
        *,
        on_captured: Callable[[int, int, int], None] | None = None,
        on_forecast: Callable[[CapturePlan], None] | None = None,
        exchange: Exchange | None = None,
    ) -> None:
        """Capture a graph for every capture size, the largest first; nothing in mode ``eager``.

        The static buffers contain only padding, so warm-up runs write where padded rows write.

        Args:
            prepare: called with each size before the model runs. It must set attention lengths for
                that many padded rows, in :meth:`padded_sequences` sequences. If prefill
                runs in segments or eagerly, lengths of no sequence are enough. With
                `producers` it returns the lengths, by parameter group.
            on_captured: called after each size with (size, sizes done, total sizes).
            on_forecast: called once with the plan if the configuration has a ``capture_budget``,
                when two sizes are captured and the total is forecast.
            exchange: a host collective, for ranks that must choose the same modes in mode
                ``measured``:
                all ranks whose steps contain collectives, see
                `npu_graph_runtime.planning.RunModeChooser`.

        Raises:
            ConfigError: No size fits ``capture_budget``, or ``prepare`` is not callable, or
                returns no lengths though there are `producers`.
            RunnerStateError: This runner, or another one of the model, has captured already.
                Captured graphs stay as they are.
            DeviceError: The device rejected a capture, and the configuration does not skip the
                size.
                Captured graphs were released.
            OutputError: An output of the model does not have one row for each row, or each
                sequence, of the batch.
            UpdateError: An update of an earlier step failed in the lane's thread.
        """
        require_prepare(f"capturing the {self._form.what} graphs", prepare)
        if not self._schedule.is_to_capture:
            return
        self._schedule.begin()
        try:
            capture = StepCapture(self._steps, self._plans, prepare)
            self._schedule.capture(
                capture, on_captured=on_captured, on_forecast=on_forecast, exchange=exchange
            )
        except BaseException:
            self.release()
            raise

    def capture_next(
        self, prepare: Callable[[int], object], *, exchange: Exchange | None = None
    ) -> int | None:
        """Capture the largest remaining size, for engines that serve in the meantime.

        Call it once before the first step, and then between steps, on the same thread, whenever you
        have time. It waits for the device, and no step can be queued until it returns. Until a size
        is captured, its batches are padded to the next larger captured size, or run eagerly if
        there is none. See :attr:`pending_sizes` and the observer's steps.

        Note [captures between steps]. Capturing in a second thread would gain little and be risky.
        A capture is Python code, which holds the GIL while steps need it. By default (in CANN and
        torch_npu), a capture forbids synchronous copies and similar calls in all threads; its other
        modes forbid them in the capturing thread, or nowhere. And torch_npu launches for all host
        threads from the single thread of its task queue.

        Args:
            prepare: as for :meth:`capture`.
            exchange: as for :meth:`capture`. Ranks that run collectives must capture a size at
                the same time.

        Returns:
            The size that steps may use now, or ``None`` if none is left.

        Raises:
            ConfigError: There is a ``capture_budget``.
            RunnerStateError: Another runner of the model has captured the same sizes.
            DeviceError: The device rejected the size, which the next call tries again; or it
                rejected all sizes, and the configuration skips them. Captured graphs stay.
            OutputError: as for :meth:`capture`.
            UpdateError: as for :meth:`capture`.
        """
        require_prepare(f"capturing the {self._form.what} graphs", prepare)
        if not self._schedule.is_to_capture:
            return None
        capture = StepCapture(self._steps, self._plans, prepare)
        return self._schedule.capture_next(capture, exchange=exchange)

    def run(
        self,
        inputs: Mapping[str, Tensor],
        lengths: Mapping[str, Mapping[str, Lengths]],
        *,
        agreed: AgreedStep | None = None,
    ) -> Any:
        """Run one step and return the model's output for the batch's own rows.

        Returns when the work is queued. The host waits only if it is ahead of the device by more
        steps than there are copies of the input buffers.

        Failures on the device after that are raised by the next synchronisation, such as the one
        that reads the sampled tokens. A device stops at its first failure, so the process has to
        end. If you reset the device instead (``torch.npu.stop_device`` and ``restart_device``, an
        experimental feature of CANN), call :meth:`release` and :meth:`capture` before the next
        step. An interrupted replay may leave events set, and the next replay would then read the
        lengths of an earlier step.

        Args:
            inputs: for each declared input a tensor ``[rows, ...]``. A CPU tensor may be changed as
                soon as this returns. A device tensor, such as the tokens just sampled, is read in
                the order of the current stream, without a host wait.
            lengths: values by parameter group and argument name. For the padded size if all
                sequences have the same number of rows; for the unpadded batch if they have any
                number.
            agreed: the agreement of all ranks for this step (`npu_graph_runtime.RankAgreement`).
                The batch is then padded to the agreed bucket, and may have no rows on an idle rank.
                If ranks agreed to run eagerly, an idle rank must pass rows of padding itself.

        Returns:
            The model's output on the device: each tensor is ``[rows, ...]``, or ``[sequences,
            ...]`` if all sequences have the same number of rows. After a replay the tensors are
            views of the graph's memory, which the next step overwrites.

        Raises:
            InputError: An input does not match its declaration, rows and sequences do not match
                each other, or the lengths are no mapping; nothing was launched.
            StepParameterError: The lengths do not fit, or need more than a bound of a producer;
                nothing was launched.
            ProducerError: A producer failed; nothing was replayed.
            OutputError: An output does not have one row for each row, or each sequence.
            ShadowDifferenceError: The step was compared (``shadow_every``), and the results of its
                graph and its eager run differ.
            RunnerStateError: The graphs are not captured; or, in mode ``full``, the batch is to run
                eagerly and there is no ``set_lengths``. Nothing was launched.
        """
        observer = self._observer
        started = 0.0 if observer is None else time.perf_counter()
        own = self._form.given(inputs)
        # isinstance of an abstract class is slow, and every step runs this.
        if type(lengths) is not dict and not isinstance(lengths, Mapping):
            raise InputError(
                f"running a step of {own.tokens} rows: lengths is {lengths!r}, expected values by "
                "parameter group and argument name; pass {} if attention needs none"
            )
        num_rows = own.tokens
        key = self._schedule.key_of(num_rows, agreed)
        mode, update_seconds = RunMode.EAGER, 0.0
        if key is None or (agreed is None and own.sequences > self._form.max_sequences):
            output = self._run_eagerly(inputs, lengths, own, key, agreed)
            key = None
        else:
            mode = self._schedule.modes[key]
            own = self._steps.check(key, inputs, least=1 if agreed is None else 0)
            self._schedule.require_captured()
            if self._shadow is None and mode is RunMode.FULL:
                output, update_seconds = self._run_updated(key, inputs, own, lengths)
            else:
                output, update_seconds = self._run_padded(key, mode, inputs, own, lengths)
            if self._counts.note(num_rows, key.num_tokens):
                self._warn_of_missed()
        if observer is not None:
            observer.observe_decode(
                DecodeStep(
                    num_rows=num_rows,
                    padded_size=num_rows if key is None else key.num_tokens,
                    run_mode=mode,
                    seconds=time.perf_counter() - started,
                    update_seconds=update_seconds,
                )
            )
        return self._steps.own_rows(output, own=own, key=key)

    def release(self) -> None:
        """Wait for the device and release graphs, plans and records; you can capture again.

        Graphs of the model that others captured stay.
        """
        self._schedule.release()
        self._plans.clear()

    def _run_updated(
        self,
        key: GraphKey,
        inputs: Mapping[str, Tensor],
        own: StepSize,
        lengths: Mapping[str, Mapping[str, Lengths]],
    ) -> tuple[Any, float]:
        """Replay a step and update its attention; return the output and the update's seconds."""
        replayed = 0.0

        def replay() -> Any:
            nonlocal replayed
            output = self._steps.load_and_call(key, RunMode.FULL, inputs, own)
            replayed = time.perf_counter()
            return output

        output = self._plans.run(key, lengths, replay)
        return output, time.perf_counter() - replayed

    def _run_padded(
        self,
        key: GraphKey,
        mode: RunMode,
        inputs: Mapping[str, Tensor],
        own: StepSize,
        lengths: Mapping[str, Mapping[str, Lengths]],
    ) -> tuple[Any, float]:
        """Run a padded step that reads lengths eagerly, or that may be compared with eager."""
        shadow = None if mode is RunMode.EAGER else self._shadow
        if self._set_lengths is not None and (
            mode is not RunMode.FULL or (shadow is not None and shadow.is_next)
        ):
            self._set_lengths(lengths)
        if mode is not RunMode.FULL:
            self._make_metadata(lengths, own, key)
            call = partial(self._steps.load_and_call, key, mode, inputs, own)
            return call() if shadow is None else shadow.run(call, num_tokens=own.tokens), 0.0
        replay = partial(self._run_updated, key, inputs, own, lengths)
        assert shadow is not None  # noqa: S101
        compared: tuple[Any, float] = shadow.run(replay, num_tokens=own.tokens)
        return compared

    def _run_eagerly(
        self,
        inputs: Mapping[str, Tensor],
        lengths: Mapping[str, Mapping[str, Lengths]],
        own: StepSize,
        key: GraphKey | None,
        agreed: AgreedStep | None,
    ) -> Any:
        """Run a batch eagerly, because no captured step fits or because ranks agreed to."""
        batch, remedy, limit = f"{own.tokens} rows", "add a capture size", ""
        reason = "before any size was captured"
        if agreed is not None:
            reason = "as ranks agreed"
        elif key is not None:
            batch, remedy = f"{own.sequences} sequences", "give the runner a larger one"
            limit = f"max_sequences ({self._form.max_sequences})"
        elif self._schedule.keys:
            limit = f"every capture size (largest: {max(self._schedule.keys)})"
        elif not self._schedule.all_keys:
            reason = "without a capture size"
        if limit:
            reason = f"larger than {limit}"
        self._steps.check(None, inputs, least=1)
        if self._set_lengths is not None:
            self._set_lengths(lengths)
        elif RunMode.FULL in self._schedule.run_modes and (
            self._plans.updating(lengths)
            or any(plan.updates for plan in self._plans.by_key.values())
        ):
            why = f"it is {reason}" if limit else reason
            raise RunnerStateError(
                f"running a {self._form.what} batch of {batch} in mode 'full': it would run "
                f"eagerly ({why}), and nothing would show its lengths to attention; pass "
                "set_lengths to the runner, or add a capture size"
            )
        self._make_metadata(lengths, own, None)
        output = self._steps.call_eagerly(inputs)
        if limit and limit not in self._warned_of:
            self._warned_of.add(limit)
            warnings.warn(
                f"running a {self._form.what} batch of {batch}: it is {reason}, so it runs "
                f"eagerly; {remedy} if such batches are common (said once)",
                RuntimeWarning,
                stacklevel=3,
            )
        self._counts.note(own.tokens, reason)
        return output

    def _make_metadata(
        self,
        lengths: Mapping[str, Mapping[str, Lengths]],
        own: StepSize,
        key: GraphKey | None,
    ) -> None:
        """Make the metadata of a step that does not replay as one graph."""
        size = self._form.shown_size(own, key)
        if size.tokens:
            self._plans.make_metadata(lengths, size)

    def _warn_of_missed(self) -> None:
        """Warn once if most of many steps is padding, after all sizes are captured."""
        if self._schedule.pending or "padding" in self._warned_of:
            return
        missed = self._counts.often_missed(self.padded_size)
        if missed is None:
            return
        self._warned_of.add("padding")
        size, happened = missed
        what = self._form.what
        remedy = f"add {size} to {'prefill_' if what == 'prefill' else ''}capture_sizes"
        if size in self._schedule.all_keys:
            remedy = f"size {size} was left out, see skipped_sizes and capture_plan of the runner"
        warnings.warn(
            f"running {what} steps: {happened}, most often from {size}; {remedy} (said once)",
            RuntimeWarning,
            stacklevel=3,
        )
