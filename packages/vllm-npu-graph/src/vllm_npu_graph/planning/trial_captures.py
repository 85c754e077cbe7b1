"""Captures the two largest sizes of an engine's graphs, and forecasts the memory of the others."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from npu_graph_runtime.planning import CapturePlanner

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from npu_graph_runtime import NpuDevice

_LOGGER = logging.getLogger("vllm.npu_graph")
# A planner forecasts from its second capture on.
_SAMPLES = 2


class TrialCaptures:
    """Captures some graphs in place of the engine, and sums up what is forecast for the others.

    The engine captures the graphs of one mode after those of another, all in one memory pool, and
    the draft's graph with the target's. Each mode is measured after the samples of those before.

    Attributes:
        further_bytes: Forecast memory of the graphs that were not captured, of all modes so far.
        num_captures: Batches captured so far.
    """

    def __init__(self, device: NpuDevice) -> None:
        self._device = device
        self.further_bytes = 0
        self.num_captures = 0

    def capture(self, batches: Sequence[Any], capture: Callable[[list[Any]], object]) -> None:
        """Capture the batches of the two largest sizes, and forecast the memory of the others."""
        if not batches:
            return
        planner = CapturePlanner(self._device, {each.num_tokens for each in batches})
        for _ in range(_SAMPLES):
            size = planner.next_size()
            if size is None:
                break
            chosen = [each for each in batches if each.num_tokens == size]
            capture(chosen)
            self.num_captures += len(chosen)
            planner.captured(size)
        plan = planner.plan
        if plan.dropped:
            _LOGGER.warning("vllm-npu-graph: not all graphs fit the device.\n%s", plan)
        if plan.forecast is not None:
            self.further_bytes += plan.forecast.num_bytes - plan.used.num_bytes
