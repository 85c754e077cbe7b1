"""An engine that sleeps gives all graphs up, and comes back with new weights, again and again."""

from __future__ import annotations

import ctypes
import gc
from typing import TYPE_CHECKING

import pytest
import torch
from torch import nn

import cann_sim
from npu_graph_runtime import (
    CaptureSession,
    GraphContext,
    GraphedCallable,
    GraphKey,
    RunMode,
    largest_first,
    runs_eagerly,
)
from npu_graph_runtime.errors import DeviceError

if TYPE_CHECKING:
    from npu_graph_runtime import NpuDevice

WIDTH = 64
KEYS = {size: GraphKey(num_tokens=size) for size in (1, 4, 16)}
MODES = (RunMode.FULL, RunMode.BREAKABLE)


class Model(nn.Module):
    """Two layers with a break between them."""

    def __init__(self, context: GraphContext) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.requires_grad_(False)
        self._mix = runs_eagerly(context)(torch.tanh)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        mixed: torch.Tensor = self.second(self._mix(self.first(hidden))) + hidden
        return mixed


class Engine:
    """A model captured whole and in segments, each with a pool of its own."""

    def __init__(self, npu: NpuDevice) -> None:
        self.npu, self.context = npu, GraphContext()
        self.model = Model(self.context).to(npu.torch_device)
        self.hidden = torch.zeros(max(KEYS), WIDTH, device=npu.torch_device)
        self.graphed = [
            GraphedCallable(
                self.model, device=npu, context=self.context, run_mode=mode, name=mode.value
            )
            for mode in MODES
        ]

    def wake(self) -> None:
        for graphed in self.graphed:
            with CaptureSession(self.npu, self.context):
                for key in largest_first(KEYS.values()):
                    with self.context.run(graphed.run_mode, key):
                        graphed(self.hidden[: key.num_tokens])

    def load(self, seed: int) -> None:
        """Write new weights where the old ones are."""
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for weight in self.model.parameters():
                weight.copy_(torch.randn(weight.shape, generator=generator) / WIDTH**0.5)

    def serve(self, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        for size, key in KEYS.items():
            rows = self.hidden[:size]
            rows.copy_(torch.randn(size, WIDTH, generator=generator))
            expected = self.model(rows)
            for graphed in self.graphed:
                with self.context.run(graphed.run_mode, key):
                    assert torch.equal(graphed(rows), expected)

    def sleep(self) -> None:
        for graphed in self.graphed:
            graphed.release_all()
        self.npu.empty_cache()


@pytest.fixture
def num_cycles(request: pytest.FixtureRequest) -> int:
    cycles: int = request.config.getoption("--cycles")
    return cycles


def test_cycles_of_sleep_and_wake_leave_memory_flat(npu: NpuDevice, num_cycles: int) -> None:
    engine = Engine(npu)
    asleep, objects = [], []
    for cycle in range(num_cycles):
        engine.wake()
        engine.serve(cycle)
        engine.load(cycle)
        for graphed in engine.graphed:
            graphed.check_weights()
        engine.serve(cycle + 1)
        engine.sleep()
        asleep.append(npu.memory_figures())
        gc.collect()
        objects.append(len(gc.get_objects()))

    # What the first cycles allocate once, workspaces of kernels for instance, stays.
    settled = num_cycles // 4
    assert set(asleep[settled:]) == {asleep[settled]}
    assert max(objects[settled:]) - objects[settled] < num_cycles


class _Allocated(ctypes.Structure):
    """The result of glibc's `mallinfo2`."""

    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in (
            "arena",
            "ordblks",
            "smblks",
            "hblks",
            "hblkhd",
            "usmblks",
            "fsmblks",
            "uordblks",
            "fordblks",
            "keepcost",
        )
    )


def _allocated_bytes() -> int:
    """Return the bytes allocated in C and C++, without free memory and the allocator's own."""
    mallinfo2 = ctypes.CDLL(None).mallinfo2
    mallinfo2.restype = _Allocated
    found = mallinfo2()
    return int(found.uordblks) + int(found.hblkhd)


def test_pools_that_are_given_up_keep_no_memory_of_the_host(npu: NpuDevice) -> None:
    """Each was some 46 KiB of torch_npu's allocator of pinned memory."""
    context, cycles = GraphContext(), 60
    graphed = GraphedCallable(
        torch.tanh, device=npu, context=context, run_mode=RunMode.FULL, name="tanh"
    )
    value = torch.zeros(4, device=npu.torch_device)
    stream = npu.create_stream()
    allocated = []
    for _ in range(2 * cycles):
        with CaptureSession(npu, context, stream=stream), context.run(RunMode.FULL, KEYS[4]):
            graphed(value)
        graphed.release_all()
        npu.synchronize()
        gc.collect()
        allocated.append(_allocated_bytes())

    assert allocated[-1] - allocated[cycles] < cycles * 10 * 1024


def test_captures_whose_end_is_refused_keep_no_memory_of_the_device(npu: NpuDevice) -> None:
    """torch_npu never frees a pool that a graph without an end still has a share of."""
    context = GraphContext()
    graphed = GraphedCallable(
        torch.tanh, device=npu, context=context, run_mode=RunMode.FULL, name="tanh"
    )
    value = torch.zeros(1 << 20, device=npu.torch_device)

    def reserved(*, refused: int) -> int:
        for _ in range(refused):
            session = CaptureSession(npu, context)
            faults = cann_sim.injected_faults("capture_end:1")
            with pytest.raises(DeviceError), faults, session, context.run(RunMode.FULL, KEYS[4]):
                graphed(value)
        with CaptureSession(npu, context), context.run(RunMode.FULL, KEYS[4]):
            graphed(value)
        graphed.release_all()
        npu.empty_cache()
        return npu.memory_figures().reserved

    assert reserved(refused=5) == reserved(refused=1)


@pytest.mark.parametrize("was_used", [False, True])
@pytest.mark.parametrize("refused", [(4,), (4, 16)])
def test_session_continues_after_captures_that_were_refused(
    npu: NpuDevice, refused: tuple[int, ...], was_used: bool
) -> None:
    """A pool whose only share was given up is no pool that torch_npu captures into again."""
    context = GraphContext()
    graphed = GraphedCallable(
        torch.tanh, device=npu, context=context, run_mode=RunMode.FULL, name="tanh"
    )
    value = torch.ones(1 << 10, device=npu.torch_device)
    if was_used:
        with CaptureSession(npu, context), context.run(RunMode.FULL, KEYS[1]):
            graphed(value)
        graphed.release_all()

    with CaptureSession(npu, context):
        for size in refused:
            faults = cann_sim.injected_faults("capture_end:1")
            with pytest.raises(DeviceError), faults, context.run(RunMode.FULL, KEYS[size]):
                graphed(value)
        with context.run(RunMode.FULL, KEYS[1]):
            graphed(value)
    with CaptureSession(npu, context), context.run(RunMode.FULL, KEYS[4]):
        graphed(value)

    for size in (1, 4):
        with context.run(RunMode.FULL, KEYS[size]):
            assert torch.equal(graphed(value).cpu(), torch.tanh(value).cpu())
