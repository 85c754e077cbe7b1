"""Counts which steps replay a graph, with what padding, and which have none for their size."""

from __future__ import annotations

import logging
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

_LOGGER = logging.getLogger("vllm.npu_graph")


class GraphHits:
    """Counts the steps of a worker, and logs them as a table at intervals, in seconds.

    The table is vLLM's own, which vLLM's front end logs with ``--cudagraph-metrics``.

    Attributes:
        steps: Number of steps, by run mode.
        missed: Steps without a graph for their size, by number of tokens.
    """

    def __init__(
        self, table: Any, *, interval: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._table = table
        self._interval = interval
        self._clock = clock
        self._logged = clock()
        self._logged_missed = 0
        self.steps: Counter[str] = Counter()
        self.missed: Counter[int] = Counter()

    def count(self, stat: Any, *, is_missed: bool) -> None:
        """Count a step, missed if a larger graph had served it; log the table if it is time."""
        self.steps[stat.runtime_mode] += 1
        if is_missed:
            self.missed[stat.num_unpadded_tokens] += 1
        self._table.observe(stat)
        if self._clock() - self._logged >= self._interval:
            self.log()

    def log(self) -> None:
        """Log the table of the steps since the last one, and the steps that missed a graph."""
        self._logged = self._clock()
        self._table.log(_LOGGER.info)
        missed = self.missed.total()
        if missed > self._logged_missed:
            sizes = ", ".join(f"{size} ({count})" for size, count in sorted(self.missed.items()))
            _LOGGER.warning(
                "vllm-npu-graph: %d steps so far had no graph for their size; tokens (steps): %s. "
                "Raise max_cudagraph_capture_size, or lower max_num_seqs",
                missed,
                sizes,
            )
            self._logged_missed = missed
