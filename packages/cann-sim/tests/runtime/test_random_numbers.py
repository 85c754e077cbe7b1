"""Random numbers of captured graphs: they advance with torch's generator, replay by replay."""

from __future__ import annotations

from typing import Any

import torch

SHAPE = (37,)


def captured(npu: Any) -> tuple[Any, torch.Tensor, torch.Tensor]:
    """Return a graph that draws twice, and its output tensors."""
    uniform, normal = (torch.zeros(SHAPE).to("npu:0") for _ in range(2))
    graph = npu.NPUGraph()
    with npu.graph(graph):
        uniform.uniform_()
        normal.normal_()
    return graph, uniform, normal


def test_random_numbers_of_replays_are_those_of_eager_calls(npu: Any) -> None:
    npu.manual_seed(7)
    eager = []
    for _ in range(4):
        uniform = torch.zeros(SHAPE, device="npu:0").uniform_()
        normal = torch.zeros(SHAPE, device="npu:0").normal_()
        eager.append((uniform.cpu(), normal.cpu()))
    graph, uniform, normal = captured(npu)
    npu.manual_seed(7)
    for expected in eager[:3]:
        graph.replay()
        assert torch.equal(uniform.cpu(), expected[0])
        assert torch.equal(normal.cpu(), expected[1])
    # Numbers drawn after the replays continue from there.
    assert torch.equal(torch.zeros(SHAPE, device="npu:0").uniform_().cpu(), eager[3][0])
    assert torch.equal(torch.zeros(SHAPE, device="npu:0").normal_().cpu(), eager[3][1])


def test_random_numbers_of_a_capture_leave_the_generator_where_it_was(npu: Any) -> None:
    npu.manual_seed(3)
    expected = torch.rand(SHAPE, device="npu:0").cpu()
    npu.manual_seed(3)
    captured(npu)
    assert torch.equal(torch.rand(SHAPE, device="npu:0").cpu(), expected)


def test_random_numbers_of_a_replay_follow_a_state_that_was_set(npu: Any) -> None:
    graph, uniform, _normal = captured(npu)
    npu.manual_seed(11)
    state = npu.get_rng_state()
    graph.replay()
    first = uniform.cpu()
    graph.replay()
    assert not torch.equal(uniform.cpu(), first)
    npu.set_rng_state(state)
    graph.replay()
    assert torch.equal(uniform.cpu(), first)
