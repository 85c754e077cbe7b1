"""Memory of graphs that an engine gives up to sleep, and takes again to wake."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from npu_graph_runtime import CaptureSession, GraphContext, GraphedCallable, GraphKey, RunMode

if TYPE_CHECKING:
    from npu_graph_check.probe import Look

# Intermediate values of 8 MiB at the larger size: more than an allocator keeps in one small block.
_WIDTH, _SIZES, _CYCLES = 1024, (512, 2048), 4


def sleep_and_wake(look: Look) -> None:
    """Capture, write new weights, release, and look at what the process holds meanwhile."""
    device, context = look.opened, GraphContext()
    weight = torch.zeros(_WIDTH, _WIDTH, device=device.torch_device)
    rows = torch.zeros(_SIZES[-1], _WIDTH, device=device.torch_device)

    def step(rows: torch.Tensor) -> torch.Tensor:
        return torch.tanh(torch.tanh(rows @ weight) + rows)

    captured = GraphedCallable(
        step, device=device, context=context, run_mode=RunMode.FULL, name="step"
    )
    asleep, streams = [], []
    for cycle in range(_CYCLES):
        look.doing(f"waking for the {cycle + 1}. time")
        weight.copy_(torch.randn(weight.shape) / _WIDTH**0.5)
        with CaptureSession(device, context):
            for size in reversed(_SIZES):
                with context.run(RunMode.FULL, GraphKey(num_tokens=size)):
                    captured(rows[:size])
        awake = device.memory_figures().reserved
        rows.copy_(torch.randn(rows.shape))
        equal = []
        for size in _SIZES:
            with context.run(RunMode.FULL, GraphKey(num_tokens=size)):
                out = captured(rows[:size]).cpu()
            equal.append(torch.equal(out, step(rows[:size]).cpu()))
        look.expect(f"awake for the {cycle + 1}. time, bitwise eager", equal, [True, True])
        look.doing(f"going to sleep for the {cycle + 1}. time")
        captured.release_all()
        device.empty_cache()
        asleep.append(device.memory_figures().reserved)
        streams.append(device.free_streams())
        look.figure(f"memory of graphs given back, {cycle + 1}.", awake - asleep[-1], "bytes")
        look.expect(f"memory was given back, {cycle + 1}.", awake > asleep[-1], True)
    # What the first cycle takes once, workspaces for instance, stays.
    settled = [each - asleep[1] for each in asleep[2:]]
    look.expect("bytes more at each later sleep", settled, [0] * len(settled))
    if streams[0] is not None:
        kept = [(streams[1] or 0) - (each or 0) for each in streams[2:]]
        look.expect("streams more at each later sleep", kept, [0] * len(kept))
