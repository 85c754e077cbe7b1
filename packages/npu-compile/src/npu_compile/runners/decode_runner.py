"""The decode runner: pads a batch to its bucket, loads static buffers, replays, updates."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol

from attn_update import Recorder, StepParameters, UpdateLane, UpdatePlan
from npu_compile.errors import ConfigError, RunnerStateError
from npu_compile.runners.captured_steps import RecordedPlans
from npu_compile.runners.runner_arguments import (
    require_callable,
    require_instance,
    require_model_and_inputs,
    require_prepare,
)
from npu_compile.runners.sized_steps import SizedSteps
from npu_compile.runners.step_form import StepForm
from npu_graph_runtime import RunMode, RunModeCandidate

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from attn_update import Lengths, ParameterGroup
    from npu_compile.compilation.compiled_model import CompiledModel
    from npu_compile.inputs.input_spec import InputSpec
    from npu_compile.inputs.step_size import StepSize
    from npu_compile.runners.runner_statistics import RunnerStatistics
    from npu_graph_runtime import (
        AgreedStep,
        CapturePlan,
        DeviceError,
        Exchange,
        GraphKey,
        RunModeChoice,
    )


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class DecodeStep:
    """What one decode step cost the host.

    Attributes:
        num_rows: rows of the batch.
        padded_size: rows after padding; equal to ``num_rows`` where no bucket fits.
        run_mode: how the step ran.
        seconds: host time from the call to its return.
        update_seconds: the part that issued attention updates; 0 outside run mode ``FULL``.
    """

    num_rows: int
    padded_size: int
    run_mode: RunMode
    seconds: float
    update_seconds: float


class DecodeObserver(Protocol):
    """Is told of every decode step, on the thread that runs it."""

    def observe_decode(self, step: DecodeStep, /) -> None:
        """Take note of one step; called when its work is queued, not when it is done."""


class DecodeRunner:
    """Runs the decode steps of one compiled model: of one row a sequence, or of several.

    Steps that verify the drafts of speculative decoding have ``1 + num_draft_tokens`` rows a
    sequence (`query_length`). Steps of an encoder have any number, packed into a budget of rows
    (`query_length` ``None``, see `pack_sequences`). All draft steps of a draft model may be one
    step here, with a parameter group for each, see `draft_lengths`.

    Owns the static input buffers and the update plans. The caller owns the recorder that the
    model's attention runs through, and the lane, which all runners of a device share.

    Use: :meth:`capture` once; then for each step ask :meth:`padded_size`, pad the step's lengths to
    it, and :meth:`run`.

    Args:
        compiled: the model; its configuration names the capture sizes, in rows, and the mode.
        inputs: the model's arguments: tensors of one row a token, or, where declared
            ``per_sequence``, of one row a sequence.
        recorder: what attention runs through; needed where the run mode is ``FULL``.
        lane: the update lane of the device; needed where the run mode is ``FULL``.
        groups: the parameter groups of the update plans, as for ``UpdatePlan.compile``.
        observer: told of every step.
        set_lengths: makes attention see the lengths of a step that does not get them by an update:
            called before each one that runs eagerly or in segments, or is compared
            (``shadow_every``), with what :meth:`run` was given. Without it the caller does that
            before :meth:`run`, and run mode ``FULL`` refuses a batch that is larger than every
            capture size.
        query_length: rows that each sequence brings, at least 1. Capture sizes are rounded to
            multiples of it, none above the largest of them. ``None`` where sequences
            bring any number; then lengths are those of the batch as it is, and the groups pad
            them (``ParameterGroup(pad=True)``).
        max_sequences: only, and needed, where `query_length` is ``None``: sequences that a captured
            step holds besides one of padding; batches of more run eagerly.

    Attributes:
        compiled: as given.

    Raises:
        ConfigError: a capturing mode without capture sizes, or without one of `query_length` rows;
            mode ``full`` without recorder or lane; mode ``measured``, or ``shadow_every`` in mode
            ``full``, without ``set_lengths``; a `query_length` or `max_sequences` that is out of
            range or not needed; no input of one row a token; an argument of the wrong type, or
            inputs that are not the model's.
    """

    def __init__(
        self,
        compiled: CompiledModel,
        *,
        inputs: Mapping[str, InputSpec],
        recorder: Recorder | None = None,
        lane: UpdateLane | None = None,
        groups: Mapping[str, ParameterGroup] | None = None,
        observer: DecodeObserver | None = None,
        set_lengths: Callable[[Mapping[str, Mapping[str, Lengths]]], None] | None = None,
        query_length: int | None = 1,
        max_sequences: int | None = None,
    ) -> None:
        doing = "making a decode runner"
        require_model_and_inputs(doing, compiled, inputs)
        remedy = "make it of the device, and pass the object"
        require_instance(doing, "recorder", recorder, Recorder, remedy)
        require_instance(doing, "lane", lane, UpdateLane, remedy)
        require_instance(doing, "groups", groups, Mapping, "name each ParameterGroup")
        if set_lengths is not None:
            require_callable(doing, "set_lengths", set_lengths, "leave it out without one")
        if observer is not None and not hasattr(observer, "observe_decode"):
            raise ConfigError(
                f"{doing}: the observer is {observer!r}, expected an object with a method "
                "observe_decode(step), see DecodeObserver"
            )
        self.compiled = compiled
        self._form = form = StepForm(inputs, query_length=query_length, max_sequences=max_sequences)
        self._set_lengths = set_lengths
        modes = compiled.config.decode_run_modes
        sizes = form.capture_sizes(compiled.config.capture_sizes)
        if modes != (RunMode.EAGER,) and not sizes:
            raise ConfigError(
                f"making a decode runner for mode {compiled.config.mode.value!r}: capture_sizes is "
                "empty, expected at least one size; name the batch sizes to capture"
            )
        if RunMode.FULL in modes and (recorder is None or lane is None):
            raise ConfigError(
                f"making a decode runner for mode {compiled.config.mode.value!r}: a recorder and "
                "an update lane are needed to rewrite attention's arguments at each replay; pass "
                "both"
            )
        if len(modes) > 1 and set_lengths is None:
            raise ConfigError(
                f"making a decode runner for mode {compiled.config.mode.value!r}: set_lengths is "
                "needed, since only the runner knows which steps run eagerly or in segments; pass "
                "what makes attention see the lengths of a step"
            )
        if RunMode.FULL in modes and compiled.config.shadow_every and set_lengths is None:
            raise ConfigError(
                "making a decode runner with shadow_every: set_lengths is needed, since a step "
                "that is compared runs eagerly too; pass what makes attention see its lengths"
            )
        self._lane = lane
        self._observer = observer
        self._steps = SizedSteps(
            compiled,
            modes,
            {size: form.key(size) for size in sizes},
            inputs=form.inputs,
            step_size=form.step_size,
            what=form.what,
            outputs_by_sequence=query_length is not None,
        )
        self._plans = RecordedPlans(recorder, lane, groups)

    @property
    def skipped_sizes(self) -> Mapping[int, DeviceError]:
        """Capture sizes that the device refused, each with its error.

        Empty but for ``capture_failure="skip_size"``.
        """
        return MappingProxyType(self._steps.skipped)

    @property
    def pending_sizes(self) -> tuple[int, ...]:
        """Capture sizes that are not captured yet, the largest first; see :meth:`capture_next`."""
        return tuple(key.num_tokens for key in self._steps.pending)

    @property
    def capture_plan(self) -> CapturePlan | None:
        """What the captures take, and which sizes ``capture_budget`` does not hold, with reasons.

        ``None`` without a budget, and before :meth:`capture`.
        """
        return self._steps.plan

    @property
    def run_mode_choices(self) -> Mapping[int, RunModeChoice]:
        """What each capture size was measured to cost in which run mode, and which was chosen.

        Empty but for ``mode="measured"``, and before :meth:`capture`.
        """
        return MappingProxyType(self._steps.choices)

    @property
    def update_plans(self) -> Mapping[GraphKey, UpdatePlan]:
        """The update plans of the captured graphs; empty but in run mode ``FULL``."""
        return MappingProxyType(self._plans.by_key)

    def statistics(self) -> RunnerStatistics:
        """Return how the steps so far met the capture sizes: hits, padding, and eager steps.

        They are counted since the runner was made, also across :meth:`release`. Steps that failed
        are left out.
        """
        return self._steps.statistics()

    def padded_size(self, num_rows: int) -> int:
        """Return the bucket of a batch: the rows that the model will see.

        That is ``num_rows`` itself where no capture size is large enough.
        """
        return self._steps.padded_size(num_rows)

    def padded_sequences(self, size: int) -> int:
        """Return the sequences of a captured step, padding included.

        Args:
            size: its rows, a capture size.
        """
        return self._form.step_size(size).sequences

    def capture(
        self,
        prepare: Callable[[int], None],
        *,
        on_captured: Callable[[int, int, int], None] | None = None,
        on_forecast: Callable[[CapturePlan], None] | None = None,
        exchange: Exchange | None = None,
    ) -> None:
        """Capture a graph for every capture size, the largest first; nothing in mode ``eager``.

        The static buffers hold padding only, so what warm-up runs write goes where padded rows go.

        Args:
            prepare: called with each size before the model runs; must make attention see lengths
                of that many padded rows, in :meth:`padded_sequences` sequences.
            on_captured: called after each size with (size, sizes done, sizes in all).
            on_forecast: called once with the plan, where the configuration has a
                ``capture_budget``, when two sizes are captured and it says what all will take.
            exchange: a collective on the host, for ranks that in mode ``measured`` have to choose
                alike: all that hold collectives, see `npu_graph_runtime.RunModeChooser`.

        Raises:
            ConfigError: ``capture_budget`` holds none of the sizes; ``prepare`` is no function.
            RunnerStateError: captured already, by this runner or by another of the model; what is
                captured stays as it is.
            DeviceError: the device refused a capture, and the configuration does not skip the
                size; what was captured is released.
            OutputError: an output of the model does not have one row for each row, or each
                sequence, of the batch.
            UpdateError: an update of an earlier step failed in the lane's thread.
        """
        require_prepare("capturing the decode graphs", prepare)
        if not self._steps.is_to_capture:
            return
        self._steps.begin()
        try:
            self._plans.drain()
            self._steps.choose(prepare, partial(self._candidate, prepare), exchange)
            self._steps.capture(
                prepare, self._capture, on_captured, on_forecast, self._plans.forget
            )
        except BaseException:
            self.release()
            raise

    def capture_next(
        self, prepare: Callable[[int], None], *, exchange: Exchange | None = None
    ) -> int | None:
        """Capture the largest size that is not captured yet, for engines that serve meanwhile.

        Call it once before the first step and then between steps, on their thread, as often as the
        engine has time: it waits for the device, and no step can be queued until it returns. Until
        all sizes are captured a batch is padded to the next larger one that is, or runs eagerly
        where there is none; :attr:`pending_sizes` and the observer's steps say so.

        Note [captures between steps]. A thread beside the serving one would gain little and risk
        much. A capture is Python code, which holds the interpreter while steps want it. By CANN's
        default, which is torch_npu's too, a capture forbids synchronous copies and the like to all
        threads; its other modes forbid them to the capturing thread, or to none. And torch_npu
        launches for all host threads from the one thread of its task queue.

        Args:
            prepare: as for :meth:`capture`.
            exchange: likewise. Ranks that run collectives have to capture a size at the same time.

        Returns:
            The size that steps may use now; ``None`` where none is left.

        Raises:
            ConfigError: there is a ``capture_budget``.
            RunnerStateError: another runner of the model has captured the same sizes.
            DeviceError: the device refused the size, which the next call tries again; or it
                refused all, and the configuration skips them. What is captured stays.
            OutputError: as for :meth:`capture`.
            UpdateError: likewise.
        """
        require_prepare("capturing the decode graphs", prepare)
        if not self._steps.is_to_capture:
            return None
        self._plans.drain()
        return self._steps.capture_next(
            prepare,
            self._capture,
            self._plans.forget,
            lambda: self._steps.choose(
                prepare, partial(self._candidate, prepare), exchange, only_next=True
            ),
        )

    def run(
        self,
        inputs: Mapping[str, Tensor],
        lengths: Mapping[str, Mapping[str, Lengths]],
        *,
        agreed: AgreedStep | None = None,
    ) -> Any:
        """Run one step and return the model's output for the batch's own rows.

        Returns when the work is queued; the host waits only when it is further ahead of the device
        than the input buffers have copies.

        What fails on the device afterwards is not seen here: the next wait for the device raises
        it, such as that which reads the sampled tokens. A device stops at its first failure, so
        the process has to end. Where it makes the device work again
        (``torch.npu.stop_device`` and ``restart_device``, a trial feature of CANN), it calls
        :meth:`release` and :meth:`capture` before the next step: a replay that ended in its middle
        may leave events set by which the next one waits for its update, and would read the lengths
        of an earlier step.

        Args:
            inputs: for each declared input a tensor ``[rows, ...]``: on the CPU, and free to change
                when this returns; or on the device, such as the tokens just sampled, read in the
                order of the current stream and without a wait of the host.
            lengths: by parameter group and argument name, for the padded size; where sequences
                bring any number of rows, of the batch as it is.
            agreed: what this step's ranks agreed on (`npu_graph_runtime.RankAgreement`); then the
                batch is padded to its bucket and may be of no row, on an idle rank. Where it was
                agreed to run eagerly, an idle rank gives rows of padding itself.

        Returns:
            What the model returns, each tensor ``[rows, ...]``, or ``[sequences, ...]`` where all
            sequences bring `query_length` rows, on the device. In a capturing mode they are views
            of the graph's memory, which the next step overwrites.

        Raises:
            InputError: an input does not fit its declaration, or rows and sequences do not fit
                `query_length`; nothing was launched.
            StepParameterError: the lengths do not fit; nothing was launched.
            OutputError: an output does not have one row for each row, or each sequence.
            ShadowDifferenceError: the step was compared (``shadow_every``), and its graph gave
                something else than its eager run.
            RunnerStateError: the graphs are not captured; or in mode ``full`` the batch is to run
                eagerly and there is no ``set_lengths``; nothing was launched.
        """
        observer = self._observer
        started = time.perf_counter() if observer is not None else 0.0
        own = self._form.given(inputs)
        num_rows = own.tokens
        key = self._steps.key_of(num_rows, agreed)
        limit, batch = "", f"{num_rows} rows"
        if agreed is None and key is None:
            limit = self._steps.size_limit()
        elif agreed is None and (limit := self._form.sequence_limit(own)):
            key, batch = None, f"{own.sequences} sequences"
        update_seconds = 0.0
        mode = RunMode.EAGER
        if key is None:
            self._show_lengths(num_rows, lengths, f"it is larger than {limit}" if limit else "")
            output = self._steps.call_eagerly(inputs, batch, limit=limit)
            self._steps.note_eager(num_rows, limit, agreed)
        else:
            mode = self._steps.mode_of(key)
            checked = self._steps.check(key, inputs, may_be_idle=agreed is not None)
            shadow = self._steps.shadow
            if self._set_lengths is not None and (
                mode is not RunMode.FULL or (shadow is not None and shadow.is_next)
            ):
                self._set_lengths(lengths)
            if shadow is not None and mode is RunMode.FULL:
                replay = partial(self._replay, key, inputs, checked, lengths)
                output, update_seconds = self._steps.run_compared(key, replay, checked)
            elif shadow is not None:
                call = partial(self._steps.load_and_call, key, inputs, checked)
                output = self._steps.run_compared(key, call, checked)
            elif mode is RunMode.FULL:
                output, update_seconds = self._replay(key, inputs, checked, lengths)
            else:
                output = self._steps.load_and_call(key, inputs, checked)
            if self._steps.counts.note(num_rows, key.num_tokens):
                self._steps.warn_of_missed()
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
        """Wait for the device and tear down graphs, plans and records; may capture again.

        Those of this runner: graphs of the model that others captured stay.
        """
        self._steps.release()
        self._plans.clear()

    def _capture(self, key: GraphKey) -> None:
        if self._steps.mode_of(key) is not RunMode.FULL:
            self._steps.capture_one(key)
            return
        self._plans.capture(key, partial(self._steps.capture_one, key, RunMode.FULL))

    def _candidate(
        self, prepare: Callable[[int], None], key: GraphKey, mode: RunMode
    ) -> RunModeCandidate:
        """Return a way to run decode steps that is measured."""
        if mode is not RunMode.FULL:
            return self._steps.candidate(prepare, key, mode)
        lane = self._lane
        assert lane is not None  # noqa: S101
        replay = self._steps.padding_step(key, mode)
        steps: list[tuple[UpdatePlan, StepParameters]] = []

        def capture() -> None:
            self._plans.record(key, partial(self._steps.capture_one, key, RunMode.FULL))
            # A lane leaves alone what the step before gave, so two plans of the same lengths take
            # turns: each then updates everything, as steps of serving do.
            for _ in range(2):
                plan = self._plans.compile(key)
                steps.append((plan, _captured_parameters(plan)))

        def step() -> Any:
            steps.reverse()
            return lane.run(*steps[0], replay)

        def release() -> None:
            try:
                lane.drain()
            finally:
                self.compiled.release([key])
                self._plans.forget(key)

        return RunModeCandidate(step=step, capture=capture, release=release)

    def _show_lengths(
        self, num_rows: int, lengths: Mapping[str, Mapping[str, Lengths]], reason: str
    ) -> None:
        """Make attention see the lengths of a step that runs eagerly, and why it does."""
        if self._set_lengths is not None:
            self._set_lengths(lengths)
            return
        has_attention = bool(lengths) or any(plan.updates for plan in self._plans.by_key.values())
        if RunMode.FULL in self._steps.run_modes and has_attention:
            raise RunnerStateError(
                f"decoding a batch of {num_rows} rows in mode 'full': "
                f"{reason or 'ranks agreed so'}, so it would run eagerly, and nothing would show "
                "its lengths to attention; pass set_lengths to the runner, or add a capture size"
            )

    def _replay(
        self,
        key: GraphKey,
        inputs: Mapping[str, Tensor],
        own: StepSize,
        lengths: Mapping[str, Mapping[str, Lengths]],
    ) -> tuple[Any, float]:
        replayed = 0.0

        def replay() -> Any:
            nonlocal replayed
            output = self._steps.load_and_call(key, inputs, own)
            replayed = time.perf_counter()
            return output

        output = self._plans.run(key, lengths, replay)
        return output, time.perf_counter() - replayed


def _captured_parameters(plan: UpdatePlan) -> StepParameters:
    """Return the step parameters with which the launches of a plan were captured."""
    groups: dict[str, dict[str, Lengths]] = {}
    for update in plan.updates:
        group = plan.group_of(update.slot)
        names = plan.groups[group].arguments
        groups.setdefault(group, {name: update.launch[name] for name in names})
    return StepParameters(key=plan.key, groups=groups)
