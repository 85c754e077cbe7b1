"""Runs of a step in front of its capture, as the engine's own backends make them.

Nothing of the engine is imported here.
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
    """Run a step twice, and return what it gave the second time.

    Args:
        device: Waited for in front of each run.
        ranks: The engine's group of tensor-parallel ranks, which begin each run together.
        forward: The step.
        behind: What the engine does behind each run; None for nothing.
    """
    output = None
    for _ in range(_RUNS):
        device.synchronize()
        ranks.barrier()
        output = forward()
        if behind is not None:
            behind()
    return output
