"""Exceptions of signal handlers at any place of a step with producers: the next step is right."""

from __future__ import annotations

import sys
from random import Random
from typing import TYPE_CHECKING

import pytest

from attn_update import UpdateLane
from attn_update.producers import ProducerLane
from interrupts.signal_places import RaiseAt
from npu_graph_testing.attention import assert_layers_equal
from npu_graph_testing.attention.sparse_model import Buffers, SparseModel

if TYPE_CHECKING:
    from npu_graph_runtime import NpuDevice

# One of so many places is tried; `--every-place` tries all.
SHARE = 13

pytestmark = [
    pytest.mark.skipif(
        sys.version_info < (3, 11), reason="3.10 looks for signals in the first line of a handler"
    ),
    # Python drops what is raised in a destructor.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.mark.parametrize("captured", [False, True], ids=["beside", "inside"])
def test_exception_at_any_place_of_a_step_with_producers_leaves_nothing_waiting(
    npu_device: NpuDevice, pytestconfig: pytest.Config, captured: bool
) -> None:
    model = SparseModel(
        device=npu_device,
        lane=UpdateLane(npu_device),
        producers=ProducerLane(npu_device),
        buffers=Buffers.make(npu_device),
        key="decode",
        sequences=3,
        tokens=4,
        captured=captured,
    )
    model.capture()
    random, stream = Random(3), npu_device.current_stream()
    steps = [model.draw(random) for _ in range(6)]
    place, share = 1, 1 if pytestconfig.getoption("every_place") else SHARE
    while True:
        interrupt = RaiseAt(place)
        try:
            with interrupt:
                model.run(steps[place % len(steps)])
        except KeyboardInterrupt:
            npu_device.synchronize()
            assert npu_device.current_stream() == stream, interrupt.raised
            for drawn in (steps[(place + 1) % len(steps)], steps[(place + 2) % len(steps)]):
                try:
                    outputs = model.run(drawn)
                except Exception as error:
                    raise AssertionError(f"after an exception in {interrupt.raised}") from error
                assert_layers_equal(outputs, drawn.expected)
        if not interrupt.raised:
            break
        place += share
    assert place > 100
