"""Host times of steps."""

from __future__ import annotations

import statistics
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from npu_graph_runtime import CudaDevice, NpuDevice


def median_times(
    device: NpuDevice | CudaDevice,
    *steps: Callable[[], object],
    rounds: int = 30,
    is_whole: bool = False,
) -> list[float]:
    """Return the median time of each step, in seconds.

    Args:
        device: has ended all work before a step begins.
        steps: take turns, so that the load of the machine is that of all.
        rounds: of every step; the first fifth does not count, since it makes what others use.
        is_whole: whether a step lasts until the device has ended it.
    """
    times: list[list[float]] = [[] for _ in steps]
    for _ in range(rounds):
        for step, taken in zip(steps, times, strict=True):
            device.synchronize()
            began = time.perf_counter()
            step()
            if is_whole:
                device.synchronize()
            taken.append(time.perf_counter() - began)
    device.synchronize()
    return [statistics.median(taken[rounds // 5 :]) for taken in times]
