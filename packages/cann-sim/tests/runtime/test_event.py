"""Events: record, wait, query, synchronise and time."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest
import torch

import cann_sim

EXTERNAL = 0x20
KERNEL_FAILED = 507015
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


def test_stream_that_waits_for_a_failed_one_fails_with_the_same_code(npu: Any) -> None:
    first, second = npu.Stream(), npu.Stream()
    value, other = torch.ones(1).to("npu:0"), torch.ones(1).to("npu:0")
    npu.synchronize()
    with cann_sim.injected_faults("run(aclnnInplaceAdds):1"):
        with npu.stream(first):
            value.add_(4.0)
        event = first.record_event()
        second.wait_event(event)
        with npu.stream(second):
            other.mul_(value)
        for stream in (second, first):
            with pytest.raises(RuntimeError, match=rf"(?s){KERNEL_FAILED}.*injected fault"):
                stream.synchronize()
    with pytest.raises(RuntimeError, match=str(KERNEL_FAILED)):
        event.synchronize()
    # A later record of a stream that is well again is waited for as ever.
    with npu.stream(first):
        value.add_(4.0)
    event.record(first)
    second.wait_event(event)
    with npu.stream(second):
        other.mul_(value)
    npu.synchronize()
    assert other.cpu().item() == 5.0


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
