"""What further tensors can take: the allocator's unused memory counts, that of graphs does not."""

from __future__ import annotations

import torch

import cann_sim
from npu_graph_runtime import (
    CaptureSession,
    GraphContext,
    GraphedCallable,
    GraphKey,
    NpuDevice,
    RunMode,
)
from vllm_npu_graph.planning.free_memory import read_free_bytes

MIB = 2**20


def test_a_tensor_takes_what_it_has_and_not_its_segment() -> None:
    cann_sim.activate()
    device = NpuDevice(0)
    before = read_free_bytes(device)

    small = torch.empty(1000, dtype=torch.int8, device="npu:0")

    assert device.memory_figures().reserved >= 2 * MIB
    assert 1000 <= before - read_free_bytes(device) <= 2048
    del small
    assert read_free_bytes(device) == before


def test_unused_memory_of_a_graphs_pool_is_taken() -> None:
    cann_sim.activate()
    device, context = NpuDevice(0), GraphContext()
    values = torch.zeros(8 * MIB, dtype=torch.int8, device="npu:0")
    graphed = GraphedCallable(
        lambda given: (given + 1).sum(),
        device=device,
        context=context,
        run_mode=RunMode.FULL,
        name="sum",
        warmup_runs=0,
    )
    before = read_free_bytes(device)

    with (
        CaptureSession(device, context),
        context.run(RunMode.FULL, GraphKey(num_tokens=1)),
    ):
        graphed(values)

    # Nothing but the sum stays allocated of what the graph writes at each replay.
    assert before - read_free_bytes(device) >= 8 * MIB
    graphed.release_all()
