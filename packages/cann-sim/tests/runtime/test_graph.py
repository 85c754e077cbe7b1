"""Replay: on any stream, in order, while destroyed, several graphs and branches at once."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

import pytest
import torch

import cann_sim

if TYPE_CHECKING:
    from collections.abc import Callable

MODEL_CAPTURED = 107026
PARAMETER_INVALID = 107000


def captured(npu: Any, work: Callable[[], object], **options: Any) -> Any:
    graph = npu.NPUGraph()
    with npu.graph(graph, **options):
        work()
    return graph


def test_replay_runs_in_the_order_of_its_stream(npu: Any) -> None:
    value = torch.ones(1).to("npu:0")
    graph = captured(npu, lambda: value.mul_(2.0))
    stream = npu.Stream()
    stream.wait_stream(npu.current_stream())
    with npu.stream(stream):
        value.add_(1.0)
        graph.replay()
        value.add_(1.0)
        graph.replay()
    stream.synchronize()
    assert value.cpu().item() == 10.0


def test_replay_is_asynchronous(npu: Any) -> None:
    gate = npu.ExternalEvent()
    value = torch.ones(1).to("npu:0")

    def work() -> None:
        gate.wait(npu.current_stream())
        value.add_(1.0)

    graph = captured(npu, work)
    launcher, other = npu.Stream(), npu.Stream()
    with npu.stream(launcher):
        graph.replay()
    assert not launcher.query()
    gate.record(other)
    launcher.synchronize()
    assert value.cpu().item() == 2.0


def test_replays_of_two_graphs_share_a_pool(npu: Any) -> None:
    value = torch.arange(4.0).to("npu:0")
    results: list[torch.Tensor] = []
    first = captured(npu, lambda: results.append(value * 2.0))
    second = captured(npu, lambda: results.append(results[0] + 1.0), pool=first.pool())
    value.add_(1.0)
    first.replay()
    second.replay()
    npu.synchronize()
    assert torch.equal(results[1].cpu(), torch.arange(4.0) * 2.0 + 3.0)


def test_graph_destroyed_while_it_runs_ends_its_replay(npu: Any) -> None:
    gate = npu.ExternalEvent()
    value = torch.ones(1).to("npu:0")

    def work() -> None:
        gate.wait(npu.current_stream())
        value.add_(1.0)

    graph = captured(npu, work)
    stream = npu.Stream()
    with npu.stream(stream):
        graph.replay()
    graph.reset()
    del graph
    gate.record(npu.current_stream())
    stream.synchronize()
    assert value.cpu().item() == 2.0


def test_branches_of_a_graph_run_concurrently(npu: Any) -> None:
    """Each branch waits for the other, so running one after the other would never end."""
    first, second = npu.ExternalEvent(), npu.ExternalEvent()
    value = torch.zeros(1).to("npu:0")
    streams = npu.Stream(), npu.Stream()

    def work() -> None:
        main = npu.current_stream()
        # One of them may be that of the capture: streams come from a pool, in turn.
        side = next(stream for stream in streams if stream != main)
        side.wait_stream(main)
        first.record(main)
        second.wait(main)
        first.wait(side)
        second.record(side)
        main.wait_stream(side)
        value.add_(1.0)

    graph = captured(npu, work)
    for _ in range(3):
        graph.replay()
    npu.synchronize()
    assert value.cpu().item() == 3.0


def test_graph_handle_that_is_unknown_is_refused(acl: Any) -> None:
    unknown = ctypes.create_string_buffer(8)
    assert acl("aclmdlRIExecuteAsync", unknown, None) == PARAMETER_INVALID
    assert acl("aclmdlRIDestroy", unknown) == PARAMETER_INVALID
    assert "was the graph destroyed" in acl.message()


def test_graph_replayed_while_it_is_captured_is_refused(npu: Any, acl: Any) -> None:
    stream, other = npu.Stream(), npu.Stream()
    graph = ctypes.c_void_p()
    status = ctypes.c_int()
    assert acl("aclmdlRICaptureBegin", stream.npu_stream, ctypes.c_int(0)) == 0
    info = (stream.npu_stream, ctypes.byref(status), ctypes.byref(graph))
    assert acl("aclmdlRICaptureGetInfo", *info) == 0
    code = acl("aclmdlRIExecuteAsync", graph, other.npu_stream)
    assert acl("aclmdlRICaptureEnd", stream.npu_stream, ctypes.byref(graph)) == 0
    assert acl("aclmdlRIDestroy", graph) == 0
    assert (status.value, code) == (1, MODEL_CAPTURED)


def test_kernel_that_fails_in_a_replay_is_reported_until_the_device_is_restarted(npu: Any) -> None:
    values, index = torch.arange(4.0).to("npu:0"), torch.tensor([1]).to("npu:0")
    results: list[torch.Tensor] = []
    graph = captured(npu, lambda: results.append(torch.index_select(values, 0, index)))
    index.fill_(99)
    graph.replay()
    with pytest.raises(RuntimeError, match="507011"):
        npu.synchronize()
    index.fill_(2)
    with pytest.raises(RuntimeError, match=r"(?s)507011.*takes nothing any more"):
        graph.replay()
    cann_sim.restart_devices()
    index.fill_(2)
    graph.replay()
    npu.synchronize()
    assert results[0].cpu().item() == 2.0
