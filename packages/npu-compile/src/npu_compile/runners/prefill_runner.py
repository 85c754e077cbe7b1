"""The prefill runner: pads prefill and mixed batches to a number of tokens and replays segments."""

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
    """Runs steps with any number of tokens per sequence: prefill, chunks of it, mixed batches.

    Such a step is captured in segments, and attention runs eagerly between them. One graph
    therefore serves every batch of up to its number of tokens, whatever its sequences are.
    Attention receives padded tensors. It finds the number of real rows from the lengths, and may
    leave the other rows unwritten. The runner owns its static input buffers.

    Call :meth:`capture` once, then :meth:`run` for each step. In a mode that captures no prefill,
    steps are padded and run eagerly. Without prefill capture sizes they run without padding.

    Args:
        compiled: the model. Its configuration has the prefill capture sizes and the mode.
        inputs: declarations of the model's arguments: tensors with one row per token or, if
            declared ``per_sequence``, one row per sequence.
        max_sequences: sequences in every captured graph; steps with more run eagerly.
        set_lengths: sets the lengths of attention for a step; called before each step with the
            ``lengths`` of :meth:`run`.

    Attributes:
        compiled: as given.

    Raises:
        ConfigError: An argument has the wrong type, or the inputs do not match the model's
            arguments.
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
