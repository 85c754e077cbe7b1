"""The contract finds a device that does not do what the seam says."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import pytest

from npu_graph_runtime import FakeDevice, GraphDevice
from npu_graph_runtime.errors import FeatureNotSupportedError
from npu_graph_testing import DeviceContract

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    import torch

    from npu_graph_runtime.device import DeviceGraph, ExternalEvent, Stream


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


class HasNoTaskGroups(FakeDevice):
    """Says that it has no task groups, as `CudaDevice` does."""

    def begin_task_group(self, stream: Stream) -> None:
        raise FeatureNotSupportedError("beginning a task group: this device has none")

    def begin_task_update(self, stream: Stream, handle: object) -> None:
        raise FeatureNotSupportedError("beginning a task update: this device has no task groups")


class HasNoExternalEvents(HasNoTaskGroups):
    """Says that it has no external events either."""

    def create_external_event(self) -> ExternalEvent:
        raise FeatureNotSupportedError("creating an external event: this device has none")


class HasNoCaptures(FakeDevice):
    """Says that it cannot capture, which is no optional feature."""

    def create_graph(self) -> DeviceGraph:
        raise FeatureNotSupportedError("creating a graph: this device has none")


def outcomes(device: Callable[[], GraphDevice]) -> tuple[dict[str, str], dict[str, str]]:
    """Return the tests of the contract that a device does not pass, and those that are skipped."""
    failed, skipped = {}, {}
    contract = DeviceContract()
    for name in dir(contract):
        if name.startswith("test_"):
            try:
                getattr(contract, name)(device())
            except pytest.skip.Exception as skip:
                skipped[name] = str(skip)
            except Exception as error:  # noqa: BLE001
                failed[name] = str(error)
    return failed, skipped


TASK_GROUPS = {
    "test_task_update_changes_later_replays_only",
    "test_replay_first_update_after_uses_new_arguments",
}
EXTERNAL_EVENTS = {
    "test_event_waited_for_on_other_stream_orders_work",
    "test_wait_stream_orders_work",
    "test_external_event_recorded_after_replay_releases_graph",
}


@pytest.mark.parametrize(
    ("device", "expected"),
    [
        (HasNoTaskGroups, TASK_GROUPS),
        (HasNoExternalEvents, TASK_GROUPS | EXTERNAL_EVENTS),
    ],
)
def test_contract_skips_what_a_device_does_not_support(
    device: Callable[[], GraphDevice], expected: set[str]
) -> None:
    failed, skipped = outcomes(device)
    assert failed == {}
    assert skipped.keys() == expected
    assert all("this device has" in reason for reason in skipped.values())


def test_contract_skips_nothing_else() -> None:
    failed, skipped = outcomes(HasNoCaptures)
    assert "test_capture_runs_nothing" in failed
    assert skipped.keys() <= TASK_GROUPS | EXTERNAL_EVENTS


@pytest.mark.parametrize(
    ("device", "found", "message"),
    [
        (
            RunsInCapture,
            "test_capture_runs_nothing",
            "buffer.tolist() is [2.0, 2.0, 2.0, 2.0], expected [1.0, 1.0, 1.0, 1.0]",
        ),
        (
            KeepsMemory,
            "test_weak_reference_alone_does_not_keep_memory",
            "whether the memory is gone is False, expected True",
        ),
        (
            UpdatesNothing,
            "test_task_update_changes_later_replays_only",
            "out.tolist() is [2.0, 2.0, 2.0, 2.0], expected [5.0, 5.0, 5.0, 5.0]",
        ),
        (
            TellsNoCapture,
            "test_is_capturing_inside_capture_only",
            "is_capturing() in the capture is [False], expected [True]",
        ),
    ],
)
def test_contract_finds_a_device_that_is_wrong(
    device: Callable[[], GraphDevice], found: str, message: str
) -> None:
    """Its messages need no pytest that rewrites the assertions of the module."""
    failed, _ = outcomes(device)
    assert failed[found] == message
    assert all(failed.values())


def test_contract_finds_nothing_in_the_fake_device() -> None:
    assert outcomes(FakeDevice) == ({}, {})
