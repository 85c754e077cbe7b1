from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from npu_graph_runtime.tracing import Trace

if TYPE_CHECKING:
    from pathlib import Path


def events(trace: Trace, phase: str) -> list[dict[str, Any]]:
    return [event for event in trace.to_mapping()["traceEvents"] if event["ph"] == phase]


def test_tracks_are_named_and_ordered_as_they_came() -> None:
    trace = Trace("my engine")
    trace.add_span("steps", "step 1", begin=1.0, end=1.5, rows=4)
    trace.add_moment("lane", "begun", at=1.25)

    names = {event["args"].get("name") for event in events(trace, "M")}
    assert {"my engine", "steps", "lane"} <= names
    (span,) = events(trace, "X")
    (moment,) = events(trace, "i")
    assert (span["ts"], span["dur"], span["args"]) == (1e6, 5e5, {"rows": 4})
    assert moment["tid"] == span["tid"] + 1


def test_arrow_joins_two_tracks_by_a_number_of_its_own() -> None:
    trace = Trace()
    for begin in (1.0, 2.0):
        trace.add_arrow("event", ("lane", begin), ("replays", begin + 0.5))

    starts, ends = events(trace, "s"), events(trace, "f")
    assert [event["id"] for event in starts] == [event["id"] for event in ends] == [1, 2]
    assert all(event["bp"] == "e" for event in ends)
    assert starts[0]["tid"] != ends[0]["tid"]


def test_joined_trace_keeps_its_processes_and_arrows_apart(tmp_path: Path) -> None:
    other = Trace("device")
    other.add_arrow("event", ("stream 3", 1.0), ("stream 1", 2.0))
    trace = Trace()
    trace.add_arrow("call", ("steps", 0.5), ("steps", 0.75))
    trace.join(other.to_mapping()["traceEvents"])
    trace.join([])
    path = tmp_path / "trace.json"
    trace.write(path)

    found = json.loads(path.read_text())["traceEvents"]
    assert [(event["pid"], event["id"]) for event in found if event["ph"] == "s"] == [
        (0, 1),
        (1, 2),
    ]
    named = {event["pid"]: event["args"] for event in found if event["name"] == "process_name"}
    assert named == {0: {"name": "host"}, 1: {"name": "device"}}
