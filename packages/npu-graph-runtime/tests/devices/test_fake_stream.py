from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from npu_graph_runtime.devices.fake_scheduler import FakeScheduler
from npu_graph_runtime.devices.fake_stream import FakeStream, own_stream

if TYPE_CHECKING:
    from npu_graph_runtime import FakeDevice


def test_own_stream_without_stream_is_the_current_one(fake: FakeDevice) -> None:
    scheduler, other = FakeScheduler(0.0), fake.default_stream
    scheduler.default_stream = current = FakeStream(scheduler)
    assert own_stream(None, scheduler) is current
    assert own_stream(other, scheduler) is other


def test_own_stream_of_other_kind_raises() -> None:
    with pytest.raises(TypeError, match="got str, expected a stream"):
        own_stream("stream", FakeScheduler(0.0))


def test_event_recorded_again_is_reached_at_its_last_record(fake: FakeDevice) -> None:
    stream, gate = fake.create_stream(), fake.create_external_event()
    event = stream.record_event()
    assert event.query()
    gate.wait(stream)
    assert stream.record_event(event) is event
    assert not event.query()
    gate.record(fake.default_stream)
    assert event.query()


def test_wait_for_unrecorded_event_waits_for_nothing(fake: FakeDevice) -> None:
    stream = fake.create_stream()
    stream.wait_event(fake.create_event())
    assert stream.query()


def test_stream_names_itself(fake: FakeDevice) -> None:
    assert isinstance(fake.default_stream, FakeStream)
    assert repr(fake.default_stream) == "<FakeStream stream 0>"
