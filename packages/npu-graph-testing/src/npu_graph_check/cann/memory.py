"""How much memory the device has."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from npu_graph_check.cann.runtime import Cann

_HBM = 1  # ACL_HBM_MEM


def free_memory(cann: Cann) -> int:
    """Return how many bytes the device has left, for all processes."""
    return _memory(cann)[0]


def total_memory(cann: Cann) -> int:
    """Return how many bytes the device has."""
    return _memory(cann)[1]


def _memory(cann: Cann) -> tuple[int, int]:
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    cann.ok("aclrtGetMemInfo", _HBM, ctypes.byref(free), ctypes.byref(total))
    return free.value, total.value
