"""Which memory a tensor uses, and whether two tensors are views of the same in the same layout."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch

if TYPE_CHECKING:
    from collections.abc import Iterator


class MemorySpan(NamedTuple):
    """A range of memory of one device, in bytes: from `start` to before `end`."""

    device: torch.device
    start: int
    end: int

    @classmethod
    def of(cls, tensor: torch.Tensor) -> MemorySpan:
        """Return the smallest span that has all elements of a tensor."""
        start = tensor.data_ptr()
        if tensor.numel() == 0:
            return cls(tensor.device, start, start)
        steps = zip(tensor.shape, tensor.stride(), strict=True)
        last = sum((size - 1) * stride for size, stride in steps)
        return cls(tensor.device, start, start + (last + 1) * tensor.element_size())

    def overlaps(self, other: MemorySpan) -> bool:
        """Return whether two spans have a byte in common."""
        same_device = self.device == other.device
        return same_device and self.start < other.end and other.start < self.end


def tensors_in(value: object) -> Iterator[torch.Tensor]:
    """Give the tensors of an argument: itself, or those of a list."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from tensors_in(item)


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
