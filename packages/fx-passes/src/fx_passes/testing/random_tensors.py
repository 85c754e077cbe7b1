"""Inputs for graphs: the same random values for the same seed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor


def random_tensors(
    *shapes: Sequence[int],
    dtype: torch.dtype = torch.bfloat16,
    device: str = "meta",
    seed: int = 0,
) -> list[Tensor]:
    """Return tensors of normally distributed values, the same for the same seed.

    Args:
        shapes: One for each tensor.
        dtype: Type of all.
        device: Device of all; tensors on `meta` hold no values.
        seed: Seed of the values.
    """
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(tuple(shape), generator=generator).to(dtype).to(device) for shape in shapes]
