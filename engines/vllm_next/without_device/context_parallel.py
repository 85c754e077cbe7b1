"""Operators of torch for the kernels of Triton that join parts of attention under DCP.

vllm-ascend 0.30.0rc2 packs the output of a rank with the logarithms of its softmax sums, exchanges
both, and joins the parts. `install` replaces packing and joining, without a wait of the host, so
that they run inside a captured graph.
"""

from __future__ import annotations

import importlib

import torch

PACKED = 4
"""Elements of 16 bits that the engine adds to each row for a float32."""


def install() -> None:
    """Replace the functions in the modules that use them."""
    package = "vllm_ascend.attention.context_parallel"
    modules = ("vllm_ascend.ops.triton.dcp.dcp_a2a", f"{package}.attention_cp", f"{package}.mla_cp")
    for name in modules:
        importlib.import_module(name).fused_dcp_lse_combine = join  # type: ignore[attr-defined]
    importlib.import_module(modules[0]).pack_dcp_output_lse = pack  # type: ignore[attr-defined]


def pack(
    output: torch.Tensor, logarithms: torch.Tensor, ranks: int, scatter_dim: int
) -> torch.Tensor:
    """Return the rows for each rank with their logarithms.

    Args:
        output: A part of attention [T, H, D], of 16 bits.
        logarithms: Of the softmax sums, float32 [T, H, 1].
        ranks: How many ranks share the dimension that is scattered.
        scatter_dim: 0 for tokens, 1 for heads.

    Returns:
        [ranks, size of the scattered dimension / ranks, size of the other, D + 4].
    """
    bits = logarithms.contiguous().view(output.dtype)
    packed = torch.cat((output, bits, torch.zeros_like(bits)), -1)
    packed = packed.transpose(0, 1) if scatter_dim == 1 else packed
    return packed.reshape(ranks, -1, *packed.shape[1:]).contiguous()


def join(
    received: torch.Tensor,
    head_dim: int,
    scatter_dim: int,
    return_lse: bool = False,
    local_output: torch.Tensor | None = None,
    local_lse: torch.Tensor | None = None,
) -> torch.Tensor:
    """Return attention over all parts, weighted by their softmax sums: [T, H, head_dim].

    Args:
        received: From `pack`, of all ranks, with their number in front.
        head_dim: Elements of a head.
        scatter_dim: As for `pack`.
        return_lse: Not supported.
        local_output: One more part, [T, H, head_dim].
        local_lse: Its logarithms, float32 [T, H, 1].
    """
    if return_lse:
        raise NotImplementedError("joined logarithms")
    received = received.transpose(1, 2) if scatter_dim == 1 else received
    parts = received[..., :head_dim].float()
    logarithms = received[..., head_dim : head_dim + PACKED // 2].contiguous().view(torch.float32)
    if local_output is not None and local_lse is not None:
        parts = torch.cat((parts, local_output.float()[None]))
        logarithms = torch.cat((logarithms, local_lse[None]))
    # A part without keys has no finite logarithm, and what its rows hold does not count.
    is_valid = logarithms.abs() < torch.inf
    logarithms = torch.where(is_valid, logarithms, -torch.inf)
    largest = logarithms.amax(0)
    largest = torch.where(largest.abs() < torch.inf, largest, 0.0)
    weights = torch.exp(logarithms - largest)
    total = weights.sum(0)
    joined = (torch.where(is_valid, parts, 0.0) * weights).sum(0)
    return (joined / torch.where(total > 0, total, 1.0)).to(received.dtype)
