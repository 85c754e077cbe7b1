"""Attention in plain torch, for updates on the fake device."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

from attn_update import Recorder, StepParameters, UnknownNameError, UpdateLane, UpdatePlan
from npu_graph_runtime import (
    CaptureSession,
    FakeDevice,
    GraphContext,
    GraphedCallable,
    GraphKey,
    RunMode,
)
from npu_graph_testing.attention import AttentionOperators

if TYPE_CHECKING:
    from collections.abc import Iterator

QUERY, CACHE = torch.zeros(3, 2), torch.arange(64.0).reshape(4, 8, 2)
TABLE = torch.tensor([[3, 0], [1, 2]])


@pytest.fixture
def operators() -> Iterator[AttentionOperators]:
    with AttentionOperators() as operators:
        yield operators


def arguments(ends: list[int], lengths: list[int]) -> dict[str, object]:
    given: dict[str, object] = {"query": QUERY, "key": CACHE, "value": CACHE, "block_size": 8}
    given |= {"block_table": TABLE, "input_layout": "TND"}
    given |= {"actual_seq_lengths": ends, "actual_seq_lengths_kv": lengths}
    return given


def expected(ends: list[int], lengths: list[int]) -> torch.Tensor:
    out, begin = torch.zeros_like(QUERY), 0
    for row, (end, length) in enumerate(zip(ends, lengths, strict=True)):
        out[begin:end] = CACHE[TABLE[row]].flatten(0, 1)[:length].sum(0)
        begin = end
    return out


@pytest.mark.parametrize(
    ("ends", "lengths"), [([1, 3], [5, 16]), ([2, 3], [0, 9]), ([0, 3], [1, 1]), ([1, 2], [4, 4])]
)
def test_attention_sums_the_keys_of_each_sequence(
    operators: AttentionOperators, ends: list[int], lengths: list[int]
) -> None:
    out, _ = operators.kind().run(arguments(ends, lengths))
    assert torch.equal(out, expected(ends, lengths))


def test_lane_on_the_fake_device_gives_every_step_its_own_lengths(
    operators: AttentionOperators,
) -> None:
    device = FakeDevice()
    recorder, lane = Recorder(device, {"attention": operators.kind()}), UpdateLane(device)
    graph, pool = device.create_graph(), device.create_memory_pool()
    with recorder.recording(2, graph=graph), device.capture(graph, pool=pool):
        outputs = [
            recorder.attention(name, "attention", arguments([1, 3], [1, 1]))[0]
            for name in ("first", "second")
        ]
    plan = UpdatePlan.compile(recorder, 2)
    for ends, lengths in (([1, 3], [9, 1]), ([2, 3], [3, 0]), ([2, 3], [3, 0]), ([1, 3], [5, 7])):
        group = {"actual_seq_lengths": ends, "actual_seq_lengths_kv": lengths}
        lane.run(plan, StepParameters(key=2, groups={"default": group}))
        assert device.num_synchronizations == 0
        for out in outputs:
            assert torch.equal(out, expected(ends, lengths))


@pytest.mark.parametrize("is_inference", [False, True])
def test_lane_updates_what_a_session_captured(
    operators: AttentionOperators, is_inference: bool
) -> None:
    """The operators of a kind in plain torch are functional, and the update runs on a thread."""
    device, context = FakeDevice(deadlock_timeout=60), GraphContext()
    recorder, key = Recorder(device, {"attention": operators.kind()}), GraphKey(num_tokens=3)
    graphed = GraphedCallable(
        lambda: recorder.attention("layer", "attention", arguments([1, 3], [1, 1]))[0],
        device=device,
        context=context,
        run_mode=RunMode.FULL,
        name="decode",
    )
    with (
        torch.inference_mode(is_inference),
        CaptureSession(device, context),
        recorder.recording(key),
        context.run(RunMode.FULL, key),
    ):
        graphed()
    plan = UpdatePlan.compile(recorder, key)

    def replay() -> torch.Tensor:
        with context.run(RunMode.FULL, key):
            out: torch.Tensor = graphed()
            return out

    lane = UpdateLane(device, worker=True)
    for ends, lengths in (([1, 3], [9, 1]), ([2, 3], [3, 0]), ([1, 3], [5, 7])):
        group = {"actual_seq_lengths": ends, "actual_seq_lengths_kv": lengths}
        out = lane.run(plan, StepParameters(key=key, groups={"default": group}), replay)
        device.synchronize()
        assert torch.equal(out, expected(ends, lengths))
    lane.close()


def test_calls_fail_by_number(operators: AttentionOperators) -> None:
    kind, wrong = operators.kind(), RuntimeError("injected")
    operators.failing = {1: wrong}
    kind.run(arguments([1, 3], [1, 1]))
    with pytest.raises(RuntimeError, match="injected"):
        kind.run(arguments([1, 3], [1, 1]))
    kind.run(arguments([1, 3], [1, 1]))


def test_operators_are_removed_when_they_are_closed() -> None:
    with AttentionOperators() as operators:
        kind = operators.kind()
    with pytest.raises((NotImplementedError, UnknownNameError)):
        kind.run(arguments([1, 3], [1, 1]))
