"""Random calls with faults at random places are bitwise equal to eager calls.

`--calls 100000` sets their number; the gate makes 1,000 on the fake device.
"""

from __future__ import annotations

import gc
import importlib
import random
import warnings
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import Tensor, nn

from by_signature.random_calls import FaultyDevice, World, arguments
from by_signature.test_graphed import bits
from npu_graph_runtime import (
    FakeDevice,
    GraphContext,
    GraphDevice,
    Graphed,
    GraphRuntimeError,
    graphed,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

CALLS_OF_A_WORLD = 50


@pytest.fixture(autouse=True)
def _cheap_collections() -> Iterator[None]:
    # Each capture collects garbage, and the first one imports Dynamo.
    importlib.import_module("torch._dynamo")
    gc.collect()
    gc.freeze()
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        yield
    gc.unfreeze()


def outcome(call: Any, args: tuple[Any, ...]) -> Any:
    try:
        return call(*args)
    except (ValueError, LookupError) as error:
        if isinstance(error, GraphRuntimeError):
            raise
        return type(error), str(error)


def replace_weights(draw: random.Random, *worlds: World) -> None:
    value = draw.random()
    for world in worlds:
        weight = torch.full_like(world.layer.weight, value)
        world.layer.weight = nn.Parameter(weight, requires_grad=False)


def run_world(seed: int, device: GraphDevice, *, breaks: bool) -> tuple[Graphed, int, int]:
    """Make the calls of one seed.

    Returns:
        The graphed functions, the faults that were drawn, and the calls that raised one.
    """
    draw = random.Random(seed)
    context = GraphContext()
    eager = World(seed, device, GraphContext() if breaks else None, None)
    ours = World(seed, device, context if breaks else None, draw)
    step: Graphed = graphed(
        ours.run,
        device=device,
        most=draw.choice((2, 6, 16)),
        breaks=context if breaks else None,
    )
    forms = [draw.randrange(2**32) for _ in range(3)]
    kept: list[tuple[Any, Any]] = []
    num_raised = 0
    for call in range(CALLS_OF_A_WORLD):
        where = f"call {call} of seed {seed}"
        # The fake device keeps what its graphs read, so a replaced weight is never freed there.
        if draw.random() < 0.03 and not isinstance(device, FakeDevice):
            replace_weights(draw, eager, ours)
        if draw.random() < 0.02:
            step.release_all()
        number = draw.randrange(2)
        drawn = draw.choice(forms) if draw.random() < 0.9 else draw.randrange(2**32)
        theirs = (number, *arguments(random.Random(drawn), call, device))
        mine = (number, *arguments(random.Random(drawn), call, device))
        if draw.random() < 0.05:
            # A row that the function writes itself, in addition to the arguments.
            theirs = (*theirs[:1], eager.state[:1], *theirs[2:])
            mine = (*mine[:1], ours.state[:1], *mine[2:])
        with torch.inference_mode(mode=draw.random() < 0.1):
            expected, before_call = outcome(eager.run, theirs), num_faults(ours, device)
            try:
                found = outcome(step, mine)
            except GraphRuntimeError:
                found = None
            has_fault = num_faults(ours, device) > before_call
        if breaks and has_fault and (found is None or is_drawn(found)):
            # A part of the call has run, so it may not run again: the error came out.
            ours.state.copy_(eager.state)
            num_raised += 1
            continue
        assert bits(found) == bits(expected), f"result of {where}, of {ours.calls[number]}"
        assert bits(mine[1:3]) == bits(theirs[1:3]), f"arguments of {where}"
        assert bits(ours.state) == bits(eager.state), f"state of {where}"
        assert aliases(found, mine) == aliases(expected, theirs), f"aliases of {where}"
        for before, its_bits in kept:
            assert bits(before) == its_bits, f"a result before {where}"
        kept = [*kept[-2:], (fresh(found, mine, ours), bits(fresh(expected, theirs, eager)))]
    return step, num_faults(ours, device), num_raised


def num_faults(world: World, device: GraphDevice) -> int:
    return world.num_faults + getattr(device, "num_faults", 0)


def is_drawn(found: Any) -> bool:
    return bool(found == (LookupError, "drawn inside a capture"))


def tensors(value: Any) -> list[Tensor]:
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, dict):
        return tensors(list(value.values()))
    return (
        [each for item in value for each in tensors(item)]
        if isinstance(value, (list, tuple))
        else []
    )


def aliases(result: Any, args: tuple[Any, ...]) -> list[int]:
    """Return of each result which earlier result or argument shares its memory, by number."""
    first: dict[int, int] = {}
    return [
        first.setdefault(tensor.untyped_storage().data_ptr(), index) if tensor.numel() else -1
        for index, tensor in enumerate([*tensors(args), *tensors(result)])
    ]


def fresh(result: Any, args: tuple[Any, ...], world: World) -> list[Tensor]:
    """Return the results that later calls do not write."""
    others = {each.untyped_storage().data_ptr() for each in (*tensors(args), world.state)}
    return [each for each in tensors(result) if each.untyped_storage().data_ptr() not in others]


@pytest.mark.parametrize("breaks", [False, True], ids=["whole", "in segments"])
def test_random_calls_are_bitwise_eager_on_the_fake_device(num_calls: int, breaks: bool) -> None:
    replayed = faults = captured = raised = 0
    for seed in range(num_calls // CALLS_OF_A_WORLD):
        # A capture in segments begins one for each of them.
        device = FaultyDevice(random.Random(seed), 0.05 if breaks else 0.15)
        step, drawn, failed = run_world(seed, device, breaks=breaks)
        counters = step.counters
        replayed += counters.replayed
        captured += counters.captured
        faults += drawn
        raised += failed
    assert replayed > num_calls // 8
    assert captured > num_calls // 40
    assert faults > num_calls // 40
    # Only a call in segments has done a part of its work when it fails.
    assert (raised > 0) is breaks


@pytest.mark.parametrize("breaks", [False, True], ids=["whole", "in segments"])
def test_random_calls_are_bitwise_eager_on_an_npu(
    npu: GraphDevice, num_calls: int, breaks: bool
) -> None:
    for seed in range(num_calls // CALLS_OF_A_WORLD // 10):
        step, _, _ = run_world(1000 + seed, npu, breaks=breaks)
        assert step.counters.replayed
        step.release_all()
