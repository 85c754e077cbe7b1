from __future__ import annotations

import pytest

from npu_graph_runtime.devices.fake_scheduler import FakeScheduler, Work, device_failure
from npu_graph_runtime.devices.fake_stream import FakeStream
from npu_graph_runtime.errors import DeadlockError


class Gate:
    """Waits until it is opened, and takes note of when it ran."""

    def __init__(self, name: str, log: list[str], *, is_open: bool = True) -> None:
        self.name = name
        self.log = log
        self.is_open = is_open

    def try_run(self) -> bool:
        if self.is_open:
            self.log.append(self.name)
        return self.is_open

    def work(self) -> Work:
        return Work(f"gate {self.name}", self.try_run)


def test_work_after_waiting_work_runs_in_order_once_released() -> None:
    scheduler, log = FakeScheduler(0.0), list[str]()
    first, second = FakeStream(scheduler), FakeStream(scheduler)
    gate = Gate("a", log, is_open=False)
    scheduler.add(first, gate.work())
    scheduler.add(first, Gate("b", log).work())
    scheduler.add(second, Gate("c", log).work())
    assert log == ["c"]
    assert not scheduler.is_idle()
    gate.is_open = True
    scheduler.add(second, Gate("d", log).work())
    assert log == ["c", "a", "b", "d"]
    assert scheduler.is_idle()


def test_work_released_by_later_stream_runs_in_same_call() -> None:
    scheduler, log = FakeScheduler(0.0), list[str]()
    first, second = FakeStream(scheduler), FakeStream(scheduler)
    gate = Gate("a", log, is_open=False)

    class Open(Gate):
        def try_run(self) -> bool:
            gate.is_open = True
            return super().try_run()

    scheduler.add(first, gate.work())
    scheduler.add(second, Open("b", log).work())
    assert log == ["b", "a"]


def test_synchronize_that_cannot_end_names_all_waits() -> None:
    scheduler, log = FakeScheduler(0.0), list[str]()
    for name in ("a", "b"):
        scheduler.add(FakeStream(scheduler), Gate(name, log, is_open=False).work())
    with pytest.raises(
        DeadlockError, match=r"stream 0 waits for gate a.*; stream 1 waits for gate b"
    ):
        scheduler.synchronize("it", scheduler.is_idle)
    assert scheduler.is_idle()


def test_device_failure_reads_like_torch_npu() -> None:
    assert str(device_failure(107027, "it broke")).endswith("it broke, error code is 107027")
