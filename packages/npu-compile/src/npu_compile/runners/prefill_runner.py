"""The prefill runner: pads prefill and mixed batches to a number of tokens, replays segments."""

from __future__ import annotations

from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from npu_compile.configuration.config_values import is_whole
from npu_compile.errors import ConfigError
from npu_compile.inputs.step_size import StepSize
from npu_compile.runners.runner_arguments import (
    require_callable,
    require_model_and_inputs,
    require_prepare,
)
from npu_compile.runners.sized_steps import SizedSteps
from npu_compile.runners.step_form import rows_of
from npu_graph_runtime import GraphKey

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from torch import Tensor

    from attn_update import Lengths
    from npu_compile.compilation.compiled_model import CompiledModel
    from npu_compile.inputs.input_spec import InputSpec
    from npu_compile.runners.runner_statistics import RunnerStatistics
    from npu_graph_runtime import AgreedStep, CapturePlan, DeviceError, Exchange, RunModeChoice


class PrefillRunner:
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
        self.compiled = compiled
        self._set_lengths = set_lengths
        self._max_sequences = max_sequences
        self._specs = dict(inputs)
        sizes = compiled.config.prefill_capture_sizes
        keys = {size: GraphKey(num_tokens=size) for size in sizes}
        self._steps = SizedSteps(
            compiled,
            compiled.config.prefill_run_modes,
            keys,
            inputs=inputs,
            step_size=lambda tokens: StepSize(tokens=tokens, sequences=max_sequences),
            what="prefill",
        )

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

    def statistics(self) -> RunnerStatistics:
        """Return how the steps so far met the capture sizes, as `DecodeRunner.statistics`."""
        return self._steps.statistics()

    def padded_size(self, num_tokens: int) -> int:
        """Return the tokens that the model will see; ``num_tokens`` where no size is that large."""
        return self._steps.padded_size(num_tokens)

    def capture(
        self,
        prepare: Callable[[int], None],
        *,
        on_captured: Callable[[int, int, int], None] | None = None,
        on_forecast: Callable[[CapturePlan], None] | None = None,
        exchange: Exchange | None = None,
    ) -> None:
        """Capture every prefill capture size, the largest first, if the mode captures prefill.

        The static buffers hold padding only.

        Args:
            prepare: called with each size before the model runs; must make attention see lengths
                that its padding allows, of no sequence for instance.
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
            OutputError: an output of the model does not have one row for each token.
        """
        require_prepare("capturing the prefill graphs", prepare)
        if not self._steps.is_to_capture:
            return
        self._steps.begin()
        try:
            self._steps.choose(prepare, partial(self._steps.candidate, prepare), exchange)
            self._steps.capture(
                prepare, self._steps.capture_one, on_captured, on_forecast, lambda _: None
            )
        except BaseException:
            self.release()
            raise

    def capture_next(
        self, prepare: Callable[[int], None], *, exchange: Exchange | None = None
    ) -> int | None:
        """Capture the largest size that is not captured yet, between steps of serving.

        Args:
            prepare: as for :meth:`capture`.
            exchange: likewise.

        Returns:
            The size that steps may use now; ``None`` where none is left.

        Raises:
            Exception: as for `DecodeRunner.capture_next`, whose Note says what an engine has to
                keep to; but for ``UpdateError``.
        """
        require_prepare("capturing the prefill graphs", prepare)
        if not self._steps.is_to_capture:
            return None
        return self._steps.capture_next(
            prepare,
            self._steps.capture_one,
            lambda _: None,
            lambda: self._steps.choose(
                prepare, partial(self._steps.candidate, prepare), exchange, only_next=True
            ),
        )

    def run(
        self,
        inputs: Mapping[str, Tensor],
        lengths: Mapping[str, Mapping[str, Lengths]],
        *,
        agreed: AgreedStep | None = None,
    ) -> Any:
        """Run one step and return the model's output for the batch's own tokens.

        Returns when the work is queued.

        Args:
            inputs: for each declared input a tensor ``[rows, ...]``: on the CPU, and free to change
                when this returns; or on the device, such as the tokens just sampled, read in the
                order of the current stream and without a wait of the host.
            lengths: by parameter group and argument name, of the batch as it is, for
                ``set_lengths``.
            agreed: as for `DecodeRunner.run`.

        Returns:
            What the model returns, each tensor ``[tokens, ...]`` on the device. After a replay they
            are views of the graph's memory, which the next step overwrites.

        Raises:
            InputError: an input does not fit its declaration; nothing was launched.
            OutputError: an output does not have one row for each token of the batch.
            RunnerStateError: the graphs are not captured.
            ShadowDifferenceError: as for `DecodeRunner.run`.
        """
        num_tokens, num_sequences = self._given_rows(inputs)
        key = self._steps.key_of(num_tokens, agreed)
        if key is None or (num_sequences > self._max_sequences and agreed is None):
            self._set_lengths(lengths)
            if key is None:
                limit = self._steps.size_limit() if agreed is None else ""
                output = self._steps.call_eagerly(inputs, f"{num_tokens} rows", limit=limit)
            else:
                limit = f"max_sequences ({self._max_sequences})"
                output = self._steps.call_eagerly(
                    inputs,
                    f"{num_sequences} sequences",
                    limit=limit,
                    remedy="give the runner a larger one",
                )
            self._steps.note_eager(num_tokens, limit, agreed)
            given = StepSize(tokens=num_tokens, sequences=num_sequences)
            return self._steps.own_rows(output, own=given, key=None)
        own = self._steps.check(key, inputs, may_be_idle=agreed is not None)
        self._set_lengths(lengths)
        call = partial(self._steps.load_and_call, key, inputs, own)
        output = self._steps.run_compared(key, call, own)
        if self._steps.counts.note(num_tokens, key.num_tokens):
            self._steps.warn_of_missed()
        return self._steps.own_rows(output, own=own, key=key)

    def release(self) -> None:
        """Wait for the device and tear the graphs of this runner down; may capture again."""
        self._steps.release()

    def _given_rows(self, inputs: Mapping[str, Tensor]) -> tuple[int, int]:
        """Return tokens and sequences of a step as its inputs say, which are not checked yet."""
        tokens = sequences = 0
        for name, spec in self._specs.items():
            if spec.per_sequence:
                sequences = rows_of(inputs, name) or sequences
            else:
                tokens = rows_of(inputs, name) or tokens
        return tokens, sequences
