"""Native launches of any operator, on calls of a device that write down what they are given."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
import torch

from attn_update import NativeUpdater
from attn_update.native_updater import NativeFailure

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from attn_update import CheckedStep

STREAM = 77


class WritingDevice:
    """Calls with the signatures of CANN, in the order in which they came."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, int]] = []
        self.failing: tuple[str, int] | None = None
        pointer, integer = ctypes.c_void_p, ctypes.c_int
        self._kept = {
            "aclmdlRICaptureTaskUpdateBegin": ctypes.CFUNCTYPE(integer, pointer, pointer)(
                lambda stream, group: self._note("begin", group, stream)
            ),
            "aclmdlRICaptureTaskUpdateEnd": ctypes.CFUNCTYPE(integer, pointer)(
                lambda stream: self._note("end", 0, stream)
            ),
            "aclrtRecordEvent": ctypes.CFUNCTYPE(integer, pointer, pointer)(
                lambda event, stream: self._note("record", event, stream)
            ),
            "aclrtCreateEventExWithFlag": ctypes.CFUNCTYPE(
                integer, ctypes.POINTER(pointer), ctypes.c_uint32
            )(self._create),
            "aclrtStreamWaitEvent": ctypes.CFUNCTYPE(integer, pointer, pointer)(
                lambda stream, event: self._note("wait", event, stream)
            ),
            "aclrtDestroyEvent": ctypes.CFUNCTYPE(integer, pointer)(
                lambda event: self._note("destroy", event, STREAM)
            ),
        }

    def _create(self, event: Any, flag: int) -> int:
        event[0] = 99
        return self._note("create", flag, STREAM)

    def _note(self, call: str, value: int, stream: int) -> int:
        assert stream == STREAM
        self.seen.append((call, value))
        return 107000 if (call, value) == self.failing else 0

    def native_calls(self) -> dict[str, int]:
        return {
            name: ctypes.cast(call, ctypes.c_void_p).value or 0 for name, call in self._kept.items()
        }

    def kernel_calls(self, names: object) -> dict[str, int]:
        del names
        return {}

    def use_stream(self, stream: object) -> AbstractContextManager[object]:
        raise NotImplementedError

    def stream_address(self, stream: object) -> int:
        del stream
        return STREAM

    def task_group_address(self, handle: object) -> int:
        return cast("int", handle)

    def external_event_address(self, event: object) -> int:
        return cast("int", event)


@dataclass(kw_only=True)
class Sums:
    """Three launches of ``aten::add.out``, the first two in one slot."""

    outputs: list[torch.Tensor]
    plan: Any

    def step(self, *alphas: int) -> CheckedStep:
        values = tuple({"alpha": alpha} for alpha in alphas)
        return cast("CheckedStep", SimpleNamespace(plan=self.plan, values=values))


@pytest.fixture
def sums() -> Sums:
    outputs = [torch.zeros(2) for _ in range(3)]
    updates = [
        SimpleNamespace(
            operator="aten::add.out",
            launch={"self": torch.zeros(2), "other": torch.ones(2), "out": out, "alpha": 1},
            handle=10 + index,
            event=20 + index,
            slot=index // 2,
        )
        for index, out in enumerate(outputs)
    ]
    return Sums(outputs=outputs, plan=SimpleNamespace(updates=updates))


def test_native_launches_of_any_operator_run_in_order_with_the_values_of_their_slot(
    sums: Sums,
) -> None:
    device = WritingDevice()
    launches = NativeUpdater.load().bind(sums.plan, device, device.native_calls())
    assert launches.num_dispatched == 3

    assert launches.run(sums.step(5, 7), [True, True], STREAM) is None
    assert [out.tolist() for out in sums.outputs] == [[5, 5], [5, 5], [7, 7]]
    expected = [
        step
        for index in range(3)
        for step in (("begin", 10 + index), ("end", 0), ("record", 20 + index))
    ]
    assert device.seen == expected

    device.seen.clear()
    assert launches.run(sums.step(5, 9), [False, True], STREAM) is None
    assert [out.tolist() for out in sums.outputs] == [[5, 5], [5, 5], [9, 9]]
    assert device.seen == [("record", 20), ("record", 21), *expected[-3:]]


@pytest.mark.parametrize(
    ("failing", "position", "message"),
    [
        (("begin", 11), 1, "aclmdlRICaptureTaskUpdateBegin returned 107000"),
        (("record", 22), 2, "recording its external event returned 107000"),
        (("end", 0), 0, "aclmdlRICaptureTaskUpdateEnd returned 107000"),
    ],
)
def test_native_launches_stop_where_a_call_of_the_device_fails(
    sums: Sums, failing: tuple[str, int], position: int, message: str
) -> None:
    device = WritingDevice()
    launches = NativeUpdater.load().bind(sums.plan, device, device.native_calls())
    device.failing = failing
    failure = launches.run(sums.step(5, 7), [True, True], STREAM)
    assert failure == NativeFailure(position=position, open=False, message=message)
    assert device.seen[-1] == failing


def test_native_launches_stop_at_a_failing_operator_with_its_update_open(sums: Sums) -> None:
    sums.plan.updates[1].launch["other"] = torch.ones(3)
    device = WritingDevice()
    launches = NativeUpdater.load().bind(sums.plan, device, device.native_calls())
    failure = launches.run(sums.step(5, 7), [True, True], STREAM)
    assert failure is not None
    assert (failure.position, failure.open) == (1, True)
    assert "must match the size of tensor" in failure.message
    assert device.seen[-1] == ("begin", 11)


def test_native_launches_without_one_of_the_calls_are_refused(sums: Sums) -> None:
    device = WritingDevice()
    calls = device.native_calls()
    del calls["aclrtRecordEvent"]
    with pytest.raises(ValueError, match="the device did not tell aclrtRecordEvent"):
        NativeUpdater.load().bind(sums.plan, device, calls)


def test_replay_event_is_recorded_once_waited_for_and_destroyed() -> None:
    device = WritingDevice()
    event = NativeUpdater.load().replay_events(device.native_calls()).record(STREAM)
    event.wait(STREAM)
    event.wait(STREAM)
    del event
    synchronises_streams = 1
    steps = [("record", 99), ("wait", 99), ("wait", 99), ("destroy", 99)]
    assert device.seen == [("create", synchronises_streams), *steps]


@pytest.mark.parametrize(
    ("failing", "message"),
    [
        (("create", 1), "aclrtCreateEventExWithFlag returned 107000"),
        (("record", 99), "aclrtRecordEvent returned 107000"),
    ],
)
def test_replay_event_that_cannot_be_recorded_leaves_none(
    failing: tuple[str, int], message: str
) -> None:
    device = WritingDevice()
    device.failing = failing
    events = NativeUpdater.load().replay_events(device.native_calls())
    with pytest.raises(RuntimeError, match=message):
        events.record(STREAM)
    made = failing[0] != "create"
    assert device.seen.count(("destroy", 99)) == int(made)


def test_replay_event_that_cannot_be_waited_for_says_so() -> None:
    device = WritingDevice()
    event = NativeUpdater.load().replay_events(device.native_calls()).record(STREAM)
    device.failing = ("wait", 99)
    with pytest.raises(RuntimeError, match="aclrtStreamWaitEvent returned 107000"):
        event.wait(STREAM)
