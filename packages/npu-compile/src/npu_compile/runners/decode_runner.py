"""The decode runner: pads a batch to its capture size, loads static buffers, replays, updates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from attn_update import Recorder, UpdateLane
from npu_compile.errors import ConfigError
from npu_compile.runners.recorded_plans import RecordedPlans
from npu_compile.runners.runner_arguments import (
    require_callable,
    require_instance,
    require_model_and_inputs,
)
from npu_compile.runners.step_form import StepForm
from npu_compile.runners.step_runner import StepRunner
from npu_graph_runtime import RunMode

if TYPE_CHECKING:
    from collections.abc import Callable

    from attn_update import Lengths, ParameterGroup
    from npu_compile.compilation.compiled_model import CompiledModel
    from npu_compile.inputs.input_spec import InputSpec
    from npu_compile.runners.step_runner import DecodeObserver


class DecodeRunner(StepRunner):
    """Runs the decode steps of one compiled model, with one or several rows per sequence.

    - Plain decode has one row per sequence.
    - Steps that verify drafts have ``1 + num_draft_tokens`` rows per sequence (`query_length`).
    - Steps of an encoder have any number of rows per sequence, within a budget of rows
      (`query_length` ``None``, see `pack_sequences`).
    - All draft steps of a draft model can be one step here, with one parameter group each, see
      `draft_lengths`.

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

    Attributes:
        compiled: as given.

    Raises:
        ConfigError: A capturing mode has no capture sizes, or none for `query_length` rows; mode
            ``full`` has no recorder or lane; mode ``measured``, or ``shadow_every`` in mode
            ``full``, has no ``set_lengths``; `query_length` or `max_sequences` is out of range or
            not applicable; no input has one row per token; an argument has the wrong type; or the
            inputs do not match the model's arguments.
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
        form = StepForm(inputs, query_length=query_length, max_sequences=max_sequences)
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
        super().__init__(
            compiled,
            form,
            run_modes=modes,
            sizes=sizes,
            plans=RecordedPlans(recorder, lane, groups),
            set_lengths=set_lengths,
            observer=observer,
        )
