"""What stands for the operators of vLLM-Ascend's compiled library that multiply by adapters (LoRA).

In operators of torch that read nothing back: they run inside a captured graph. Names, arguments and
what they write are those of the engine's `csrc/torch_binding.cpp` and `csrc/kernels`, in which a
token without an adapter, whose index is negative, is left as it is.
"""

from __future__ import annotations

import torch

_TOKENS = "Tensor! x, Tensor! weight, Tensor! indices"
_SEQUENCES = "Tensor! x, Tensor! weight, Tensor! lora_indices, Tensor! seq_len"


def declare() -> torch.library.Library:
    """Declare the operators; keep the result alive."""
    library = torch.library.Library("_C_ascend", "FRAGMENT")
    for name, given in (("bgmv", _TOKENS), ("sgmv", _SEQUENCES)):
        library.define(f"{name}_shrink({given}, Tensor! y, float scale) -> ()")
        library.define(f"{name}_expand({given}, Tensor! y, int offset, int size) -> Tensor")
    library.impl("bgmv_shrink", shrink, "PrivateUse1")
    library.impl("bgmv_expand", expand, "PrivateUse1")
    library.impl("sgmv_shrink", shrink_sequences, "PrivateUse1")
    library.impl("sgmv_expand", expand_sequences, "PrivateUse1")
    # Graphs that hold them are traced on tensors without memory.
    for name in ("bgmv", "sgmv"):
        library.impl(f"{name}_shrink", lambda *_: None, "Meta")
        library.impl(f"{name}_expand", lambda *given: torch.empty_like(given[-3]), "Meta")
    return library


def shrink(
    x: torch.Tensor, weight: torch.Tensor, indices: torch.Tensor, y: torch.Tensor, scale: float
) -> None:
    """Multiply tokens by the first factor of their adapter, and scale.

    Args:
        x: Tokens [T, in].
        weight: Of all adapters [L, 1, rank, in], or without the 1.
        indices: The adapter of each token [T]; negative for none.
        y: [T, rank]; of tokens without an adapter it is kept.
        scale: Of all.
    """
    y.copy_(torch.where(indices[:, None] < 0, y, scale * _multiply(x, weight, indices)))


def expand(
    x: torch.Tensor,
    weight: torch.Tensor,
    indices: torch.Tensor,
    y: torch.Tensor,
    offset: int,
    size: int,
) -> torch.Tensor:
    """Multiply what `shrink` gave by the second factor, and add it to a part of each row.

    Args:
        x: [T, rank].
        weight: Of all adapters [L, 1, size, rank], or without the 1.
        indices: The adapter of each token [T]; negative for none.
        y: [T, out].
        offset: Where the part begins.
        size: Of the part.

    Returns:
        `y`.
    """
    part = y[:, offset : offset + size]
    added = part.float() + _multiply(x, weight, indices)
    part.copy_(torch.where(indices[:, None] < 0, part, added.to(y.dtype)))
    return y


def shrink_sequences(
    x: torch.Tensor,
    weight: torch.Tensor,
    lora_indices: torch.Tensor,
    seq_len: torch.Tensor,
    y: torch.Tensor,
    scale: float,
) -> None:
    """Do what `shrink` does, with an adapter for each sequence and the number of its tokens."""
    shrink(x, weight, _of_tokens(len(x), lora_indices, seq_len), y, scale)


def expand_sequences(
    x: torch.Tensor,
    weight: torch.Tensor,
    lora_indices: torch.Tensor,
    seq_len: torch.Tensor,
    y: torch.Tensor,
    offset: int,
    size: int,
) -> torch.Tensor:
    """Do what `expand` does, with an adapter for each sequence and the number of its tokens."""
    return expand(x, weight, _of_tokens(len(x), lora_indices, seq_len), y, offset, size)


def _multiply(x: torch.Tensor, weight: torch.Tensor, indices: torch.Tensor) -> torch.Tensor:
    """Return each token times the factor of its adapter, in float32."""
    factors = weight.flatten(0, -3)[indices.clamp(min=0)].float()
    return torch.bmm(factors, x.float().unsqueeze(-1)).squeeze(-1)


def _of_tokens(count: int, indices: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    """Return the adapter of each token; none for those after the last sequence."""
    ends = lengths.cumsum(0)
    token = torch.arange(count, device=ends.device)
    sequence = (token[:, None] >= ends[None, :]).sum(1)
    found = indices[sequence.clamp(max=len(indices) - 1)]
    return torch.where(sequence < len(lengths), found, -1)
