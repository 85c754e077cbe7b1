"""Graphs written as JSON, and torch_npu's own tool that aligns them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
import torch

if TYPE_CHECKING:
    from pathlib import Path

PARAMETER_INVALID = 107000

# torch_npu says at every dump which graph it dumps.
pytestmark = pytest.mark.filterwarnings("ignore:calling NPUGraph..debug_dump:UserWarning")


def captured(npu: Any, *, side_stream: bool) -> Any:
    """Return a graph that waits for an external event and multiplies, also on a side stream."""
    value, results = torch.ones(4).to("npu:0"), [torch.zeros(4).to("npu:0") for _ in range(2)]
    event, graph, side = npu.ExternalEvent(), npu.NPUGraph(), npu.Stream()
    with npu.graph(graph):
        main = npu.current_stream()
        event.wait(main)
        if side_stream:
            side.wait_stream(main)
            with npu.stream(side):
                torch.exp(value, out=results[1])
            main.wait_stream(side)
        torch.mul(value, 3.0, out=results[0])
    graph.kept = (event, value, results)
    return graph


def test_dump_names_every_task_in_its_stream(npu: Any, tmp_path: Path) -> None:
    path = tmp_path / "graph.json"
    captured(npu, side_stream=True).debug_dump(str(path))
    events = json.loads(path.read_text())
    streams: dict[str, list[str]] = {}
    for event in events:
        assert event["ph"] == "X"
        assert event["dur"] > 0
        assert {"Model Id", "Stream Id", "Task Id", "Task Type"} <= event["args"].keys()
        streams.setdefault(event["tid"], []).append(event["name"])
    main, side = streams.values()
    assert [name.rstrip("0123456789") for name in main] == [
        "MEM_WAIT_VALUE_",
        "MEM_WRITE_VALUE_",
        "EVENT_RECORD_",
        "EVENT_WAIT_",
        "aclnnMuls",
    ]
    assert [name.rstrip("0123456789") for name in side] == [
        "EVENT_WAIT_",
        "aclnnExp",
        "EVENT_RECORD_",
    ]
    assert main[2].removeprefix("EVENT_RECORD_") == side[0].removeprefix("EVENT_WAIT_")
    assert side[2].removeprefix("EVENT_RECORD_") == main[3].removeprefix("EVENT_WAIT_")


@pytest.mark.absent_in_torch_npu("2.10", reason="it aligns no dump")
def test_dump_is_aligned_by_torch_npu(npu: Any, tmp_path: Path) -> None:
    path = tmp_path / "graph.json"
    captured(npu, side_stream=True).debug_dump(str(path))
    aligned = json.loads(path.with_suffix(".aligned.json").read_text())
    pairs = {e["name"] for e in aligned if e.get("cat") == "event_record->wait"}
    assert {"PAIR_1", "PAIR_2"} <= pairs
    spans = {e["name"]: e for e in aligned if e["ph"] == "X"}
    record, wait = spans["EVENT_RECORD_1"], spans["EVENT_WAIT_1"]
    # A wait may last, but does not end before its record has.
    assert wait["ts"] + wait["dur"] >= record["ts"] + record["dur"]


def test_dump_to_a_folder_that_does_not_exist_is_refused(npu: Any, tmp_path: Path) -> None:
    graph = captured(npu, side_stream=False)
    with pytest.raises(RuntimeError, match=f"(?s){PARAMETER_INVALID}.*cannot write"):
        graph.debug_dump(str(tmp_path / "missing" / "graph.json"))


def test_dump_of_an_unknown_graph_is_refused(acl: Any, tmp_path: Path) -> None:
    path = str(tmp_path / "graph.json").encode()
    assert acl("aclmdlRIDebugJsonPrint", 0x1234, path, 0) == PARAMETER_INVALID
    assert acl("aclmdlRIDebugPrint", 0x1234) == PARAMETER_INVALID
