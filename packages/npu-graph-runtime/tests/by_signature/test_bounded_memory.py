"""However many signatures a graphed function is called with, its memory and streams are bounded."""

from __future__ import annotations

import gc
import importlib
from typing import TYPE_CHECKING

import pytest
import torch
from torch import Tensor

from npu_graph_runtime import GraphContext, Graphed, NpuDevice, graphed, runs_eagerly

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MOST = 4
KIBIBYTE = 256  # floats


@pytest.fixture(autouse=True)
def _cheap_collections() -> Iterator[None]:
    importlib.import_module("torch._dynamo")
    gc.collect()
    gc.freeze()
    with torch.no_grad():
        yield
    gc.unfreeze()


def body(x: Tensor) -> Tensor:
    hidden = x + 1
    return (hidden * 2 - x).sum(1)


def run_signatures(
    npu: NpuDevice, step: Callable[[Tensor], Tensor], count: int, calls: int
) -> list[tuple[int, int]]:
    """Call with as many signatures; return bytes allocated and free streams after each."""
    found = []
    for number in range(count):
        # Some 4 MiB each, of another shape.
        x = torch.ones(4 * KIBIBYTE - number, KIBIBYTE * 4, device=npu.torch_device)
        for _ in range(calls):
            assert torch.equal(step(x), body(x))
        del x
        npu.synchronize()
        found.append((npu.memory_figures().allocated, npu.free_streams() or 0))
    return found


@pytest.mark.parametrize("is_breakable", [False, True])
def test_memory_and_streams_after_a_hundred_signatures(
    npu: NpuDevice, context: GraphContext, is_breakable: bool
) -> None:
    @runs_eagerly(context)
    def last(value: Tensor) -> Tensor:
        return value

    step: Graphed = graphed(
        lambda x: last(body(x)),
        device=npu,
        most=MOST,
        breaks=context if is_breakable else None,
    )
    found = run_signatures(npu, step, 100, 3 if is_breakable else 2)
    assert step.num_graphs == MOST
    assert step.counters.captured == 100
    assert step.counters.released == 100 - MOST
    full = found[MOST - 1 : MOST + 4]
    assert max(allocated for allocated, _ in found) <= 1.05 * max(each[0] for each in full)
    assert min(streams for _, streams in found) >= min(streams for _, streams in full)

    reserved = npu.memory_figures().reserved
    run_signatures(npu, step, 20, 3)
    assert npu.memory_figures().reserved <= reserved
    step.release_all()
    del step
    gc.collect()
    npu.empty_cache()
    assert npu.memory_figures().allocated < found[0][0]
