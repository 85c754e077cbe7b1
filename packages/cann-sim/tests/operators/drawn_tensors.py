"""Tensors of the host with values drawn from a seed."""

from __future__ import annotations

import torch


def random(
    *shape: int, seed: int = 0, dtype: torch.dtype = torch.float32, scale: float = 1.0
) -> torch.Tensor:
    """Return normally distributed values with this deviation."""
    values = torch.randn(shape, generator=torch.Generator().manual_seed(seed))
    return values.mul(scale).to(dtype)


def integers(*shape: int, seed: int = 0, least: int = -128, most: int = 127) -> torch.Tensor:
    """Return int8 values that are equally likely, both ends among them."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(least, most + 1, shape, generator=generator).to(torch.int8)
