"""One rank of data parallelism, run by `test_data_parallel.py`; prints one line of JSON.

Its arguments are the rank, the number of ranks, a file by which the ranks find each other, and the
step at which the last rank fails. Batches have other sizes on each rank, and none at times; the
layer sums rows over the ranks, so it hangs or fails where two of them replay another bucket.
"""

from __future__ import annotations

import datetime as dt
import json
import random
import sys
from typing import TYPE_CHECKING, Any

import cann_sim

cann_sim.activate()

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402

from npu_graph_runtime import (  # noqa: E402
    CaptureSession,
    CaptureSizes,
    GraphContext,
    GraphedCallable,
    GraphKey,
    NpuDevice,
    RankAgreement,
    RunMode,
    largest_first,
)
from npu_graph_runtime.errors import RankFailedError  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Sequence

HIDDEN, STEPS = 16, 24
SIZES = CaptureSizes((1, 2, 4, 8))
LARGEST = 12


def batches(ranks: int) -> list[list[torch.Tensor]]:
    """Return the batches of all ranks for each step; all ranks make the same."""
    generator = random.Random(6)
    values = torch.Generator().manual_seed(6)
    counts = [0, 1, 2, 3, 5, 8, LARGEST]
    return [
        [torch.randn(generator.choice(counts), HIDDEN, generator=values) for _ in range(ranks)]
        for _ in range(STEPS)
    ]


def expected(step: list[torch.Tensor], rank: int, rows: int) -> torch.Tensor:
    """Return the expected result of a rank: twice its rows, and the sum of all ranks' rows."""
    padded = [torch.cat([own, own.new_zeros(rows - len(own), HIDDEN)]) for own in step]
    return (padded[rank] * 2 + torch.stack(padded).sum(0))[: len(step[rank])]


def layer(hidden: torch.Tensor) -> torch.Tensor:
    """Return a rank's rows twice and the rows of all ranks once."""
    total = hidden.clone()
    dist.all_reduce(total)
    return hidden * 2 + total


def main() -> None:
    rank, ranks, store, fails_at = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], int(sys.argv[4])
    device, context = NpuDevice(rank), GraphContext()
    dist.init_process_group("hccl", init_method=f"file://{store}", rank=rank, world_size=ranks)
    # Of the host: the agreement has no part in what the device does.
    group: Any = dist.new_group(backend="gloo", timeout=dt.timedelta(seconds=60))

    def exchange(row: tuple[int, ...]) -> Sequence[Sequence[int]]:
        rows = [torch.zeros(len(row), dtype=torch.int64) for _ in range(ranks)]
        dist.all_gather(rows, torch.tensor(row), group=group)
        return [each.tolist() for each in rows]

    graphed = GraphedCallable(
        layer, device=device, context=context, run_mode=RunMode.FULL, name="layer"
    )
    static = torch.zeros(SIZES.largest, HIDDEN, device=device.torch_device)
    keys = {size: GraphKey(num_tokens=size) for size in SIZES}
    with CaptureSession(device, context):
        for key in largest_first(keys.values()):
            with context.run(RunMode.FULL, key):
                graphed(static[: key.num_tokens])

    agreement = RankAgreement({RunMode.FULL: SIZES}, exchange, rank=rank)
    equal, modes, error = [], [], ""
    for number, step in enumerate(batches(ranks)):
        if rank == ranks - 1 and number == fails_at:
            agreement.give_up()
            break
        own = step[rank]
        mode = RunMode.FULL if len(own) <= SIZES.largest else RunMode.EAGER
        try:
            agreed = agreement.agree(mode, len(own))
        except RankFailedError as failure:
            error = str(failure)
            break
        modes.append(agreed.mode.value)
        if agreed.is_idle:
            continue
        rows = agreed.bucket or max(agreed.num_tokens)
        padded = torch.cat([own, own.new_zeros(rows - len(own), HIDDEN)])
        if agreed.bucket is None:
            output = layer(padded.to(device.torch_device))
        else:
            static[:rows].copy_(padded)
            with context.run(RunMode.FULL, keys[rows]):
                output = graphed(static[:rows])
        equal.append(torch.allclose(output[: len(own)].cpu(), expected(step, rank, rows)))
    result = {
        "equal": all(equal),
        "modes": modes,
        "replayed": graphed.counters.replayed,
        "error": error,
    }
    sys.stdout.write(json.dumps(result) + "\n")
    sys.stdout.flush()
    dist.barrier(group=group)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
