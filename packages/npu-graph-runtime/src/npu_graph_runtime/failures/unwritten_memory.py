"""Distinguishes uninitialised memory from results.

A buffer that is allocated in one piece and written in the next one contains arbitrary values in
between, and other values in a graph than eagerly. That does not count as a difference.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from npu_graph_runtime.capturing.watching.operator_watch import OperatorWatch
from npu_graph_runtime.devices.fake_operator import UNWRITTEN

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_BYTE = 0xA5


def unwritten_value(dtype: torch.dtype) -> float | int | None:
    """Return the value of elements allocated under `MarkedAllocations` and not written.

    All of its bytes are equal, which computations only produce by accident; ``None`` for
    bool, which has no spare values.
    """
    if dtype is torch.bool:
        return None
    element = torch.full((dtype.itemsize,), _BYTE, dtype=torch.uint8).view(dtype)
    value: float | int = element.item()
    return value


class MarkedAllocations(OperatorWatch):  # type: ignore[no-untyped-call]
    """Fills memory allocated inside it with `unwritten_value`."""

    def after(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], result: Any) -> None:
        """Fill what an operator has allocated."""
        del args, kwargs
        if func.name().partition(".")[0] in UNWRITTEN and type(result) is Tensor:
            value = unwritten_value(result.dtype)
            if value is not None and not result.is_complex():
                result.fill_(value)
