"""The allocator model reserves as much as torch_npu's allocator, for random allocations."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest
import torch

from npu_graph_runtime.planning.allocator_model import AllocatorModel, Place
from npu_graph_runtime.planning.capture_allocations import CaptureAllocations

if TYPE_CHECKING:
    from npu_graph_runtime import NpuDevice

KIB, MIB = 2**10, 2**20
# On both sides of where the allocator's rules change.
EDGES = (1, 480, 481, 512, MIB - 512, MIB - 32, MIB - 31, MIB, 2 * MIB, 10 * MIB - 32, 10 * MIB)
NUM_STEPS = 300


def allocate_randomly(seed: int, npu: NpuDevice) -> list[torch.Tensor]:
    """Allocate and free on two streams; return the live tensors."""
    rng = random.Random(seed)
    streams = [npu.current_stream(), npu.create_stream()]
    live: list[torch.Tensor] = []
    for _ in range(NUM_STEPS):
        if live and rng.random() < 0.45:
            del live[rng.randrange(len(live))]
            continue
        size = rng.choice((rng.choice(EDGES), rng.randrange(64 * KIB), rng.randrange(24 * MIB)))
        with npu.use_stream(rng.choice(streams)):
            live.append(torch.empty(max(size, 1), dtype=torch.uint8, device=npu.torch_device))
    return live


@pytest.mark.parametrize("seed", range(8))
def test_model_takes_what_the_allocator_takes(npu: NpuDevice, seed: int) -> None:
    held = allocate_randomly(seed + 100, npu)
    npu.synchronize()
    npu.empty_cache()
    history = npu.begin_history()
    assert history is not None
    try:
        before = history.take()
        live = allocate_randomly(seed, npu)
        while_live = history.take()
        assert before is not None
        assert while_live is not None
        taken = CaptureAllocations.read(1, while_live, ())
        model = AllocatorModel(before.segments)
        addresses = taken.repeat(model, taken.num_bytes, ())

        assert len(taken.addresses) > NUM_STEPS // 3
        assert model.reserved == sum(each["total_size"] for each in while_live.segments)
        assert model.reserved == npu.memory_figures().reserved

        del live
        npu.synchronize()
        npu.empty_cache()
        freed = history.take()
        assert freed is not None
        CaptureAllocations.read(1, freed, (taken,)).repeat(model, (), [addresses])
        model.empty_cache()
        assert model.reserved == sum(each["total_size"] for each in freed.segments)
    finally:
        history.end()
    assert held


def allocations(
    size: int, num_bytes: tuple[int, ...], *, is_longer: bool = False
) -> CaptureAllocations:
    """The requests of a capture, on one stream of one pool."""
    place = Place((0, 1), 0)
    return CaptureAllocations(
        size=size,
        steps=(place,) * (len(num_bytes) + is_longer),
        num_bytes=num_bytes,
        addresses=tuple(range(len(num_bytes))),
    )


def test_requests_of_similar_captures_are_interpolated_linearly() -> None:
    large, small = allocations(64, (6400, 512, 1664, 700)), allocations(32, (3200, 512, 864, 900))

    # In proportion, fixed, a header of 64 and 25 a row, and one that shrinks with no size.
    assert small.scaled(8, large) == [800, 512, 264, 900]
    assert small.scaled(32, large) == [3200, 512, 864, 900]


def test_requests_of_unlike_captures_are_in_proportion_unless_the_other_has_them_too() -> None:
    large = allocations(64, (6400, 512, 77), is_longer=True)

    assert allocations(32, (3200, 512)).scaled(8, large) == [800, 512]
