"""The prefill runner: pads prefill and mixed batches to a number of tokens, and replays them."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from npu_compile.configuration.config_values import is_whole
from npu_compile.errors import ConfigError
from npu_compile.runners.recorded_plans import RecordedPlans
from npu_compile.runners.runner_arguments import (
    require_callable,
    require_model_and_inputs,
    require_updates,
)
from npu_compile.runners.step_form import PrefillForm
from npu_compile.runners.step_producers import require_produced_steps
from npu_compile.runners.step_runner import StepRunner

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from attn_update import Lengths, ParameterGroup, Recorder, UpdateLane
    from npu_compile.compilation.compiled_model import CompiledModel
    from npu_compile.inputs.input_spec import InputSpec
    from npu_compile.runners.step_producers import StepProducers


class PrefillRunner(StepRunner):
    """Runs steps with any number of tokens per sequence: prefill, chunks of it, mixed batches.

    One graph serves all batches of up to its number of tokens and of `max_sequences` sequences,
    whatever their lengths are. The mode of the model decides how such a step is captured:

    - In segments, with eager attention between them. Attention receives padded tensors. It finds
      the number of real rows from the lengths, and may leave the other rows unwritten.
    - In mode ``full`` as one graph, including attention, which runs over all rows and
      ``max_sequences + 1`` sequences. Sequences that a batch does not have share the remaining
      rows, or have none, and have no key in the cache. A replay receives its lengths, and other
      values that the groups name, by an update.

    The runner owns its static input buffers and the update plans. You own the recorder, which the
    model's attention uses, and the lane, which all runners of a device share.

    Call :meth:`capture` once, then :meth:`run` for each step. In a mode that captures no prefill,
    steps are padded and run eagerly. Without prefill capture sizes they run without padding.

    Args:
        compiled: the model. Its configuration has the prefill capture sizes and the mode.
        inputs: declarations of the model's arguments: tensors with one row per token or, if
            declared ``per_sequence``, one row per sequence.
        max_sequences: sequences of a captured step, in addition to one of padding; steps with more
            run eagerly.
        set_lengths: sets the lengths of attention for steps that are not updated: it is called with
            the ``lengths`` of :meth:`run` before each step that runs eagerly or in segments, or is
            compared (``shadow_every``).
        recorder: the recorder that attention uses; required if the run mode is ``FULL``.
        lane: the update lane of the device; required if the run mode is ``FULL``.
        groups: the parameter groups of the update plans; required if the run mode is ``FULL``.
            Short batches are padded in all of them, as with ``ParameterGroup(pad=True)``.
        producers: makes metadata of attention on the device, see `StepProducers`.

    Attributes:
        compiled: as given.

    Raises:
        ConfigError: An argument has the wrong type, or the inputs do not match the model's
            arguments; or mode ``full`` has no recorder, lane or groups; or `producers` do not fit
            the other arguments.
    """

    def __init__(
        self,
        compiled: CompiledModel,
        *,
        inputs: Mapping[str, InputSpec],
        max_sequences: int,
        set_lengths: Callable[[Mapping[str, Mapping[str, Lengths]]], None],
        recorder: Recorder | None = None,
        lane: UpdateLane | None = None,
        groups: Mapping[str, ParameterGroup] | None = None,
        producers: StepProducers | None = None,
    ) -> None:
        doing = "making a prefill runner"
        require_model_and_inputs(doing, compiled, inputs)
        require_callable(doing, "set_lengths", set_lengths, "it makes attention see the lengths")
        if not is_whole(max_sequences, least=1):
            raise ConfigError(
                f"{doing}: max_sequences is {max_sequences!r}, expected a whole number of at least "
                "1: the most sequences of a captured step"
            )
        config = compiled.config
        sizes, modes = config.prefill_capture_sizes, config.prefill_run_modes
        require_updates(
            f"{doing} for mode {config.mode.value!r}",
            modes if sizes else (),
            recorder=recorder,
            lane=lane,
            groups=groups,
            remedy="pass all three, or leave prefill_capture_sizes out",
            needs_groups=True,
        )
        padded = {
            name: dataclasses.replace(group, pad=True) for name, group in (groups or {}).items()
        }
        form = PrefillForm(inputs, max_sequences=max_sequences)
        require_produced_steps(doing, producers, form, modes if sizes else (), config.shadow_every)
        plans = RecordedPlans(
            compiled, recorder, lane, padded, producers, lambda key: form.step_size(key.num_tokens)
        )
        super().__init__(
            compiled, form, run_modes=modes, sizes=sizes, plans=plans, set_lengths=set_lengths
        )
