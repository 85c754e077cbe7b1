"""Runs a step before its capture, as the engine's own backends do.

Imports nothing from the engine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from npu_graph_runtime import GraphDevice

_RUNS = 2


def warm_up(
    device: GraphDevice,
    ranks: Any,
    forward: Callable[[], Any],
    behind: Callable[[], None] | None,
) -> Any:
    """Run a step twice, and return the result of the second run.

    Args:
        device: Synchronised before each run.
        ranks: The engine's group of tensor-parallel ranks, which begin each run together.
        forward: The step.
        behind: Called after each run; None for nothing.
    """
    output = None
    for _ in range(_RUNS):
        device.synchronize()
        ranks.barrier()
        output = forward()
        if behind is not None:
            behind()
    return output
