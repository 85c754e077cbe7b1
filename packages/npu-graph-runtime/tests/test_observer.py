from __future__ import annotations

import dataclasses
from typing import get_args

from npu_graph_runtime import GraphKey, GraphReplayed, RuntimeEvent


def test_events_are_frozen_dataclasses() -> None:
    events = get_args(RuntimeEvent)
    assert len(events) == 6
    for event in events:
        assert dataclasses.is_dataclass(event)
        assert event.__dataclass_params__.frozen  # type: ignore[attr-defined]


def test_event_equality_is_by_value() -> None:
    key = GraphKey(num_tokens=1)
    assert GraphReplayed(name="a", key=key, seconds=1.0) == GraphReplayed(
        name="a", key=GraphKey(num_tokens=1), seconds=1.0
    )
