"""Weak references to the tensors of launches, one for each tensor.

Layers share their mask and block table. The description of such a tensor for the device, needed at
every step, is then also shared: see `native/call.h`.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

import torch

from attn_update.recording.tensor_memory import is_same_memory

if TYPE_CHECKING:
    from attn_update.task_device import TaskDevice


class WeakTensors:
    """Replaces tensors by weak references, the same tensor by the same reference."""

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
