"""The decode runner: pads a batch to its capture size, loads static buffers, replays, updates."""

from __future__ import annotations

from typing import TYPE_CHECKING

from npu_compile.configuration.config_values import is_whole
from npu_compile.errors import ConfigError
from npu_compile.runners.recorded_plans import RecordedPlans
from npu_compile.runners.runner_arguments import (
    require_callable,
    require_model_and_inputs,
    require_updates,
)
from npu_compile.runners.several_steps.repeated_steps import RepeatedSteps
from npu_compile.runners.step_form import StepForm
from npu_compile.runners.step_producers import require_produced_steps
from npu_compile.runners.step_runner import StepRunner
from npu_graph_runtime import RunMode

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from attn_update import Lengths, ParameterGroup, Recorder, UpdateLane
    from npu_compile.compilation.compiled_model import CompiledModel
    from npu_compile.inputs.input_spec import InputSpec
    from npu_compile.runners.several_steps.repeated_steps import Advance
    from npu_compile.runners.step_producers import StepProducers
    from npu_compile.runners.step_runner import DecodeObserver


class DecodeRunner(StepRunner):
    """Runs the decode steps of one compiled model, with one or several rows per sequence.

    - Plain decode has one row per sequence.
    - Steps that verify drafts have ``1 + num_draft_tokens`` rows per sequence (`query_length`).
    - Steps of an encoder have any number of rows per sequence, within a budget of rows
      (`query_length` ``None``, see `pack_sequences`).
    - All draft steps of a draft model can be one step here, with one parameter group each, see
      `draft_lengths`.

    With `steps` and `advance`, one replay runs several decode steps: the model runs `steps` times,
    and `advance` makes the inputs of each next step on the device. :meth:`run` takes the lengths of
    the first step, computes those of the others, and returns what `advance` returned,
    ``[rows, steps, ...]``. All sequences run all steps: cut off what follows the end of a sequence,
    and leave room for it in the cache. Positions and slots of those steps must be valid, such as a
    slot of padding, and lengths grow by up to ``steps - 1``.

    The runner owns the static input buffers and the update plans. You own the recorder, which the
    model's attention uses, and the lane, which all runners of a device share.

    Call :meth:`capture` once. Then, for each step, ask :meth:`padded_size`, pad the step's lengths
    to it, and call :meth:`run`.

    Args:
        compiled: the model. Its configuration has the capture sizes, in rows, and the mode.
        inputs: declarations of the model's arguments: tensors with one row per token or, if
            declared ``per_sequence``, one row per sequence.
        recorder: the recorder that attention uses; required for run mode ``FULL``.
        lane: the update lane of the device; required for run mode ``FULL``.
        groups: the parameter groups of the update plans, as for ``UpdatePlan.compile``.
        observer: receives every step.
        set_lengths: sets the lengths of attention for steps that are not updated: it is called with
            the ``lengths`` of :meth:`run` before each step that runs eagerly or in segments, or is
            compared (``shadow_every``). Without it, set them yourself before :meth:`run`; run mode
            ``FULL`` then rejects a batch that is larger than every capture size.
        query_length: rows of each sequence, at least 1. Capture sizes are rounded to multiples of
            it, none above the largest. ``None`` if sequences have any number of rows; lengths are
            then those of the unpadded batch, and the groups pad them
            (``ParameterGroup(pad=True)``).
        max_sequences: required if, and only if, `query_length` is ``None``: the number of sequences
            in a captured step, in addition to one of padding. Batches with more run eagerly.
        steps: decode steps of one replay; more than 1 need `advance`.
        advance: makes the inputs of the next step, see `Advance`. With it there may be inputs that
            the model does not take.
        growing: with `advance`: names of the lengths that count the tokens of each sequence in the
            cache, which grow by 1 at each step. A length of 0 stays 0: a row of padding has none.
        producers: makes metadata of attention on the device, see `StepProducers`; not with
            `advance`.

    Attributes:
        compiled: as given.

    Raises:
        ConfigError: A capturing mode has no capture sizes, or none for `query_length` rows; mode
            ``full`` has no recorder or lane; mode ``measured``, or ``shadow_every`` in mode
            ``full``, has no ``set_lengths``; `query_length` or `max_sequences` is out of range or
            not applicable; no input has one row per token; an argument has the wrong type; or the
            inputs do not match the model's arguments; there are several `steps` without `advance`,
            or `advance` with another `query_length`, or without ``set_lengths`` in a mode that
            needs it; or `producers` do not fit the other arguments.
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
        steps: int = 1,
        advance: Advance | None = None,
        growing: Collection[str] = (),
        producers: StepProducers | None = None,
    ) -> None:
        doing = "making a decode runner"
        _require_repeatable(steps, advance, growing, query_length)
        if producers is not None and advance is not None:
            raise ConfigError(
                f"{doing} with producers: expected no advance, since each of its {steps} steps "
                "needs metadata of lengths of its own, which producers make once for each replay; "
                "run one step a replay, or leave producers out"
            )
        require_model_and_inputs(doing, compiled, inputs, allows_more=advance is not None)
        if set_lengths is not None:
            require_callable(doing, "set_lengths", set_lengths, "leave it out without one")
        if observer is not None and not hasattr(observer, "observe_decode"):
            raise ConfigError(
                f"{doing}: the observer is {observer!r}, expected an object with a method "
                "observe_decode(step), see DecodeObserver"
            )
        form = StepForm(
            inputs,
            query_length=query_length,
            max_sequences=max_sequences,
            variant=() if advance is None else (f"{steps} steps",),
        )
        modes = compiled.config.decode_run_modes
        sizes = form.capture_sizes(compiled.config.capture_sizes)
        if modes != (RunMode.EAGER,) and not sizes:
            raise ConfigError(
                f"making a decode runner for mode {compiled.config.mode.value!r}: capture_sizes is "
                "empty, expected at least one size; name the batch sizes to capture"
            )
        require_updates(
            f"{doing} for mode {compiled.config.mode.value!r}",
            modes,
            recorder=recorder,
            lane=lane,
            groups=groups,
            remedy="pass both",
        )
        needs_lengths = len(modes) > 1 or (advance is not None and modes != (RunMode.FULL,))
        if needs_lengths and set_lengths is None:
            raise ConfigError(
                f"making a decode runner for mode {compiled.config.mode.value!r}: set_lengths is "
                "needed, since only the runner knows when a step runs eagerly or in segments; pass "
                "what makes attention see the lengths of a step"
            )
        if RunMode.FULL in modes and compiled.config.shadow_every and set_lengths is None:
            raise ConfigError(
                "making a decode runner with shadow_every: set_lengths is needed, since a step "
                "that is compared runs eagerly too; pass what makes attention see its lengths"
            )
        require_produced_steps(doing, producers, form, modes, compiled.config.shadow_every)
        plans, call = RecordedPlans(compiled, recorder, lane, groups, producers), None
        if advance is not None:
            repeated = RepeatedSteps(
                compiled,
                steps=steps,
                advance=advance,
                growing=growing,
                recorder=recorder,
                set_lengths=set_lengths,
            )
            plans, call = repeated.plans(lane, groups), repeated.call
            set_lengths = None if set_lengths is None else repeated.take_lengths
        super().__init__(
            compiled,
            form,
            run_modes=modes,
            sizes=sizes,
            plans=plans,
            set_lengths=set_lengths,
            observer=observer,
            call=call,
        )


def _require_repeatable(
    steps: int, advance: object, growing: Collection[str], query_length: int | None
) -> None:
    """See that steps follow one another by what is given for it."""
    doing = "making a decode runner"
    if not is_whole(steps, least=1):
        raise ConfigError(f"{doing}: steps is {steps!r}, expected a whole number of at least 1")
    if advance is None:
        if steps > 1 or growing:
            raise ConfigError(
                f"{doing} of {steps} steps: there is no advance, expected what makes the inputs of "
                "each next step; pass it, or leave steps and growing out"
            )
        return
    require_callable(doing, "advance", advance, "it makes the inputs of each next step")
    if query_length != 1:
        raise ConfigError(
            f"{doing} of {steps} steps: query_length is {query_length!r}, expected 1, since each "
            "step is one row a sequence"
        )
