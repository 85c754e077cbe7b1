"""What stands for two operators of sgl-kernel-npu that multiply by the adapters of sequences.

In operators of torch that read nothing back: they run inside a captured graph. What they compute is
what the engine's own `sgemm_lora_a_fwd` and `sgemm_lora_b_fwd` say, for other devices.
"""

from __future__ import annotations

import torch


def declare(library: torch.library.Library) -> None:
    """Declare both in a library of `npu`."""
    common = "Tensor x, Tensor weights, Tensor indices, Tensor lengths, Tensor ranks"
    library.define(f"sgemmv_shrink({common}, Tensor scalings, Tensor(a!) out, int slices=1) -> ()")
    library.define(f"sgemmv_expand({common}, Tensor offsets, Tensor(a!) out) -> ()")
    library.impl("sgemmv_shrink", shrink, "PrivateUse1")
    library.impl("sgemmv_expand", expand, "PrivateUse1")


def shrink(
    x: torch.Tensor,
    weights: torch.Tensor,
    indices: torch.Tensor,
    lengths: torch.Tensor,
    ranks: torch.Tensor,
    scalings: torch.Tensor,
    out: torch.Tensor,
    slices: int = 1,
) -> None:
    """Multiply tokens by the first factor of their adapter, and scale.

    Args:
        x: Tokens [T, in].
        weights: Of all adapters [L, slices * most ranks, in]; an adapter's slices are adjacent.
        indices: The adapter of each sequence.
        lengths: How many tokens each sequence has.
        ranks: Of each adapter; 0 for none.
        scalings: Of each adapter.
        out: [T, slices * most ranks].
        slices: Number of fused layers.
    """
    which = adapter_of_token(len(x), indices, lengths)
    found = torch.bmm(weights[which].float(), x.float().unsqueeze(-1)).squeeze(-1)
    column = torch.arange(found.shape[1], device=x.device)
    kept = column < (slices * ranks[which]).unsqueeze(-1)
    out.copy_(torch.where(kept, found, 0.0) * scalings[which].float().unsqueeze(-1))


def expand(
    x: torch.Tensor,
    weights: torch.Tensor,
    indices: torch.Tensor,
    lengths: torch.Tensor,
    ranks: torch.Tensor,
    offsets: torch.Tensor,
    out: torch.Tensor,
) -> None:
    """Multiply what `shrink` gave by the second factor, and add it.

    Args:
        x: [T, slices * most ranks].
        weights: Of all adapters [L, out, most ranks].
        indices: The adapter of each sequence.
        lengths: How many tokens each sequence has.
        ranks: Of each adapter; 0 for none.
        offsets: Where each slice of the output begins, and the end of the last.
        out: [T, out]; is added to.
    """
    which = adapter_of_token(len(x), indices, lengths)
    rank, factor = ranks[which].long().unsqueeze(-1), weights[which].float()
    place = torch.arange(weights.shape[-1], device=x.device)
    column = torch.arange(out.shape[1], device=x.device)
    for number in range(len(offsets) - 1):
        chosen = (number * rank + place).clamp(max=x.shape[1] - 1)
        own = torch.where(place < rank, x.float().gather(1, chosen), 0.0)
        added = torch.bmm(factor, own.unsqueeze(-1)).squeeze(-1)
        inside = (column >= offsets[number]) & (column < offsets[number + 1])
        out.add_(torch.where(inside, added, 0.0).to(out.dtype))


def adapter_of_token(num_tokens: int, indices: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    """Return the adapter of each token; sequences after the last token do not count."""
    token = torch.arange(num_tokens, device=indices.device)
    sequence = (token.unsqueeze(-1) >= lengths.cumsum(0)).sum(1)
    return indices[sequence.clamp(max=len(indices) - 1)].long()
