"""An engine adopts only npu-graph-runtime, to capture its step for some sizes and replay it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from npu_graph_runtime import (
    CaptureSession,
    CaptureSizes,
    FakeDevice,
    GraphContext,
    GraphedCallable,
    GraphKey,
    RunMode,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from npu_graph_runtime import GraphDevice


class CapturingEngine:
    """Runs batches of up to the largest size; `step` takes rows of a static buffer."""

    def __init__(
        self, step: Callable[[torch.Tensor], torch.Tensor], device: GraphDevice, width: int
    ) -> None:
        self._context, self._sizes = GraphContext(), CaptureSizes([1, 2, 4, 8])
        self._rows = torch.zeros(self._sizes.largest, width, device=device.torch_device)
        self._step = GraphedCallable(
            step, device=device, context=self._context, run_mode=RunMode.FULL, name="step"
        )
        with CaptureSession(device, self._context):
            for size in self._sizes.largest_first():
                self._replay(size)

    def run(self, batch: torch.Tensor) -> torch.Tensor:
        """Return the output for a batch ``[rows, width]``, valid until the next call."""
        bucket = self._sizes.bucket_for(len(batch))
        if bucket is None:
            raise ValueError(f"{len(batch)} rows, expected at most {self._sizes.largest}")
        self._rows[: len(batch)] = batch
        return self._replay(bucket)[: len(batch)]

    def _replay(self, size: int) -> torch.Tensor:
        with self._context.run(RunMode.FULL, GraphKey(num_tokens=size)):
            output: torch.Tensor = self._step(self._rows[:size])
        return output


def main() -> None:
    """Replay a batch of three rows by the graph of four."""
    engine = CapturingEngine(lambda rows: rows * 2, FakeDevice(), width=2)
    print(engine.run(torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])).tolist())


if __name__ == "__main__":
    main()
