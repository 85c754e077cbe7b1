from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import pytest

from npu_graph_runtime.device import Event, ExternalEvent, MemoryFigures, Stream

if TYPE_CHECKING:
    from npu_graph_runtime import FakeDevice


def test_protocols_fit_objects_of_fake_device(fake: FakeDevice) -> None:
    assert isinstance(fake.create_stream(), Stream)
    assert isinstance(fake.create_event(), Event)
    assert isinstance(fake.create_external_event(), ExternalEvent)
    assert not isinstance(object(), Stream)


def test_memory_figures_are_immutable() -> None:
    figures = MemoryFigures(allocated=1, reserved=2, free=3, total=5)
    with pytest.raises(dataclasses.FrozenInstanceError):
        figures.free = 4  # type: ignore[misc]
