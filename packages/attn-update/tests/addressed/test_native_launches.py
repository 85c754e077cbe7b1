"""Native launches of any operator, on device calls that record their arguments."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from addressed.writing_device import STREAM, WritingDevice
from attn_update.issuing.native.native_updater import NativeUpdater
from attn_update.issuing.updater import LaunchFailure


@dataclass(kw_only=True)
class Sums:
    """Three launches of ``aten::add.out``, the first two in one slot."""

    outputs: list[torch.Tensor]
    plan: Any

    def changes(self, *alphas: int | None) -> list[dict[str, object] | None]:
        return [None if alpha is None else {"alpha": alpha} for alpha in alphas]


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
    return Sums(outputs=outputs, plan=SimpleNamespace(updates=updates, step_rules=lambda: None))


def test_native_launches_of_any_operator_run_in_order_with_the_values_of_their_slot(
    sums: Sums,
) -> None:
    device = WritingDevice()
    launches = NativeUpdater.load().bind(sums.plan, device, device.native_calls())
    assert launches.num_dispatched == 3

    assert launches.run(sums.changes(5, 7), STREAM) is None
    assert [out.tolist() for out in sums.outputs] == [[5, 5], [5, 5], [7, 7]]
    expected = [
        step
        for index in range(3)
        for step in (("begin", 10 + index), ("end", 0), ("record", 20 + index))
    ]
    assert device.seen == expected

    device.seen.clear()
    assert launches.run(sums.changes(None, 9), STREAM) is None
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
    failure = launches.run(sums.changes(5, 7), STREAM)
    assert failure == LaunchFailure(position=position, open=False, message=message)
    assert device.seen[-1] == failing


def test_native_launches_stop_at_a_failing_operator_with_its_update_open(sums: Sums) -> None:
    sums.plan.updates[1].launch["other"] = torch.ones(3)
    device = WritingDevice()
    launches = NativeUpdater.load().bind(sums.plan, device, device.native_calls())
    failure = launches.run(sums.changes(5, 7), STREAM)
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
