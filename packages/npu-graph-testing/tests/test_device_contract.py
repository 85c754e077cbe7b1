"""The contract finds a device that does not do what the seam says."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import pytest

from npu_graph_runtime import FakeDevice, GraphDevice
from npu_graph_testing import DeviceContract

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    import torch

    from npu_graph_runtime import DeviceGraph, Stream


class RunsInCapture(FakeDevice):
    """Runs what it should capture."""

    def capture(
        self, graph: DeviceGraph, *, pool: object, stream: Stream | None = None
    ) -> AbstractContextManager[object]:
        del graph, pool, stream
        return contextlib.nullcontext()


class KeepsMemory(FakeDevice):
    """Gives a tensor itself for a weak reference."""

    def weak_reference(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor


class UpdatesNothing(FakeDevice):
    """Drops the new arguments of a task group."""

    def end_task_update(self, stream: Stream) -> None:
        kept: Any = stream
        handle, launches = kept.update
        kept.update = (handle, [])
        del launches
        with contextlib.suppress(RuntimeError):
            super().end_task_update(stream)


class TellsNoCapture(FakeDevice):
    """Never says that it captures."""

    def is_capturing(self) -> bool:
        return False


def failures(device: Callable[[], GraphDevice]) -> set[str]:
    """Return the tests of the contract that a device does not pass."""
    failed = set()
    contract = DeviceContract()
    for name in dir(contract):
        if name.startswith("test_"):
            try:
                getattr(contract, name)(device())
            except Exception:  # noqa: BLE001
                failed.add(name)
    return failed


@pytest.mark.parametrize(
    ("device", "found"),
    [
        (RunsInCapture, "test_capture_runs_nothing"),
        (KeepsMemory, "test_weak_reference_alone_does_not_keep_memory"),
        (UpdatesNothing, "test_task_update_changes_later_replays_only"),
        (TellsNoCapture, "test_is_capturing_inside_capture_only"),
    ],
)
def test_contract_finds_a_device_that_is_wrong(
    device: Callable[[], GraphDevice], found: str
) -> None:
    assert found in failures(device)


def test_contract_finds_nothing_in_the_fake_device() -> None:
    assert failures(FakeDevice) == set()
