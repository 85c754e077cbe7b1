"""Which memory a tensor uses, when two are the same to a kernel, and weak references to tensors."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, NamedTuple

import torch

from attn_update.torch_internals import tree_leaves

if TYPE_CHECKING:
    from collections.abc import Iterator

    from attn_update.task_device import TaskDevice


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
    """Give the tensors of arguments, also those in lists."""
    return (leaf for leaf in tree_leaves(value) if isinstance(leaf, torch.Tensor))


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


class WeakTensors:
    """Replaces tensors by weak references, the same tensor by the same reference.

    Layers share their mask and block table. The description of such a tensor for the device, needed
    at every step, is then also shared: see `native/call.h`.
    """

    def __init__(self, device: TaskDevice) -> None:
        self._device = device
        self._made: dict[int, tuple[weakref.ref[torch.Tensor], torch.Tensor]] = {}

    def replace(self, value: object) -> object:
        """Return a value with weak references instead of its tensors, also those in lists."""
        if isinstance(value, torch.Tensor):
            return self._reference(value)
        if isinstance(value, (list, tuple)):
            return [self.replace(item) for item in value]
        return value

    def _reference(self, tensor: torch.Tensor) -> torch.Tensor:
        known = self._made.get(id(tensor))
        # The identity comes again after the tensor is gone, and its memory may be exchanged.
        if known is not None and known[0]() is tensor and is_same_memory(known[1], tensor):
            return known[1]
        made = self._device.weak_reference(tensor)
        self._made[id(tensor)] = (weakref.ref(tensor), made)
        return made
