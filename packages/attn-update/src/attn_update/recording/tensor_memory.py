"""Tells whether two tensors are views of the same memory with the same layout."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


def is_same_memory(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Return whether two tensors are the same to a kernel.

    Engines create a new view of the same block table at every step, so identity is not enough.
    """
    return (
        one.data_ptr() == other.data_ptr()
        and one.shape == other.shape
        and one.stride() == other.stride()
        and one.dtype == other.dtype
        and one.device == other.device
    )
