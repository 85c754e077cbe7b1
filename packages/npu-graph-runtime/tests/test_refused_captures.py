"""Memory of a capture that ran out of memory is returned before a smaller one is tried."""

from __future__ import annotations

import traceback
from typing import TYPE_CHECKING

import pytest
import torch

from npu_graph_runtime import CaptureSession, GraphContext, GraphedCallable, GraphKey, RunMode
from npu_graph_runtime.errors import OutOfDeviceMemoryError

if TYPE_CHECKING:
    from npu_graph_runtime import NpuDevice

MODES = (RunMode.FULL, RunMode.BREAKABLE)


class TwoBuffers:
    """A callable that needs two buffers of a share of the memory that was free at the start."""

    def __init__(self, npu: NpuDevice) -> None:
        npu.synchronize()
        npu.empty_cache()
        self._free = npu.memory_figures().free

    def __call__(self, percent: int, x: torch.Tensor) -> torch.Tensor:
        num_bytes = self._free * percent // 100
        # Local variables, so that the frame of an error holds the first one.
        first = torch.empty(num_bytes, dtype=torch.uint8, device=x.device)
        second = torch.empty(num_bytes, dtype=torch.uint8, device=x.device)
        return first[:8].float() * 0 + second[:8].float() * 0 + x


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("warmup_runs", "percents", "captured"),
    [(0, (68, 44, 20), [44, 20]), (1, (68, 44, 4), [44, 4]), (2, (68, 44, 4), [44, 4])],
)
def test_smaller_sizes_are_captured_after_one_that_ran_out_of_memory(
    npu: NpuDevice,
    context: GraphContext,
    mode: RunMode,
    warmup_runs: int,
    percents: tuple[int, ...],
    captured: list[int],
) -> None:
    call = TwoBuffers(npu)
    graphed = GraphedCallable(
        call, device=npu, context=context, run_mode=mode, name="decode", warmup_runs=warmup_runs
    )
    x = torch.arange(8.0, device=npu.torch_device)
    kept: list[OutOfDeviceMemoryError] = []  # as an engine that reports them at the end does
    with CaptureSession(npu, context):
        for percent in percents:
            with context.run(mode, GraphKey(num_tokens=percent)):
                try:
                    graphed(percent, x)
                except OutOfDeviceMemoryError as error:
                    kept.append(error)

    assert [key.num_tokens for key in graphed.captured_keys] == captured
    assert len(kept) == len(percents) - len(captured)
    for refusal in kept:
        assert "in __call__" in "".join(traceback.format_exception(refusal))
    for percent in captured:
        with context.run(mode, GraphKey(num_tokens=percent)):
            assert graphed(percent, x).tolist() == x.tolist()
    graphed.release_all()


def test_smaller_size_is_captured_while_the_error_of_the_larger_is_handled(
    npu: NpuDevice, context: GraphContext
) -> None:
    call = TwoBuffers(npu)
    graphed = GraphedCallable(
        call, device=npu, context=context, run_mode=RunMode.FULL, name="decode"
    )
    x = torch.arange(8.0, device=npu.torch_device)
    with CaptureSession(npu, context):
        try:
            with context.run(RunMode.FULL, GraphKey(num_tokens=68)):
                graphed(68, x)
        except OutOfDeviceMemoryError:
            with context.run(RunMode.FULL, GraphKey(num_tokens=44)):
                graphed(44, x)
    assert graphed.is_captured(GraphKey(num_tokens=44))
    graphed.release_all()


def test_memory_in_a_cycle_of_the_failed_capture_is_returned(
    npu: NpuDevice, context: GraphContext
) -> None:
    """Garbage collection is paused in a session."""
    call = TwoBuffers(npu)
    x = torch.arange(8.0, device=npu.torch_device)
    half = npu.memory_figures().free // 2

    def in_a_cycle() -> None:
        cycle: list[object] = [torch.empty(half, dtype=torch.uint8, device=npu.torch_device)]
        cycle.append(cycle)
        raise ValueError("not captured")

    with CaptureSession(npu, context) as session:
        with pytest.raises(ValueError, match="not captured"):
            session.capture(in_a_cycle, subject="a failing call")
        captured = session.capture(lambda: call(40, x), subject="a call")
    captured.graph.reset()


def test_memory_of_warmup_runs_is_returned_where_the_capture_needs_it(
    npu: NpuDevice, context: GraphContext
) -> None:
    call = TwoBuffers(npu)
    graphed = GraphedCallable(
        call, device=npu, context=context, run_mode=RunMode.FULL, name="decode", warmup_runs=1
    )
    x = torch.arange(8.0, device=npu.torch_device)
    with CaptureSession(npu, context), context.run(RunMode.FULL, GraphKey(num_tokens=44)):
        graphed(44, x)
    assert graphed.is_captured(GraphKey(num_tokens=44))
    graphed.release_all()
