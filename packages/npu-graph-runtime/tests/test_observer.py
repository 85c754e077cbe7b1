from __future__ import annotations

import dataclasses

import pytest

from npu_graph_runtime import GraphKey
from npu_graph_runtime.observer import GraphReplayed


def test_event_changed_raises() -> None:
    event = GraphReplayed(name="a", key=GraphKey(num_tokens=1), began=0.0, seconds=1.0)
    with pytest.raises(dataclasses.FrozenInstanceError):
        event.seconds = 2.0  # type: ignore[misc]


def test_event_equality_is_by_value() -> None:
    key = GraphKey(num_tokens=1)
    assert GraphReplayed(name="a", key=key, began=0.0, seconds=1.0) == GraphReplayed(
        name="a", key=GraphKey(num_tokens=1), began=0.0, seconds=1.0
    )
