"""Host time of a replay with layer events, as a ratio to a replay without them.

Run by ``./nox -s bench -- layer-events``; options as ``--names=64``, ``--replays=300``. The real
torch_npu over cann-sim without kernels, so that the calling thread does what it does on a device.
Three subjects take turns: no events, events that nobody waits for, and events of which one stream
waits for each. Prints a Markdown table and writes rows to build/bench/layer-events.json.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from pathlib import Path
from typing import TYPE_CHECKING

os.environ.setdefault("CANN_SIM_KERNELS", "null")

import torch

import cann_sim

cann_sim.activate()

from npu_graph_runtime import (  # noqa: E402
    CaptureSession,
    GraphContext,
    GraphedCallable,
    GraphKey,
    LayerEvents,
    NpuDevice,
    RunMode,
)

if TYPE_CHECKING:
    from collections.abc import Callable

KEY = GraphKey(num_tokens=4)
TURNS = 15
PLAIN, UNASKED, ASKED = "no events", "events, nobody waits", "events, a stream waits for each"


def replayed(
    device: NpuDevice, names: int, *, has_events: bool, is_asked: bool
) -> Callable[[], None]:
    """Capture a graph with one layer per name, and return a function that replays it."""
    context = GraphContext()
    events = LayerEvents(device) if has_events else None
    consumer = device.create_stream()

    def model(x: torch.Tensor) -> torch.Tensor:
        for layer in range(names):
            for _ in range(8):
                x = x + 1
            if events is not None:
                events.record(f"layers.{layer}")
        return x

    graphed = GraphedCallable(
        model,
        device=device,
        context=context,
        run_mode=RunMode.FULL,
        name="model",
        around_capture=None if events is None else events.around_capture,
    )
    x = torch.zeros(4, device=device.torch_device)
    span = context.run(RunMode.FULL, KEY)
    with CaptureSession(device=device, context=context), span:
        graphed(x)

    def replay() -> None:
        with span:
            graphed(x)
        if is_asked and events is not None:
            step = events.current
            for name in step.names:
                step.wait(name, consumer)

    return replay


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--names", type=int, default=64)
    parser.add_argument("--replays", type=int, default=300)
    options = parser.parse_args()
    device = NpuDevice()
    with torch.no_grad():
        subjects = {
            PLAIN: replayed(device, options.names, has_events=False, is_asked=False),
            UNASKED: replayed(device, options.names, has_events=True, is_asked=False),
            ASKED: replayed(device, options.names, has_events=True, is_asked=True),
        }
        found: dict[str, list[float]] = {name: [] for name in subjects}
        for turn in range(TURNS + 1):
            for name, replay in subjects.items():
                device.synchronize()
                started = time.thread_time()
                for _ in range(options.replays):
                    replay()
                if turn:
                    found[name].append((time.thread_time() - started) / options.replays * 1e6)
        device.synchronize()
    times = {name: statistics.median(values) for name, values in found.items()}
    rows = [
        {"subject": name, "us": round(value, 1), "ratio": round(value / times[PLAIN], 2)}
        for name, value in times.items()
    ]
    print("| subject | host time of a step, us | ratio |")
    print("|---|---|---|")
    for row in rows:
        print(f"| {row['subject']} | {row['us']} | {row['ratio']} |")
    out = Path("build/bench/layer-events.json")
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
