"""Values of four bits, eight in an int32, the first in the lowest bits."""

from __future__ import annotations

import torch


def packed(values: torch.Tensor) -> torch.Tensor:
    """Return int32 with an eighth of the last dimension from integers of -8 to 7."""
    nibbles = values.long().reshape(*values.shape[:-1], -1, 8) & 15
    words = (nibbles << torch.arange(0, 32, 4)).sum(-1)
    return torch.where(words >= 2**31, words - 2**32, words).int()


def unpacked(words: torch.Tensor) -> torch.Tensor:
    """Return int64 of -8 to 7 with eight times the last dimension."""
    nibbles = (words.long().unsqueeze(-1) >> torch.arange(0, 32, 4)) & 15
    return ((nibbles + 8) % 16 - 8).flatten(-2)
