"""Shared parts of fusions that end with block-wise (MX) quantisation."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from fx_passes.matching.match import Match, NoMatch
from fx_passes.matching.pattern import label

if TYPE_CHECKING:
    from torch import Tensor

    from fx_passes.matching.combined_pattern import Linked


MX_QUANTIZE = "npu::npu_dynamic_mx_quant"
"""The quantisation that graphs hold."""

_BLOCK = 32
_SCALE_ALGORITHMS = (0, 1)


def mx_quantized(
    values: Tensor, axis: int, mode: str, dtype: int, block: int, algorithm: int
) -> Linked:
    """Quantise by blocks in a pattern; a link of `combine`."""
    quant = torch.ops.npu.npu_dynamic_mx_quant(
        values, axis=axis, round_mode=mode, dst_type=dtype, block_size=block, scale_alg=algorithm
    )
    quant = label(quant, "quant")
    return None, {"quantized": quant[0], "scale": quant[1]}


def mx_quant_problem(match: Match) -> NoMatch | None:
    """Return why the quantisation is not along the last dimension in the kernels' one manner."""
    bound, x = match.bound, match.tensor("x")
    # The rewrite needs their fake values.
    match.results("quant")
    if bound["axis"] not in {-1, x.dim() - 1}:
        return NoMatch(f"quantisation along axis {bound['axis']} of {x.dim()}, not the last")
    if bound["block"] != _BLOCK:
        return NoMatch(f"blocks of {bound['block']}; the kernel has blocks of {_BLOCK}")
    if bound["algorithm"] not in _SCALE_ALGORITHMS:
        return NoMatch(f"scale_alg {bound['algorithm']}; the kernel has {_SCALE_ALGORITHMS}")
    return None
