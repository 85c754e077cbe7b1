"""Operators on the device, given tensors of the host."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable

    from npu_graph_check.probe import Look


def run(look: Look, operator: str | Callable[..., Any], *given: Any, **options: Any) -> Any:
    """Call an operator with all its tensors, also those in lists, moved to the device.

    A name is that of an operator of torch_npu, which has none before the device is opened. A tensor
    that lies there already is not copied, so operators may write into it.
    """
    on = look.on

    def moved(value: Any) -> Any:
        if isinstance(value, list):
            return [moved(each) for each in value]
        return value.to(on) if isinstance(value, torch.Tensor) else value

    call = getattr(torch.ops.npu, operator) if isinstance(operator, str) else operator
    return call(*map(moved, given), **{name: moved(each) for name, each in options.items()})
