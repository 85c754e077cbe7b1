"""The memory that an engine leaves to its graphs when it sizes the KV cache."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from vllm_npu_graph.planning.free_memory import read_free_bytes

if TYPE_CHECKING:
    from collections.abc import Callable

    from npu_graph_runtime import NpuDevice
    from vllm_npu_graph.planning.kept_plan import KeptPlan

_LOGGER = logging.getLogger("vllm.npu_graph")
# Above this difference from the plan, in parts of the free memory, a log line is a warning.
_TOLERANCE = 0.03


class GraphBudget:
    """Plans the memory of one worker's graphs, and compares it with what they took.

    Args:
        device: Of the worker.
        kept: Where the plan is kept between starts.
        agree: Returns whether all ranks pass true: ranks capture together, or none does.

    Attributes:
        planned: Bytes that are left to the graphs, and to what else the engine allocates between
            the sizing of the cache and the end of its start; None if nothing was planned.
        is_measured: Whether trial captures measured them in this start.
        free_before: Free bytes when they were planned, as `read_free_bytes` reads them.
        free_after: Free bytes after start; None before that.
        planned_free: What was planned for then; None before that.
    """

    def __init__(self, device: NpuDevice, kept: KeptPlan, agree: Callable[[bool], bool]) -> None:
        self._device = device
        self._kept = kept
        self._agree = agree
        self.planned: int | None = None
        self.is_measured = False
        self.free_before = 0
        self.free_after: int | None = None
        self.planned_free: int | None = None

    def plan(self, measure: Callable[[], int]) -> int:
        """Return the bytes to leave: those kept from an earlier start, or measured now.

        Args:
            measure: Captures some graphs, releases them, and returns the bytes that all will take.
        """
        self.free_before = read_free_bytes(self._device)
        found = self._kept.find()
        self.is_measured = not self._agree(found is not None)
        planned = self.planned = measure() if self.is_measured or found is None else found
        how = "measured by trial captures" if self.is_measured else f"found in {self._kept.path}"
        _LOGGER.info("vllm-npu-graph leaves %s to graphs, %s", _mib(planned), how)
        return planned

    def conclude(self, cache_bytes: int) -> None:
        """Compare the plan with what was taken, log it, and keep it for the next start.

        Does nothing if nothing was planned.
        """
        if self.planned is None:
            return
        self.free_after = read_free_bytes(self._device)
        self.planned_free = self.free_before - cache_bytes - self.planned
        used = self.free_before - cache_bytes - self.free_after
        off = self.free_after - self.planned_free
        is_off = abs(off) > _TOLERANCE * abs(self.planned_free)
        _LOGGER.log(
            logging.WARNING if is_off else logging.INFO,
            "vllm-npu-graph planned %s for graphs, they took %s; free after start: %s planned, %s "
            "found (%+.2f %%)",
            *map(_mib, (self.planned, used, self.planned_free, self.free_after)),
            100 * off / max(abs(self.planned_free), 1),
        )
        if self.is_measured or is_off:
            self._kept.keep(max(used, 0))


def _mib(num_bytes: int) -> str:
    return f"{num_bytes / 2**20:,.1f} MiB"
