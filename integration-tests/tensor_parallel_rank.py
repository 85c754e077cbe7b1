"""One rank of a tensor-parallel layer, run by `test_tensor_parallel.py`; prints one line of JSON.

Its arguments are the rank, the number of ranks, and a file through which the ranks find each other.

The layer is a column-parallel and a row-parallel product followed by an all_reduce, as in engines.
The rank runs it eagerly and captured, with new inputs at each step, and compares the results with
the whole layer in float64.
"""

from __future__ import annotations

import json
import sys
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
)
from npu_graph_runtime.planning import RunModeCandidate, RunModeChoice, RunModeChooser  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Iterator

HIDDEN, INNER, TOKENS, STEPS = 32, 48, 4, 6
KEY = GraphKey(num_tokens=TOKENS)


class TensorParallelLayer:
    """This rank's share of the layer."""

    def __init__(self, rank: int, ranks: int, device: torch.device) -> None:
        generator = torch.Generator().manual_seed(3)
        self.whole_up = torch.randn(HIDDEN, INNER, generator=generator) / HIDDEN**0.5
        self.whole_down = torch.randn(INNER, HIDDEN, generator=generator) / INNER**0.5
        self._up = self.whole_up.chunk(ranks, dim=1)[rank].contiguous().to(device)
        self._down = self.whole_down.chunk(ranks, dim=0)[rank].contiguous().to(device)

    def __call__(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return the layer's output, float32 of (tokens, hidden), the same on all ranks."""
        partial: torch.Tensor = torch.relu(hidden @ self._up) @ self._down
        dist.all_reduce(partial)
        return partial + hidden

    def reference(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return the result of the whole layer in float64."""
        wide = hidden.double()
        output: torch.Tensor = torch.relu(wide @ self.whole_up.double()) @ self.whole_down.double()
        return output + wide


def steps() -> Iterator[torch.Tensor]:
    """Yield the inputs, which all ranks have alike."""
    generator = torch.Generator().manual_seed(4)
    for _ in range(STEPS):
        yield torch.randn(TOKENS, HIDDEN, generator=generator)


def measured_choice(
    layer: TensorParallelLayer,
    captured: GraphedCallable,
    hidden: torch.Tensor,
    context: GraphContext,
) -> RunModeChoice:
    """Return the common choice of all ranks, determined by the slowest rank."""
    captured.release_all()
    host: Any = dist.new_group(backend="gloo")

    def exchange(row: tuple[int, ...]) -> list[tuple[int, ...]]:
        rows: list[Any] = [None] * dist.get_world_size()
        dist.all_gather_object(rows, row, group=host)
        return rows

    def replay() -> torch.Tensor:
        with context.run(RunMode.FULL, KEY):
            output: torch.Tensor = captured(hidden)
        return output

    candidates = {
        RunMode.EAGER: RunModeCandidate(step=lambda: layer(hidden)),
        RunMode.FULL: RunModeCandidate(
            step=replay, capture=replay, release=lambda: captured.release(KEY)
        ),
    }
    with CaptureSession(captured.device, context):
        return RunModeChooser(captured.device, exchange=exchange).choose(KEY, candidates)


def main() -> None:
    rank, ranks, store = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    device = NpuDevice(rank)
    dist.init_process_group("hccl", init_method=f"file://{store}", rank=rank, world_size=ranks)
    layer, context = TensorParallelLayer(rank, ranks, device.torch_device), GraphContext()
    captured = GraphedCallable(
        layer, device=device, context=context, run_mode=RunMode.FULL, name="layer"
    )
    hidden = torch.zeros(TOKENS, HIDDEN, device=device.torch_device)
    with CaptureSession(device, context), context.run(RunMode.FULL, KEY):
        captured(hidden)
    eager, replayed, errors = [], [], []
    for given in steps():
        hidden.copy_(given)
        eager.append(layer(hidden).cpu())
        with context.run(RunMode.FULL, KEY):
            replayed.append(captured(hidden).cpu())
        errors.append((replayed[-1].double() - layer.reference(given)).abs().max().item())
    num_collectives = cann_sim.counters().collectives
    num_replayed = captured.counters.replayed
    result = {
        "choice": str(measured_choice(layer, captured, hidden, context)),
        "equal": all(torch.equal(a, b) for a, b in zip(eager, replayed, strict=True)),
        "error": max(errors),
        "outputs": [output.tolist() for output in replayed],
        "collectives": num_collectives,
        "replayed": num_replayed,
    }
    sys.stdout.write(json.dumps(result) + "\n")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
