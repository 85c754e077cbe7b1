"""A small step, captured and replayed by the runtime."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from npu_graph_runtime import (
    CaptureSession,
    GraphContext,
    GraphedCallable,
    GraphKey,
    RunMode,
    runs_eagerly,
)
from npu_graph_runtime.planning import CaptureBudget, CapturePlanner

if TYPE_CHECKING:
    from npu_graph_check.probe import Look

_WIDTH, _SIZES = 64, (2, 8)


def full(look: Look) -> None:
    """Capture two sizes whole, replay them, release them, and do it again."""
    device, context = look.opened, GraphContext()
    weight = torch.randn(_WIDTH, _WIDTH, dtype=torch.float16).to(device.torch_device)
    rows = torch.zeros(_SIZES[-1], _WIDTH, dtype=torch.float16, device=device.torch_device)

    def step(rows: torch.Tensor) -> torch.Tensor:
        return torch.relu(rows @ weight) + rows

    captured = GraphedCallable(
        step, device=device, context=context, run_mode=RunMode.FULL, name="step"
    )
    for turn in ("first", "second"):
        look.doing(f"capturing for the {turn} time")
        with CaptureSession(device, context):
            for size in reversed(_SIZES):
                with context.run(RunMode.FULL, GraphKey(num_tokens=size)):
                    captured(rows[:size])
        for size in _SIZES:
            rows.copy_(torch.randn(rows.shape, dtype=rows.dtype))
            with context.run(RunMode.FULL, GraphKey(num_tokens=size)):
                out = captured(rows[:size]).clone()
            device.synchronize()
            equal = torch.equal(out.cpu(), step(rows[:size]).cpu())
            look.expect(f"{turn} capture, {size} rows, bitwise eager", equal, True)
        look.expect(f"graphs after the {turn} capture", captured.num_graphs, len(_SIZES))
        captured.release_all()
        look.expect("graphs after their release", captured.num_graphs, 0)


def breakable(look: Look) -> None:
    """Capture a step around a function whose slice only the host knows."""
    device, context = look.opened, GraphContext()
    lengths, calls = [3], [0]
    rows = torch.zeros(8, _WIDTH, device=device.torch_device)

    @runs_eagerly(context)
    def attention(rows: torch.Tensor) -> torch.Tensor:
        calls[0] += 1
        return rows[: lengths[0]].mean(0) + rows

    def step(rows: torch.Tensor) -> torch.Tensor:
        return attention(rows + 1) * 2

    captured = GraphedCallable(
        step, device=device, context=context, run_mode=RunMode.BREAKABLE, name="step"
    )
    key = GraphKey(num_tokens=8)
    look.doing("capturing in segments")
    with CaptureSession(device, context), context.run(RunMode.BREAKABLE, key):
        captured(rows)
    for length in (4, 1, 8):
        rows.copy_(torch.randn(rows.shape))
        lengths[0], calls[0] = length, 0
        with context.run(RunMode.BREAKABLE, key):
            out = captured(rows).clone()
        look.expect(f"calls of the eager function, length {length}", calls[0], 1)
        device.synchronize()
        equal = torch.equal(out.cpu(), step(rows).cpu())
        look.expect(f"length {length}, bitwise eager", equal, True)


def forecast(look: Look) -> None:
    """Capture with a planner, and compare its forecast after two captures with actual use."""
    device, context = look.opened, GraphContext()
    if device.free_streams() is None:
        look.not_tried("this device does not tell how many streams it has left")
    weight = torch.randn(_WIDTH, _WIDTH).to(device.torch_device)
    rows = torch.zeros(64, _WIDTH, device=device.torch_device)
    captured = GraphedCallable(
        lambda rows: torch.relu(rows @ weight),
        device=device,
        context=context,
        run_mode=RunMode.FULL,
        name="step",
    )
    sizes, told = (8, 16, 32, 64), None
    look.doing("capturing by a planner")
    with CaptureSession(device, context):
        before = device.free_streams() or 0
        planner = CapturePlanner(device, sizes, budget=CaptureBudget(streams=1000))
        while (size := planner.next_size()) is not None:
            with context.run(RunMode.FULL, GraphKey(num_tokens=size)):
                captured(rows[:size])
            planner.captured(size)
            plan = planner.plan
            if told is None and plan.forecast is not None:
                told = plan.forecast.streams
        used = before - (device.free_streams() or 0)
    look.expect("sizes that were captured", sorted(planner.plan.captured), list(sizes))
    look.expect("streams: forecast less used", None if told is None else told - used, 0)
    look.figure("streams of four graphs", used, "streams")


def forecast_of_bytes(look: Look) -> None:
    """Capture a deeper step by a planner, and compare its forecast of memory with what is used."""
    device, context = look.opened, GraphContext()
    weights = [torch.randn(512, 512).to(device.torch_device) for _ in range(4)]
    rows = torch.zeros(2048, 512, device=device.torch_device)

    def step(rows: torch.Tensor) -> torch.Tensor:
        hidden = rows
        for weight in weights:
            hidden = torch.tanh(hidden @ weight) + hidden
        return hidden

    captured = GraphedCallable(
        step, device=device, context=context, run_mode=RunMode.FULL, name="step"
    )
    # What a library allocates at its first product is no cost of a graph.
    step(rows)
    told = None
    look.doing("capturing by a planner")
    with CaptureSession(device, context):
        planner = CapturePlanner(device, (256, 512, 1024, 1536, 2048))
        before = device.memory_figures().reserved
        while (size := planner.next_size()) is not None:
            with context.run(RunMode.FULL, GraphKey(num_tokens=size)):
                captured(rows[:size])
            planner.captured(size)
            if told is None and planner.plan.forecast is not None:
                told = planner.plan.forecast.num_bytes
        device.empty_cache()
        grown = device.memory_figures().reserved - before
    used = planner.plan.used.num_bytes
    look.expect("sizes that were captured", len(planner.plan.captured), 5)
    look.figure("forecast after two of five sizes", told or 0, "bytes")
    look.figure("used by five sizes", used, "bytes")
    look.figure("reserved more by the allocator", grown, "bytes")
    within = told is not None and used > 0 and abs(told - used) <= 0.05 * used
    look.expect("the forecast is within 5 % of what is used", within, True)
    look.expect("what is used is at least what the allocator reserved", used >= grown, True)
