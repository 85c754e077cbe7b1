"""The packages know each other's Protocols only here; mypy checks the assignments below."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Protocol

import pytest

import attn_update.task_device
import npu_graph_runtime
from npu_graph_runtime import FakeDevice, NpuDevice

if TYPE_CHECKING:
    from attn_update import TaskDevice
    from npu_graph_runtime import GraphDevice


def test_npu_device_fits_both_seams(device: NpuDevice) -> None:
    graph_device: GraphDevice = device
    task_device: TaskDevice = device

    assert graph_device.current_stream() == task_device.current_stream()


def test_fake_device_fits_both_seams() -> None:
    fake = FakeDevice()
    graph_device: GraphDevice = fake
    task_device: TaskDevice = fake

    assert graph_device.current_stream() is task_device.current_stream()


@pytest.mark.parametrize(
    "name", ["Stream", "Event", "ExternalEvent", "TaskDevice", "GuardingDevice"]
)
def test_protocol_of_the_consumer_requires_no_more_than_the_producer_offers(name: str) -> None:
    def members(protocol: type) -> dict[str, list[inspect.Parameter]]:
        return {
            member: list(inspect.signature(value).parameters.values())
            for member, value in vars(protocol).items()
            if inspect.isfunction(value) and not member.startswith("_")
        }

    consumer: type[Protocol] = getattr(attn_update.task_device, name)  # type: ignore[valid-type]
    producer: type[Protocol] = getattr(npu_graph_runtime.device, name)  # type: ignore[valid-type]

    offered = members(producer)
    for member, required in members(consumer).items():
        found, further = offered[member][: len(required)], offered[member][len(required) :]
        assert [each.name for each in found] == [each.name for each in required]
        # The consumer does not pass these.
        assert all(each.default is not inspect.Parameter.empty for each in further)
    assert members(consumer)


def test_native_streams_and_events_fit_the_protocols(device: NpuDevice) -> None:
    assert isinstance(device.create_stream(), npu_graph_runtime.device.Stream)
    assert isinstance(device.create_event(), npu_graph_runtime.device.Event)
    assert isinstance(device.create_external_event(), npu_graph_runtime.device.ExternalEvent)
