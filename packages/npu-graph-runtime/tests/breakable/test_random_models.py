"""Random models captured in segments are bitwise equal to their eager runs.

`--models 2000` sets their number; the gate runs fewer.
"""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from breakable.random_model import WIDTH, RandomModel
from npu_graph_runtime import (
    CaptureSession,
    FakeDevice,
    GraphContext,
    GraphDevice,
    GraphedCallable,
    GraphKey,
    NpuDevice,
    RunMode,
)

SIZES = (4, 2)
REPLAYS = 3


def inputs(seed: int, step: int) -> Tensor:
    return torch.randn(SIZES[0], WIDTH, generator=torch.Generator().manual_seed(seed * 100 + step))


def assert_same(expected: tuple[Tensor, Tensor], found: tuple[Tensor, Tensor], where: str) -> None:
    for name, left, right in zip(("result", "state"), expected, found, strict=True):
        assert torch.equal(left.cpu(), right.cpu()), f"{name} of {where}"


def check(seed: int, device: GraphDevice, context: GraphContext) -> None:
    eager, model = (RandomModel(seed, device, context) for _ in range(2))
    tokens = torch.zeros(SIZES[0], WIDTH, device=device.torch_device)
    step = GraphedCallable(
        lambda size: model(tokens[:size]),
        device=device,
        context=context,
        run_mode=RunMode.BREAKABLE,
        name=f"model {seed}",
    )

    def expected(size: int, runs: int = 1) -> tuple[Tensor, Tensor]:
        # The state is written at each run, so it has to run as often.
        results = [eager(tokens[:size].clone()) for _ in range(runs)]
        return results[-1]

    with CaptureSession(device, context):
        for size in SIZES:
            tokens.copy_(inputs(seed, size))
            with context.run(RunMode.BREAKABLE, GraphKey(num_tokens=size)):
                found = step(size)
            # One run warms up, and the segments are replayed once.
            assert_same(
                expected(size, runs=2), found, f"model {seed} at the capture of {size} tokens"
            )
    for replay in range(REPLAYS):
        for size in reversed(SIZES):
            tokens.copy_(inputs(seed, 10 * replay + size))
            with context.run(RunMode.BREAKABLE, GraphKey(num_tokens=size)):
                found = step(size)
            assert_same(expected(size), found, f"model {seed} at replay {replay} of {size} tokens")
    step.release_all()


@pytest.mark.parametrize("device_name", ["fake", "npu"])
def test_random_models_are_bitwise_what_they_are_eagerly(
    request: pytest.FixtureRequest, context: GraphContext, num_models: int, device_name: str
) -> None:
    device: FakeDevice | NpuDevice = request.getfixturevalue(device_name)
    for seed in range(num_models):
        check(seed, device, context)
