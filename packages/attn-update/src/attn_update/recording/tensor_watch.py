"""Notices that the memory of a tensor was freed, at no cost per step.

A record refers weakly to its tensors, so nothing keeps a cache alive that its owner drops; a launch
that reads it afterwards would read other memory. Torch keeps one Python object for each storage as
long as the storage is used, so a weak reference to that object calls back when the memory is freed.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


class TensorWatch:
    """Watches the memory of tensors and lists those whose memory was freed."""

    def __init__(self) -> None:
        self.dead: list[str] = []
        self._references: dict[int, weakref.ref[torch.UntypedStorage]] = {}

    def add(self, tensor: torch.Tensor, name: str) -> None:
        """Watch the memory of a tensor; tensors that share memory are watched once.

        The tensor is not kept alive; `dead` gets the name when its memory is freed.
        """
        storage = tensor.untyped_storage()
        known = self._references.get(id(storage))
        if known is not None and known() is storage:
            return
        dead = self.dead

        def note(_: object) -> None:
            dead.append(name)

        self._references[id(storage)] = weakref.ref(storage, note)

    def clear(self) -> None:
        """Stop watching."""
        self._references.clear()
