"""Functions of the host in the order of a stream."""

from __future__ import annotations

import ctypes
from typing import Any

import torch

HostFunction = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
NO_SUBSCRIBER = 107015


def test_host_function_runs_in_the_order_of_its_stream(npu: Any, acl: Any) -> None:
    stream = npu.Stream()
    value = torch.zeros(1).pin_memory()
    on_device = torch.ones(1).to("npu:0")
    seen: list[float] = []
    function = HostFunction(lambda _argument: seen.append(value[0].item()))
    npu.synchronize()
    with npu.stream(stream):
        value.copy_(on_device, non_blocking=True)
        assert acl("aclrtLaunchHostFunc", stream.npu_stream, function, None) == 0
        value.copy_(on_device + 1.0, non_blocking=True)
    stream.synchronize()
    assert seen == [1.0]
    assert value.item() == 2.0


def test_host_function_in_a_graph_runs_at_every_replay(npu: Any, acl: Any) -> None:
    calls: list[int] = []
    function = HostFunction(lambda _argument: calls.append(1))
    graph = npu.NPUGraph()
    with npu.graph(graph):
        acl("aclrtLaunchHostFunc", npu.current_stream().npu_stream, function, None)
    assert calls == []
    graph.replay()
    graph.replay()
    npu.synchronize()
    assert calls == [1, 1]


def test_callback_without_a_subscribed_thread_is_refused(npu: Any, acl: Any) -> None:
    function = HostFunction(lambda _argument: None)
    stream = npu.Stream()
    arguments = (function, None, ctypes.c_int(1), stream.npu_stream)
    assert acl("aclrtLaunchCallback", *arguments) == NO_SUBSCRIBER


def test_callback_of_a_subscribed_thread_runs_through_torch(npu: Any) -> None:
    calls: list[Any] = []
    graph, stream = npu.NPUGraph(), npu.Stream()
    npu._subscribe_report(stream)
    with npu.graph(graph, stream=stream):
        npu._launch_host_func(stream, calls.append, "called")
    with npu.stream(stream):
        graph.replay()
    stream.synchronize()
    npu._unsubscribe_report(stream)
    assert calls == ["called"]
