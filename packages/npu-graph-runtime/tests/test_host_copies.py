"""Copies from the host inside a capture, which each replay makes anew from the same memory."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
import torch

from npu_graph_runtime import (
    CaptureSession,
    GraphContext,
    GraphedCallable,
    GraphKey,
    NpuDevice,
    RunMode,
)
from npu_graph_runtime.errors import ReplacedWeightError

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


# In a process of its own, whose task queue ends.
ENDS_THE_QUEUE = """
import torch
from npu_graph_runtime import CaptureSession, GraphContext, GraphedCallable, GraphKey, NpuDevice
from npu_graph_runtime import RunMode

device, context, key = NpuDevice(), GraphContext(), GraphKey(num_tokens=4)
x = torch.ones(4, device=device.torch_device)


def copies_to_pageable_memory(x):
    return torch.empty(4).copy_(x * 2, non_blocking=True)


step = GraphedCallable(
    copies_to_pageable_memory, device=device, context=context, run_mode=RunMode.FULL, name="step",
    warmup_runs=0,
)
try:
    with CaptureSession(device, context), context.run(RunMode.FULL, key):
        step(x)
except RuntimeError as error:
    print(error)
x.fill_(3.0)
print(x.tolist())
"""


def test_error_of_a_copy_that_ends_the_task_queue_says_that_later_work_is_dropped() -> None:
    command = [sys.executable, "-m", "cann_sim", "run", "--", sys.executable, "-c", ENDS_THE_QUEUE]
    environment = {**os.environ, "TASK_QUEUE_ENABLE": "1"}
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    said, *_, after = done.stdout.splitlines()
    assert said.startswith("capturing 'step' under key (num_tokens=4): ")
    assert "a copy of pageable host memory cannot be captured" in said
    assert "drops all later work of this process without an error: restart the process" in said
    assert after == "[1.0, 1.0, 1.0, 1.0]"  # what torch_npu does then
