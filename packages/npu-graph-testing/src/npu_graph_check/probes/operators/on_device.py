"""Operators on the device, given tensors of the host."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable

    from npu_graph_check.probe import Look


def run(look: Look, operator: Callable[..., Any], *given: Any, **options: Any) -> Any:
    """Call an operator with all its tensors, also those in lists, moved to the device.

    A tensor that lies there already is not copied, so operators may write into it.
    """

    def moved(value: Any) -> Any:
        if isinstance(value, list):
            return [moved(each) for each in value]
        return value.to(look.on) if isinstance(value, torch.Tensor) else value

    return operator(*map(moved, given), **{name: moved(each) for name, each in options.items()})
