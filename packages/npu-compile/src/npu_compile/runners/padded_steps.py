"""Runs steps of a model padded to a captured size: load static buffers, call, remove padding."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from npu_compile.errors import OutputError
from npu_compile.inputs.input_spec import StepSize
from npu_compile.inputs.static_inputs import StaticInputs
from npu_graph_runtime import RunMode, map_tensors

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from torch import Tensor

    from npu_compile.compilation.compiled_model import CompiledModel
    from npu_compile.runners.step_form import StepForm
    from npu_graph_runtime import GraphKey

_ANY_SIZE = StepSize(tokens=sys.maxsize, sequences=sys.maxsize)


class PaddedSteps:
    """Runs steps of one model under graph keys, each padded to the size of its key.

    Owns the static buffers that the captured graphs read. It does not know which keys are captured.

    Args:
        form: the inputs of the model, and the step size of a key.
        keys: all graph keys, including that of the largest step.
    """

    def __init__(
        self,
        compiled: CompiledModel,
        form: StepForm,
        keys: Iterable[GraphKey],
        call: Callable[..., Any] | None = None,
    ) -> None:
        self.compiled = compiled
        self._call = compiled if call is None else call
        self._outputs_by_sequence = form.outputs_by_sequence
        self._sizes = {key: form.step_size(key.num_tokens) for key in keys}
        # Without keys no step is loaded, so the buffers are empty.
        largest = max(self._sizes.values(), default=StepSize(tokens=0, sequences=0))
        self._inputs = StaticInputs(form.inputs, largest=largest, device=compiled.device)

    def check(self, key: GraphKey | None, inputs: Mapping[str, Tensor], *, least: int) -> StepSize:
        """Return the size of a batch that is to run under a key; launches nothing.

        Without a key the batch is not padded. Inputs are ``[rows, ...]``, on the CPU or the device.

        Raises:
            InputError: as for :meth:`PackedLayout.check`.
        """
        size = _ANY_SIZE if key is None else self._sizes[key]
        return self._inputs.check(inputs, size=size, least=least)

    def load_and_call(
        self, key: GraphKey, mode: RunMode, inputs: Mapping[str, Tensor], own: StepSize
    ) -> Any:
        """Load a checked batch, pad it, and run the model. The output has the rows of the key."""
        size = self._sizes[key]
        static = self._inputs
        static.load_checked(inputs, own=own, size=size)
        with self.compiled.context.run(mode, key):
            return self._call(**static.views(size))

    def call_eagerly(self, inputs: Mapping[str, Tensor]) -> Any:
        """Run a checked batch of any size eagerly, without padding."""
        placed = self._inputs.place(inputs)
        with self.compiled.context.run(RunMode.EAGER):
            return self._call(**placed)

    def padding_step(self, key: GraphKey, mode: RunMode) -> Callable[[], Any]:
        """Return a function that loads a step of padding only and runs it under a key."""
        size = self._sizes[key]
        padding = self._inputs.padding(size)

        def run() -> Any:
            return self.load_and_call(key, mode, padding, size)

        return run

    def capture(self, key: GraphKey, mode: RunMode) -> None:
        """Capture the graph of a key on a step of padding; call it inside a capture session.

        Warm-up runs write where the static inputs say. The inputs therefore contain padding, rather
        than the last batch or uninitialised memory.

        Raises:
            OutputError: An output does not have one row for each padded row, or each sequence.
        """
        self.own_rows(self.padding_step(key, mode)(), own=self._sizes[key], key=key)

    def own_rows(self, output: Any, *, own: StepSize, key: GraphKey | None) -> Any:
        """Return an output of the model without the rows of padding; without a key it has none.

        Finds tensors inside lists, tuples, dicts and dataclasses; the returned tensors are views of
        the first rows and sequences.

        Raises:
            OutputError: A tensor has neither one row per token nor one row per sequence.
        """
        tokens, sequences = own if key is None else self._sizes[key]
        by_sequence = sequences if self._outputs_by_sequence else 0

        def cut(tensor: Tensor) -> Tensor:
            rows = tensor.shape[0] if tensor.dim() else 0
            if rows == tokens:
                return tensor if own.tokens == rows else tensor[: own.tokens]
            if rows and rows == by_sequence:
                return tensor if own.sequences == rows else tensor[: own.sequences]
            or_sequences = f" or [{by_sequence}, ...]" if by_sequence else ""
            raise OutputError(
                f"cutting padding off an output of the model: a tensor of shape "
                f"{tuple(tensor.shape)} was returned for {tokens} rows, expected "
                f"[{tokens}, ...]{or_sequences}; let the model return tensors with one row for "
                "each row of its inputs, and keep others elsewhere"
            )

        return map_tensors(output, cut)
