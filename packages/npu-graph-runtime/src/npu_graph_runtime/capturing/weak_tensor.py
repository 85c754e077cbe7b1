"""A tensor that does not keep its memory alive, and reads it as the original does."""

from __future__ import annotations

from typing import TYPE_CHECKING

from npu_graph_runtime.torch_internals import negated_view

if TYPE_CHECKING:
    from torch import Tensor

    from npu_graph_runtime.device import TaskDevice


def lazy_bits(tensor: Tensor) -> str:
    """Return how the values of a tensor differ from its memory, for comparisons and messages."""
    return "conjugated " * tensor.is_conj() + "negated " * tensor.is_neg()


def weak_tensor(tensor: Tensor, device: TaskDevice) -> Tensor:
    """Return a weak reference that is lazily conjugated or negated if the tensor is.

    The memory of such a tensor has other values than the tensor, and the bit that says so is not
    part of its layout.
    """
    weak = device.weak_reference(tensor)
    if tensor.is_conj() and not weak.is_conj():
        weak = weak.conj()
    if tensor.is_neg() and not weak.is_neg():
        weak = negated_view(weak)
    return weak
