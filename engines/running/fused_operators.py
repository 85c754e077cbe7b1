"""Decomposed fused operators, and wrong norms, to compare a fused graph with.

A fused operator rounds differently from the operators it replaced. If its decomposition gives the
tokens of the unfused model, this rounding is the only change.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from torch.fx import GraphModule


def make_norms_wrong(module: GraphModule) -> bool:
    """Change epsilon of each norm, fused or not, so that tokens must differ."""
    norms = [node for node in module.graph.nodes if "rms_norm" in str(node.target)]
    for node in norms:
        names = [each.name for each in node.target._schema.arguments]
        node.args = node.args[: names.index("epsilon")]
        node.kwargs = {**node.kwargs, "epsilon": 10.0}
    return bool(norms)


OWN = "fused_by_the_engine"


def mark_own(module: GraphModule) -> bool:
    """Mark each operator of a graph that no pass has changed: `take_apart` leaves those alone."""
    for node in module.graph.nodes:
        node.meta[OWN] = node.target
    return False


def take_apart(module: GraphModule, others: Mapping[Any, Callable[..., Any]] | None = None) -> bool:
    """Replace fused operators by the operators that they replaced.

    Args:
        module: Its graph is changed in place.
        others: Decompositions of an engine's own fused operators.
    """
    import torch

    apart = {
        torch.ops.npu.npu_add_rms_norm_dynamic_quant.default: norm_and_dynamic_quant,
        torch.ops.npu.npu_add_rms_norm_quant.default: norm_and_quant,
        torch.ops.npu.npu_dequant_swiglu_quant.default: swiglu_and_dynamic_quant,
        **(others or {}),
    }
    found = [
        node
        for node in module.graph.nodes
        if node.target in apart and node.meta.get(OWN) != node.target
    ]
    for node in found:
        node.target = apart[node.target]
    return bool(found)


@functools.cache
def copied() -> Callable[[Any], Any]:
    """Return an operator that copies, of which no compiler knows that: npugraph_ex would fuse."""
    import torch

    copy = torch.library.custom_op(
        "session::copied", lambda x: x.clone(), mutates_args=(), schema="(Tensor x) -> Tensor"
    )
    copy.register_fake(torch.empty_like)
    return copy


def norm_and_dynamic_quant(
    x: Any, residual: Any, weight: Any, *, epsilon: float = 1e-6, **_given: Any
) -> tuple[Any, ...]:
    """Emulate `npu_add_rms_norm_dynamic_quant`, rounding the norm."""
    import torch_npu

    normed, _, total = torch_npu.npu_add_rms_norm(x, residual, weight, epsilon)
    quantised, scale = torch_npu.npu_dynamic_quant(copied()(normed))
    return quantised, None, total, scale, None


def norm_and_quant(
    x: Any, residual: Any, weight: Any, scale: Any, offset: Any, *, epsilon: float = 1e-6
) -> tuple[Any, ...]:
    """Emulate `npu_add_rms_norm_quant`, rounding the norm and the scale's reciprocal."""
    import torch
    import torch_npu

    normed, _, total = torch_npu.npu_add_rms_norm(x, residual, weight, epsilon)
    quantised = torch_npu.npu_quantize(
        copied()(normed), 1.0 / scale, offset, torch.qint8, -1, False
    )
    return quantised, None, total


def swiglu_and_dynamic_quant(x: Any, *, quant_mode: int = 0, **_given: Any) -> tuple[Any, Any]:
    """Emulate `npu_dequant_swiglu_quant` with a scale for each row, rounding the product."""
    import torch_npu

    if quant_mode != 1:
        raise ValueError("taking npu_dequant_swiglu_quant apart: its scales are static")
    quantised, scale = torch_npu.npu_dynamic_quant(copied()(torch_npu.npu_swiglu(x)))
    return quantised, scale
