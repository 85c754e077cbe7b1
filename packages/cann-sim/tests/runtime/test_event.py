"""Events: record, wait, query, synchronise and time."""

from __future__ import annotations

import ctypes
from typing import Any

import torch

EXTERNAL = 0x20
NOT_READY, COMPLETE = 0, 1


def test_event_is_done_when_its_stream_came_to_it(npu: Any) -> None:
    gate = npu.ExternalEvent()
    stream = npu.Stream()
    event = npu.Event()
    gate.wait(stream)
    event.record(stream)
    npu.current_stream().synchronize()
    assert not event.query()
    gate.record(npu.current_stream())
    event.synchronize()
    assert event.query()


def test_event_orders_two_streams(npu: Any) -> None:
    gate = npu.ExternalEvent()
    first, second = npu.Stream(), npu.Stream()
    value = torch.ones(1).to("npu:0")
    npu.synchronize()
    gate.wait(first)
    with npu.stream(first):
        value.add_(4.0)
    event = first.record_event()
    second.wait_event(event)
    with npu.stream(second):
        value.mul_(2.0)
    gate.record(npu.current_stream())
    npu.synchronize()
    assert value.cpu().item() == 10.0


def test_event_recorded_again_moves_the_next_wait_only(npu: Any) -> None:
    gate = npu.ExternalEvent()
    first, second = npu.Stream(), npu.Stream()
    event = npu.Event()
    event.record(first)
    first.synchronize()
    second.wait_event(event)
    gate.wait(first)
    event.record(first)
    second.synchronize()
    assert not event.query()
    gate.record(second)
    event.synchronize()


def test_event_times_are_ordered(npu: Any) -> None:
    start, end = npu.Event(enable_timing=True), npu.Event(enable_timing=True)
    stream = npu.current_stream()
    start.record(stream)
    values = torch.ones(100_000).to("npu:0")
    for _ in range(20):
        values.mul_(1.5)
    end.record(stream)
    end.synchronize()
    assert start.elapsed_time(end) > 0.0


def test_old_external_event_is_a_flag_that_stays_until_reset(acl: Any, npu: Any) -> None:
    stream = npu.Stream()
    handle = stream.npu_stream
    event = ctypes.c_void_p()
    status = ctypes.c_int()
    create = ("aclrtCreateEventWithFlag", ctypes.byref(event), ctypes.c_uint32(EXTERNAL))
    assert acl(*create) == 0
    assert acl("aclrtRecordEvent", event, handle) == 0
    assert acl("aclrtStreamWaitEvent", handle, event) == 0
    assert acl("aclrtStreamWaitEvent", handle, event) == 0
    assert acl("aclrtSynchronizeStream", handle) == 0
    assert acl("aclrtQueryEventStatus", event, ctypes.byref(status)) == 0
    assert status.value == COMPLETE
    assert acl("aclrtResetEvent", event, handle) == 0
    assert acl("aclrtSynchronizeStream", handle) == 0
    assert acl("aclrtQueryEventStatus", event, ctypes.byref(status)) == 0
    assert status.value == NOT_READY
    assert acl("aclrtDestroyEvent", event) == 0
