"""The trace of streams and host calls that `CANN_SIM_TRACE` writes."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pathlib import Path

PROGRAM = """
import time
import cann_sim
cann_sim.activate()
print("began", time.monotonic())
import torch, torch_npu
npu = torch.npu
value, product, total = torch.ones(4).npu(), torch.zeros(4).npu(), torch.zeros(4).npu()
event, graph, side, updates = npu.ExternalEvent(), npu.NPUGraph(), npu.Stream(), npu.Stream()
with npu.graph(graph):
    main = npu.current_stream()
    side.wait_stream(main)
    with npu.stream(side):
        halved = torch.div(value, 2.0)
    event.wait(main)
    event.reset(main)
    npu.graph_task_group_begin(main)
    torch.mul(value, 3.0, out=product)
    task = npu.graph_task_group_end(main)
    main.wait_stream(side)
    torch.sub(product, halved, out=total)
graph.replay()
torch.abs(total, out=value)
other = npu.Stream()
other.wait_stream(npu.current_stream())
with npu.stream(other):
    value.neg_()
try:
    npu.synchronize()
except RuntimeError as error:
    print("stuck", error)
with npu.stream(updates):
    npu.graph_task_update_begin(updates, task)
    torch.mul(product, 5.0, out=product)
    npu.graph_task_update_end(updates)
    event.record(updates)
npu.synchronize()
print("ended", time.monotonic())
"""


@dataclass(frozen=True, kw_only=True)
class Span:
    process: str
    track: str
    name: str
    category: str
    begin: float
    end: float
    event: str

    def holds(self, other: Span) -> bool:
        same = (self.process, self.track) == (other.process, other.track)
        return same and self.begin <= other.begin and other.end <= self.end


def read_spans(path: Path) -> list[Span]:
    """Return the spans of a trace by begin, the longer first."""
    entries = json.loads(path.read_text())
    names: dict[tuple[str, int, int], str] = {}
    for entry in entries:
        if entry["ph"] == "M":
            track = entry["tid"] if entry["name"] == "thread_name" else 0
            names[entry["name"], entry["pid"], track] = entry["args"]["name"]
    spans = [
        Span(
            process=names["process_name", entry["pid"], 0],
            track=names["thread_name", entry["pid"], entry["tid"]],
            name=entry["name"],
            category=entry["cat"],
            begin=entry["ts"],
            end=entry["ts"] + entry["dur"],
            event=entry.get("args", {}).get("event", ""),
        )
        for entry in entries
        if entry["ph"] == "X"
    ]
    return sorted(spans, key=lambda span: (span.begin, -span.end))


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("trace") / "trace.json"


@pytest.fixture(scope="module")
def printed(run_forked: Any, path: Path) -> str:
    done = run_forked(
        PROGRAM, environment={"CANN_SIM_TRACE": str(path), "CANN_SIM_DEADLOCK_SECONDS": "0.2"}
    )
    assert "stuck" in done.output, done.errors
    assert "ended" in done.output, done.errors
    output: str = done.output
    return output


@pytest.fixture(scope="module")
def spans(printed: str, path: Path) -> list[Span]:
    return read_spans(path)


def only(spans: list[Span], name: str, category: str) -> Span:
    found = [span for span in spans if (span.name, span.category) == (name, category)]
    assert len(found) == 1, [span.name for span in spans if span.category == category]
    return found[0]


def test_trace_has_a_track_a_stream_and_spans_that_nest(spans: list[Span]) -> None:
    tracks = defaultdict(list)
    for span in spans:
        tracks[span.process, span.track].append(span)
    device = [track for process, track in tracks if process == "device 0"]
    assert sum(track.startswith("stream ") for track in device) >= 3
    assert any(track.startswith("graph 1, branch of stream ") for track in device)
    for on_track in tracks.values():
        around: list[Span] = []
        for span in on_track:
            while around and around[-1].end <= span.begin:
                around.pop()
            assert not around or around[-1].holds(span), (around[-1], span)
            around.append(span)


def test_trace_shows_the_kernels_of_a_replay_inside_it(spans: list[Span]) -> None:
    branches = [span for span in spans if span.name == "graph 1"]
    assert len(branches) == 2
    execution = only(spans, "MODEL_EXECUTE", "replay")
    origin = next(branch for branch in branches if execution.holds(branch))
    side = next(branch for branch in branches if branch != origin)
    assert side.track.startswith("graph 1, branch of stream ")
    assert origin.holds(only(spans, "aclnnSub", "kernel"))
    assert side.holds(only(spans, "aclnnDivs", "kernel"))


def test_trace_shows_what_a_wait_waited_for_and_when_it_ended(spans: list[Span]) -> None:
    waits = [span for span in spans if span.name.startswith("waits for the external event at ")]
    assert len(waits) == 1
    given_up = [span.end for span in spans if span.name.startswith("aclrtSynchronizeDevice")]
    assert any(waits[0].begin < end < waits[0].end for end in given_up)
    written = [
        span for span in spans if span.name == "MEM_WRITE_VALUE" and span.begin < waits[0].end
    ]
    assert written
    assert only(spans, "aclnnMuls", "kernel").begin >= waits[0].end


def test_trace_keeps_the_order_that_events_make(spans: list[Span]) -> None:
    first = only(spans, "aclnnAbs", "kernel")
    second = only(spans, "aclnnNeg", "kernel")
    assert first.track != second.track
    assert first.end <= second.begin


def test_trace_shows_host_calls_before_what_they_cause(spans: list[Span]) -> None:
    launch = only(spans, "aclnnAbs", "host")
    assert launch.process == "host"
    assert launch.begin < only(spans, "aclnnAbs", "kernel").begin
    assert any(
        span.name.startswith("aclrtSynchronizeDevice") for span in spans if span.process == "host"
    )


def test_trace_has_an_arrow_from_the_record_that_ended_a_wait(
    spans: list[Span], path: Path
) -> None:
    arrows = [entry for entry in json.loads(path.read_text()) if entry["ph"] in "sf"]
    assert [entry["ph"] for entry in arrows] == ["s", "f"]
    assert arrows[0]["id"] == arrows[1]["id"]
    wait = only(spans, "MEM_WAIT_VALUE", "wait")
    assert wait.begin < arrows[1]["ts"] <= wait.end
    (record,) = (
        span for span in spans if span.name == "MEM_WRITE_VALUE" and span.begin == arrows[0]["ts"]
    )
    assert record.event == wait.event
    assert record.event.startswith("0x")
    assert record.track != wait.track


def test_trace_has_the_times_of_the_monotonic_clock(spans: list[Span], printed: str) -> None:
    lines = [line.split() for line in printed.splitlines()]
    began, ended = (
        next(float(words[1]) * 1e6 for words in lines if words[:1] == [name])
        for name in ("began", "ended")
    )
    first = only(spans, "aclnnAbs", "host")
    assert began < first.begin < first.end < ended


def test_trace_of_a_child_process_is_a_file_of_its_own(run_forked: Any, tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    child = "import cann_sim; cann_sim.activate(); import os; print(os.getpid())"
    done = run_forked(
        f"import cann_sim; cann_sim.activate()\nimport subprocess, sys\n"
        f"subprocess.run([sys.executable, '-c', {child!r}], check=True)",
        environment={"CANN_SIM_TRACE": str(path)},
    )
    number = done.output.strip()
    assert json.loads(path.read_text()) == []
    assert json.loads(path.with_name(f"trace.json.{number}").read_text()) == []
