"""Host times of a step that runs eagerly, and of its replay."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from npu_graph_check.probes.step_times import median_times
from npu_graph_runtime import CaptureSession, GraphContext, GraphedCallable, GraphKey, RunMode

if TYPE_CHECKING:
    from npu_graph_check.probe import Look

_LAUNCHES = 64


def replay(look: Look) -> None:
    """Time 64 launches, one by one and as one replay."""
    device, context = look.opened, GraphContext()
    values = torch.ones(1024, device=device.torch_device)

    def step() -> torch.Tensor:
        for _ in range(_LAUNCHES):
            values.add_(1)
        return values

    graphed = GraphedCallable(
        step, device=device, context=context, run_mode=RunMode.FULL, name="launches"
    )
    key = GraphKey(num_tokens=1)
    with CaptureSession(device, context), context.run(RunMode.FULL, key):
        graphed()

    def run(mode: RunMode) -> None:
        with context.run(mode, key):
            graphed()

    look.doing(f"timing {_LAUNCHES} launches")
    eager, replayed = median_times(device, lambda: run(RunMode.EAGER), lambda: run(RunMode.FULL))
    look.figure(f"{_LAUNCHES} launches, one by one, host", eager * 1e6, "us")
    look.figure(f"{_LAUNCHES} launches, one replay, host", replayed * 1e6, "us")
    look.figure("ratio", eager / replayed, "times")
    look.expect("a replay takes the host less than its launches", replayed < eager, True)
