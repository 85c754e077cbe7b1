"""Which tensors of a run are of the host, and which of the device."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import torch
    from torch import Tensor


class HostTensors(Protocol):
    """Tells tensors of the host from those of a device."""

    @property
    def is_elsewhere(self) -> bool:
        """Whether ``tensor.device`` tells them apart, so that operators show each copy."""
        ...

    def is_on_host(self, tensor: Tensor, /) -> bool:
        """Return whether a tensor is one of the host."""
        ...

    def is_pinned(self, tensor: Tensor, /) -> bool:
        """Return whether a tensor of the host is in pinned memory."""
        ...


class TensorsBesideADevice:
    """Those of which the device is the CPU, unless that is the device: then there are none.

    Args:
        device: of the run. The memory of the fake device is memory of the CPU.

    Attributes:
        is_elsewhere: whether it is another device than the CPU.
    """

    def __init__(self, device: torch.device) -> None:
        self.is_elsewhere = device.type != "cpu"

    def is_on_host(self, tensor: Tensor) -> bool:
        """Return whether a tensor is one of the host."""
        return self.is_elsewhere and tensor.device.type == "cpu"

    def is_pinned(self, tensor: Tensor) -> bool:
        """Return whether a tensor of the host is in pinned memory."""
        return tensor.is_pinned()
