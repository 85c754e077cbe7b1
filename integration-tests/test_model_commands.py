"""`npu-compile plan`, `bench` and `trace` on the example engine's model, on simulated CANN."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import pytest

from npu_compile_command import run_command

if TYPE_CHECKING:
    from pathlib import Path

MODEL = "qwen3_engine.demonstration.explained_model:tiny_qwen3"
PROGRAM = "from npu_compile_command import main; main()"
NUM_LAYERS = 2
NUM_STEPS = 3


@pytest.fixture(scope="module")
def traced(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a trace of whole graphs, and of its picture."""
    folder = tmp_path_factory.mktemp("trace")
    plots = ["--output", str(folder / "trace.json"), "--plot", str(folder / "steps.svg")]
    config = ["--config", '{"mode": "full", "capture_sizes": [8], "fuse": false}']
    command = [sys.executable, "-m", "cann_sim", "run", "--", sys.executable, "-c", PROGRAM]
    command += ["trace", MODEL, *config, *plots, "--quiet", f"--steps={NUM_STEPS}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture
def events(traced: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((traced / "trace.json").read_text())["traceEvents"]
    return found


def test_trace_is_one_that_perfetto_reads(events: list[dict[str, Any]]) -> None:
    """By the document of the trace event format, as far as its events are used."""
    named = {(each["pid"], each["tid"]) for each in events if each["name"] == "thread_name"}
    for event in events:
        assert event["ph"] in "MXiCsf", event
        assert isinstance(event["name"], str)
        assert all(isinstance(event[name], int) for name in ("pid", "tid")), event
        if event["ph"] != "M":
            assert (event["pid"], event["tid"]) in named, event
            assert event["ts"] > 0
        if event["ph"] == "X":
            assert event["dur"] >= 0
        if event["ph"] == "C":
            assert all(isinstance(value, (int, float)) for value in event["args"].values())


def spans_by_track(events: list[dict[str, Any]]) -> dict[tuple[int, int], list[dict[str, Any]]]:
    tracks = defaultdict(list)
    for event in sorted(events, key=lambda each: (each.get("ts", 0), -each.get("dur", 0))):
        if event["ph"] == "X":
            tracks[event["pid"], event["tid"]].append(event)
    return tracks


def test_spans_of_a_track_nest(events: list[dict[str, Any]]) -> None:
    for on_track in spans_by_track(events).values():
        around: list[float] = []
        for event in on_track:
            end = event["ts"] + event["dur"]
            while around and around[-1] <= event["ts"] + 0.002:  # rounded to nanoseconds
                around.pop()
            assert not around or end <= around[-1] + 0.002, event
            around.append(end)


def test_arrows_begin_and_end_in_spans(events: list[dict[str, Any]]) -> None:
    tracks = spans_by_track(events)
    arrows = [event for event in events if event["ph"] in "sf"]
    assert len(arrows) == 2 * NUM_LAYERS * (NUM_STEPS + 3)
    for start, end in zip(arrows[::2], arrows[1::2], strict=True):
        assert (start["ph"], end["ph"], end["bp"]) == ("s", "f", "e")
        assert start["id"] == end["id"]
        assert start["ts"] <= end["ts"]
        for event in (start, end):
            on_track = tracks[event["pid"], event["tid"]]
            begins = [each["ts"] for each in on_track]
            ends = [each["ts"] + each["dur"] for each in on_track]
            places = zip(begins, ends, strict=True)
            assert any(begin <= event["ts"] <= end for begin, end in places), event


def test_updates_are_traced_by_layer_and_precede_their_launch(
    events: list[dict[str, Any]],
) -> None:
    roles: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for event in events:
        details = event.get("args", {})
        if "role" in details:
            roles[details["role"], details["layer"]].append(event)
    layers = {layer for _, layer in roles}
    assert len(layers) == NUM_LAYERS
    for layer in layers:
        updates, tells, waits, attentions = (
            roles[role, layer] for role in ("update", "tell", "wait", "attention")
        )
        assert len(updates) == len(tells) == len(waits) == len(attentions) == NUM_STEPS + 3
        assert {each["args"]["task"] for each in updates} == {"TASK_UPDATE"}
        assert {each["args"]["task"] for each in attentions} == {"aclnnFusedInferAttentionScoreV3"}
        for update, tell, wait, attention in zip(updates, tells, waits, attentions, strict=True):
            assert update["tid"] == tell["tid"] != wait["tid"] == attention["tid"]
            ends = [each["ts"] + each["dur"] for each in (update, wait)]
            assert ends[0] <= tell["ts"] < ends[1] <= attention["ts"]
            assert wait["args"]["in_time"] == (tell["ts"] < wait["ts"])


def test_host_and_device_share_one_clock(events: list[dict[str, Any]]) -> None:
    steps = [each for each in events if each["name"].startswith("step of 8 rows")]
    replays = [each for each in events if each["name"] == "MODEL_EXECUTE"]
    updates = [each for each in events if each["name"] == "updates"]
    queued = [each for each in events if each["name"] == "replay Qwen3Model"]
    assert len(steps) == len(replays) == len(updates) == len(queued) == NUM_STEPS + 3
    for step, replay, update, call in zip(steps, replays, updates, queued, strict=True):
        assert step["ts"] < call["ts"] < replay["ts"]
        assert call["ts"] + call["dur"] <= update["ts"] + 0.002
        assert update["ts"] + update["dur"] <= step["ts"] + step["dur"] + 0.002


def test_picture_of_the_steps_has_the_lane_and_says_that_it_is_simulated(traced: Path) -> None:
    text = (traced / "steps.svg").read_text()

    for shown in (">host<", ">device<", ">update lane<", ">simulated CANN: order and"):
        assert shown in text, shown
    # Each layer in each step has its number.
    assert text.count(">0</text>") >= NUM_STEPS


def test_plan_and_bench_run_the_model(capsys: pytest.CaptureFixture[str]) -> None:
    config = '{"mode": "full", "capture_sizes": [4, 8], "fuse": false}'
    assert (
        run_command(["plan", MODEL, "--config", config, "--streams", "1", "--json", "--quiet"]) == 0
    )
    plan = json.loads(capsys.readouterr().out)["decode"]
    assert plan["sizes"] == [8]
    assert plan["used"]["streams"] == 1

    arguments = ["--config", config, "--steps", "2", "--modes", "eager,full"]
    assert run_command(["bench", MODEL, *arguments, "--json", "--quiet"]) == 0
    times = json.loads(capsys.readouterr().out)
    assert [each["mode"] for each in times] == ["eager", "full"]
    assert times[0]["median_update_us"] == 0.0
    assert 0 < times[1]["median_update_us"] < times[1]["median_us"]
