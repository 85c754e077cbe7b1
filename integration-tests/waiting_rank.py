"""One rank of collectives that do not meet, run by `test_field_failures.py`; prints JSON.

Its arguments are the rank, the number of ranks, and a file through which the ranks find each other.
Each case is a graph of its own. The output is the error of the rank, and the seconds until it.
"""

from __future__ import annotations

import json
import os
import sys
import time
from functools import partial
from typing import TYPE_CHECKING, Any

import cann_sim

cann_sim.activate()

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402

from npu_graph_runtime import (  # noqa: E402
    CaptureSession,
    GraphContext,
    GraphedCallable,
    GraphKey,
    NpuDevice,
    RunMode,
    runs_captured,
    runs_eagerly,
)
from npu_graph_runtime.diagnosis import diagnose, find_first_difference  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Callable

HIDDEN, BUCKETS = 8, (2, 4)


def other_buckets(device: NpuDevice, rank: int, meet: Callable[[], object]) -> tuple[str, float]:
    """Make each rank replay the graph of another bucket."""
    context = GraphContext()

    def layer(hidden: torch.Tensor) -> torch.Tensor:
        total = hidden * 1.0
        dist.all_reduce(total)
        return total

    graphed = GraphedCallable(
        layer, device=device, context=context, run_mode=RunMode.FULL, name="decode"
    )
    hidden = torch.ones(BUCKETS[-1], HIDDEN, device=device.torch_device)
    with CaptureSession(device, context):
        for size in reversed(BUCKETS):
            with context.run(RunMode.FULL, GraphKey(num_tokens=size)):
                graphed(hidden[:size])
    size = BUCKETS[rank]
    meet()
    started = time.perf_counter()
    with context.run(RunMode.FULL, GraphKey(num_tokens=size)):
        graphed(hidden[:size])
    try:
        device.synchronize()
    except RuntimeError as error:
        found = diagnose(error, doing="replaying", subject=f"'decode' on rank {rank}")
        return str(found), time.perf_counter() - started
    return "", 0.0


def absent_rank(device: NpuDevice, rank: int, meet: Callable[[], object]) -> tuple[str, float]:
    """Make rank 1 skip a step that rank 0 compares."""
    context = GraphContext()
    is_there = True

    def attend(x: torch.Tensor, layer: str) -> torch.Tensor:
        if is_there:
            # Or a rank that is slow on a busy machine would count as absent.
            meet()
        return x + len(layer)

    def reduce(x: torch.Tensor) -> torch.Tensor:
        total = x * 1.0
        dist.all_reduce(total)
        return total

    attention = runs_eagerly(context)(attend)
    reduced = runs_captured(context, "layers.1.down_proj")(reduce)
    graphed = GraphedCallable(
        lambda x: reduced(attention(x, "layers.0")),
        device=device,
        context=context,
        run_mode=RunMode.BREAKABLE,
        name="decode",
    )
    hidden, key = torch.ones(2, HIDDEN, device=device.torch_device), GraphKey(num_tokens=2)

    def step() -> object:
        with context.run(RunMode.BREAKABLE, key):
            return graphed(hidden)

    with CaptureSession(device, context):
        step()
    # All ranks compare a step that is right; what is used for the first time then is not timed.
    assert find_first_difference(step, [graphed]) is None
    is_there = False
    if rank == 1:
        return "", 0.0
    started = time.perf_counter()
    found = find_first_difference(step, [graphed])
    return str(found), time.perf_counter() - started


def main() -> None:
    rank, ranks, store = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    # Else torch_npu's watchdog of collectives ends a process whose device has stopped, some time.
    os.environ["HCCL_ASYNC_ERROR_HANDLING"] = "0"
    device = NpuDevice(rank)
    results = {}
    # After how many seconds a rank that does not come is an error. Ranks that come with other data
    # are one at once, however late the last of them is.
    for case, seconds in ((other_buckets, 120), (absent_rank, 1)):
        os.environ["HCCL_EXEC_TIMEOUT"] = str(seconds)
        path = f"file://{store}.{case.__name__}"
        dist.init_process_group("hccl", init_method=path, rank=rank, world_size=ranks)
        # Of the host: all ranks live until the last one got the error.
        group: Any = dist.new_group(backend="gloo")
        meet = partial(dist.barrier, group=group)
        results[case.__name__] = case(device, rank, meet)
        meet()
        cann_sim.restart_devices()  # else the group could not be given up
        dist.destroy_process_group()
    sys.stdout.write(json.dumps(results) + "\n")


if __name__ == "__main__":
    main()
