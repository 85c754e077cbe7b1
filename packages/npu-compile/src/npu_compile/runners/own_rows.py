"""What a model gave for the rows of a batch, without that for the rows of padding."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from npu_compile.errors import OutputError
from npu_graph_runtime import map_tensors

if TYPE_CHECKING:
    from torch import Tensor


def own_rows(output: Any, *, num_rows: int, padded_size: int) -> Any:
    """Return the output with the padded rows cut off every tensor in it.

    Tensors are looked for inside lists, tuples, dicts and dataclasses. Those returned are views.

    Args:
        output: what the model returned for ``padded_size`` rows.
        num_rows: rows of the batch, the first ones.
        padded_size: rows after padding.

    Raises:
        OutputError: a tensor is not ``[padded_size, ...]``, so it has no rows to cut.
    """

    def cut(tensor: Tensor) -> Tensor:
        if tensor.dim() == 0 or tensor.shape[0] != padded_size:
            raise OutputError(
                f"cutting padding off an output of the model: a tensor of shape "
                f"{tuple(tensor.shape)} was returned for {padded_size} rows, expected "
                f"[{padded_size}, ...]; let the model return tensors with one row for each row of "
                "its inputs, and keep others elsewhere"
            )
        return tensor if num_rows == padded_size else tensor[:num_rows]

    return map_tensors(output, cut)
