"""Exceptions of signal handlers at any place of a capture: device and torch remain usable.

Python code of the standard library and of torch that captures run through also counts. The
exception is kept alive while the device is checked, so that no destructor repairs anything.
"""

from __future__ import annotations

import contextlib
import gc
import sys

import pytest
import torch
from torch.utils import _python_dispatch

from interrupts.signal_places import RaiseAt, count_places
from npu_graph_runtime import (
    CaptureSession,
    GraphContext,
    GraphedCallable,
    GraphKey,
    NpuDevice,
    RunMode,
    runs_eagerly,
)

KEY = GraphKey(num_tokens=4)
# One of so many places is tried; `--every-place` tries all.
SHARE = 97

pytestmark = [
    pytest.mark.skipif(
        sys.version_info < (3, 11), reason="3.10 looks for signals in the first line of a handler"
    ),
    # Python drops what is raised in a destructor.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


def _tripled(hidden: torch.Tensor) -> torch.Tensor:
    return hidden * 3


class Captures:
    """One callable that is captured again and again."""

    def __init__(self, device: NpuDevice, mode: RunMode) -> None:
        self.device, self.mode = device, mode
        self.stream = device.current_stream()
        self.context = GraphContext()
        self.input = torch.arange(4.0, device=device.torch_device)
        self.weight = torch.full((4,), 2.0, device=device.torch_device)
        self.pool = device.create_memory_pool()
        self.middle = runs_eagerly(self.context)(_tripled)
        self.graphed = GraphedCallable(
            self.step, device=device, context=self.context, run_mode=mode, name="step"
        )

    def step(self, hidden: torch.Tensor) -> torch.Tensor:
        return self.middle(hidden + self.weight) - 1

    def capture(self) -> None:
        with (
            CaptureSession(self.device, self.context, self.pool),
            self.context.run(self.mode, KEY),
        ):
            self.graphed(self.input)

    def assert_works(self, place: object) -> None:
        """See that nothing is left of a capture, and that the next one is right."""
        self.context.reset()
        assert self.device.current_stream() == self.stream, place
        assert not self.device.is_capturing(), place
        assert not _python_dispatch._get_current_dispatch_mode_stack(), place
        self.device.synchronize()
        self.graphed.release_all()
        self.capture()
        self.input.add_(1)
        with self.context.run(self.mode, KEY):
            found = self.graphed(self.input).cpu()
        assert torch.equal(found, (self.input.cpu() + 2) * 3 - 1), place
        self.graphed.release_all()


@pytest.mark.parametrize("mode", [RunMode.FULL, RunMode.BREAKABLE])
def test_interrupted_captures_leave_nothing(
    npu_device: NpuDevice, mode: RunMode, pytestconfig: pytest.Config
) -> None:
    captures = Captures(npu_device, mode)
    captures.capture()
    captures.graphed.release_all()
    also = (contextlib, _python_dispatch, sys.modules["torch_npu.npu.graphs"])
    num_places = count_places(captures.capture, also=also)
    captures.assert_works("no exception")
    step = 1 if pytestconfig.getoption("every_place") else SHARE
    raised = 0
    for place in range(1 + num_places % step, num_places + 1, step):
        interrupt = RaiseAt(place, also=also)
        kept: BaseException | None = None
        try:
            with interrupt:
                captures.capture()
        except KeyboardInterrupt as error:
            kept = error
        captures.assert_works(interrupt.raised)
        raised += kept is not None
        del kept
        gc.enable()
    assert num_places > 200
    assert raised > 0.9 * num_places / step
