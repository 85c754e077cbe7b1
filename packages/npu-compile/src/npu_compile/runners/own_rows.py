"""What a model gave for the rows of a batch, without that for the rows of padding."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from npu_compile.errors import OutputError
from npu_graph_runtime import map_tensors

if TYPE_CHECKING:
    from torch import Tensor

    from npu_compile.inputs.step_size import StepSize


def own_rows(output: Any, *, own: StepSize, padded: StepSize) -> Any:
    """Return the output with the padded rows cut off every tensor in it.

    Tensors are looked for inside lists, tuples, dicts and dataclasses. Those returned are views.

    Args:
        output: what the model returned for a step of size ``padded``.
        own: size of the batch, the first rows and sequences.
        padded: size after padding; of 0 sequences where an output may not have one row a sequence.

    Raises:
        OutputError: a tensor has neither one row a token nor one a sequence, so it has no rows to
            cut.
    """

    def cut(tensor: Tensor) -> Tensor:
        rows = tensor.shape[0] if tensor.dim() else 0
        if rows == padded.tokens:
            return tensor if own.tokens == rows else tensor[: own.tokens]
        if rows and rows == padded.sequences:
            return tensor if own.sequences == rows else tensor[: own.sequences]
        by_sequence = f" or [{padded.sequences}, ...]" if padded.sequences else ""
        raise OutputError(
            f"cutting padding off an output of the model: a tensor of shape "
            f"{tuple(tensor.shape)} was returned for {padded.tokens} rows, expected "
            f"[{padded.tokens}, ...]{by_sequence}; let the model return tensors with one row for "
            "each row of its inputs, and keep others elsewhere"
        )

    return map_tensors(output, cut)
