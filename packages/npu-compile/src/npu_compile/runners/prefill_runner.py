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
from npu_compile.runners.step_runner import StepRunner

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from attn_update import Lengths, ParameterGroup, Recorder, UpdateLane
    from npu_compile.compilation.compiled_model import CompiledModel
    from npu_compile.inputs.input_spec import InputSpec


class PrefillRunner(StepRunner):
    """Runs steps of any number of tokens a sequence: prefill, chunks of it, and mixed batches.

    One graph serves all batches of up to its number of tokens and of `max_sequences` sequences,
    whatever their lengths are. The mode of the model says how such a step is captured:

    - In segments, with attention eager between them. Attention sees the padded rows of its tensors;
      it reads from the lengths how many of them are the batch's own, and may leave the others as
      they are.
    - In mode ``full`` as one graph, attention included. The captured attention runs over all rows
      and ``max_sequences + 1`` sequences. Those that a batch does not have share the rows that are
      left over, or have none, and have no key in the cache. A replay gets its lengths, and what
      else the groups name, by an update.

    Owns its static input buffers and the update plans. The caller owns the recorder that the
    model's attention runs through, and the lane, which all runners of a device share.

    Use: :meth:`capture` once, then :meth:`run` for each step. In a mode that captures no prefill
    steps are padded as well, and run eagerly; without prefill capture sizes they are as they came.

    Args:
        compiled: the model; its configuration names the prefill capture sizes and the mode.
        inputs: the model's arguments: tensors of one row a token, or, where declared
            ``per_sequence``, of one row a sequence.
        max_sequences: sequences that a captured step holds besides one of padding; steps of more
            run eagerly.
        set_lengths: makes attention see the lengths of a step that does not get them by an update:
            called before each one that runs eagerly or in segments, or is compared
            (``shadow_every``), with what :meth:`run` was given.
        recorder: what attention runs through; needed where the run mode is ``FULL``.
        lane: the update lane of the device; needed where the run mode is ``FULL``.
        groups: the parameter groups of the update plans; needed where the run mode is ``FULL``.
            Short batches are padded in all of them, as by ``ParameterGroup(pad=True)``.

    Attributes:
        compiled: as given.

    Raises:
        ConfigError: an argument is of the wrong type, or the inputs are not the model's; mode
            ``full`` without recorder, lane or groups.
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
        super().__init__(
            compiled,
            PrefillForm(inputs, max_sequences=max_sequences),
            run_modes=modes,
            sizes=sizes,
            plans=RecordedPlans(recorder, lane, padded),
            set_lengths=set_lengths,
        )
