"""Copies from the host inside a capture, which each replay makes anew from the same memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

from npu_graph_runtime import (
    CaptureSession,
    GraphContext,
    GraphedCallable,
    GraphKey,
    NpuDevice,
    ReplacedWeightError,
    RunMode,
)

if TYPE_CHECKING:
    from collections.abc import Callable

# torch_npu says this of the first pinned tensor of a process.
pytestmark = pytest.mark.filterwarnings("ignore:Cannot create tensor with internal format")

KEY = GraphKey(num_tokens=2)


def captured(
    npu: NpuDevice, context: GraphContext, function: Callable[[torch.Tensor], torch.Tensor]
) -> GraphedCallable:
    step = GraphedCallable(
        function, device=npu, context=context, run_mode=RunMode.FULL, name="step", warmup_runs=0
    )
    with CaptureSession(npu, context), context.run(RunMode.FULL, KEY):
        step(torch.zeros(2, device=npu.torch_device))
    return step


def pinned(*values: float) -> torch.Tensor:
    return torch.tensor(values).pin_memory()


@pytest.mark.parametrize(
    "copy",
    [
        lambda x: x.copy_(pinned(1, 2), non_blocking=True),
        lambda x: x + pinned(1, 2).to(x.device, non_blocking=True),
    ],
)
def test_copy_of_host_memory_that_the_capture_drops_is_refused(
    npu: NpuDevice, context: GraphContext, copy: Callable[[torch.Tensor], torch.Tensor]
) -> None:
    with pytest.raises(
        ReplacedWeightError,
        match=r"capturing 'step' .*shape \(2,\).*copy.* at .*test_host_copies\.py:\d+, is freed",
    ):
        captured(npu, context, copy)


def test_copy_of_host_memory_that_is_freed_later_is_refused_at_the_replay(
    npu: NpuDevice, context: GraphContext
) -> None:
    held = [pinned(1, 2)]
    x = torch.zeros(2, device=npu.torch_device)
    step = GraphedCallable(
        lambda x: x.copy_(held[0], non_blocking=True) + 1,
        device=npu,
        context=context,
        run_mode=RunMode.FULL,
        name="step",
    )
    with CaptureSession(npu, context), context.run(RunMode.FULL, KEY):
        step(x)
    held[0].copy_(torch.tensor([5.0, 6.0]))
    with context.run(RunMode.FULL, KEY):
        assert step(x).tolist() == [6.0, 7.0]
        held[0] = pinned(1, 2)
        with pytest.raises(ReplacedWeightError, match=r"replaying 'step'.*is freed"):
            step(x)
    step.release_all()
