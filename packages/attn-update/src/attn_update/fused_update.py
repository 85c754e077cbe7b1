"""The seam to a device that begins, launches, ends and records an update in one call.

torch_npu has such a call for some operators; it saves three passes through Python for each layer.
Only the device may name it, because it is private to torch_npu.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Callable

    from attn_update.task_device import TaskDevice


@runtime_checkable
class FusedUpdateDevice(Protocol):
    """A device that may have fused update calls."""

    def fused_update(self, operator: str) -> Callable[..., object] | None:
        """Return the fused call for an operator, or None.

        Args:
            operator: The qualified name, such as ``npu::npu_fused_infer_attention_score.out``.

        Returns:
            A function of (stream, handle, external event, **arguments of the operator) that
            updates the task group on the stream, which is also the current one, and then records
            the event on it.
        """


def find_fused_update(device: TaskDevice, operator: str) -> Callable[..., object] | None:
    """Return the device's fused update call for an operator, or None if it has none."""
    if isinstance(device, FusedUpdateDevice):
        return device.fused_update(operator)
    return None
