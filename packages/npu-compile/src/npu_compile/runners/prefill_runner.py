"""The prefill runner: pads prefill and mixed batches to a number of tokens, replays segments."""

from __future__ import annotations

from typing import TYPE_CHECKING

from npu_compile.configuration.config_values import is_whole
from npu_compile.errors import ConfigError
from npu_compile.runners.recorded_plans import RecordedPlans
from npu_compile.runners.runner_arguments import require_callable, require_model_and_inputs
from npu_compile.runners.step_form import PrefillForm
from npu_compile.runners.step_runner import StepRunner

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from attn_update import Lengths
    from npu_compile.compilation.compiled_model import CompiledModel
    from npu_compile.inputs.input_spec import InputSpec


class PrefillRunner(StepRunner):
    """Runs steps of any number of tokens a sequence: prefill, chunks of it, and mixed batches.

    Such a step is captured in segments, with attention eager between them, so one graph serves all
    batches of up to its number of tokens, whatever their sequences are. Attention sees the padded
    rows of its tensors; it reads from the lengths how many of them are the batch's own, and may
    leave the others as they are. Owns its static input buffers.

    Use: :meth:`capture` once, then :meth:`run` for each step. In a mode that captures no prefill
    steps are padded as well, and run eagerly; without prefill capture sizes they are as they came.

    Args:
        compiled: the model; its configuration names the prefill capture sizes and the mode.
        inputs: the model's arguments: tensors of one row a token, or, where declared
            ``per_sequence``, of one row a sequence.
        max_sequences: rows of the latter in every captured graph; steps of more run eagerly.
        set_lengths: makes attention see the lengths of a step, called before each with what
            :meth:`run` was given.

    Attributes:
        compiled: as given.

    Raises:
        ConfigError: an argument is of the wrong type, or the inputs are not the model's.
    """

    def __init__(
        self,
        compiled: CompiledModel,
        *,
        inputs: Mapping[str, InputSpec],
        max_sequences: int,
        set_lengths: Callable[[Mapping[str, Mapping[str, Lengths]]], None],
    ) -> None:
        doing = "making a prefill runner"
        require_model_and_inputs(doing, compiled, inputs)
        require_callable(doing, "set_lengths", set_lengths, "it makes attention see the lengths")
        if not is_whole(max_sequences, least=1):
            raise ConfigError(
                f"{doing}: max_sequences is {max_sequences!r}, expected a whole number of at least "
                "1: the most sequences of a captured step"
            )
        super().__init__(
            compiled,
            PrefillForm(inputs, max_sequences=max_sequences),
            run_modes=compiled.config.prefill_run_modes,
            sizes=compiled.config.prefill_capture_sizes,
            plans=RecordedPlans(None, None, None),
            set_lengths=set_lengths,
        )
