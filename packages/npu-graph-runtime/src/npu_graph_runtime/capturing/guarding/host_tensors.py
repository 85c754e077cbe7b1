"""Decides which tensors of a run are on the host, and which on the device."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from npu_graph_runtime.capturing.guarding.pretended_device import PretendedDevice


class TensorsBesideADevice:
    """Treats CPU tensors as host tensors, unless the CPU is the device; then there are none.

    The memory of the fake device is CPU memory.

    Attributes:
        is_elsewhere: whether it is another device than the CPU.
    """

    def __init__(self, device: torch.device) -> None:
        self.is_elsewhere = device.type != "cpu"

    def is_on_host(self, tensor: Tensor) -> bool:
        """Return whether a tensor is on the host."""
        return self.is_elsewhere and tensor.device.type == "cpu"

    def is_pinned(self, tensor: Tensor) -> bool:
        """Return whether a host tensor is in pinned memory."""
        return tensor.is_pinned()


HostTensors: TypeAlias = "TensorsBesideADevice | PretendedDevice"
"""Distinguishes host tensors from device tensors."""
