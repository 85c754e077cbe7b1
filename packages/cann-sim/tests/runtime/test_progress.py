"""Waits that never end: the names in the error, and the default time limit."""

from __future__ import annotations

import re
from typing import Any

import pytest

GRAPH = """
import cann_sim
cann_sim.activate()
import torch, torch_npu
npu = torch.npu
value, product = torch.ones(1).npu(), torch.zeros(1).npu()
event, graph, updates = npu.ExternalEvent(), npu.NPUGraph(), npu.Stream()
with npu.graph(graph):
    main = npu.current_stream()
    event.wait(main)
    event.reset(main)
    npu.graph_task_group_begin(main)
    torch.mul(value, 3.0, out=product)
    task = npu.graph_task_group_end(main)
between = npu.Event()
graph.replay()
{first}
between.record()
graph.replay()
try:
    npu.synchronize()
except RuntimeError as error:
    print(error)
event.record(updates)
# A record before the first replay has taken the one before it would be lost.
between.synchronize()
{last}
npu.synchronize()
print("usable", product.cpu().item())
"""

RECORD = "event.record(updates); npu.synchronize()"


@pytest.mark.parametrize(
    ("first", "last", "event"),
    [
        ("", RECORD, "never recorded"),
        (RECORD, "", r"not recorded again: its 1 record\(s\), the last on stream \d+"),
    ],
    ids=["never", "once for two replays"],
)
def test_deadlock_of_a_graph_names_graph_operator_and_event(
    run_forked: Any, first: str, last: str, event: str
) -> None:
    done = run_forked(
        GRAPH.format(first=first, last=last), environment={"CANN_SIM_DEADLOCK_SECONDS": None}
    )
    assert re.search(
        r"deadlock: stream \d+, graph 1, before operator aclnnMuls waits for the external event at "
        rf"0x[0-9a-f]+, which was {event}",
        done.output,
    ), done.output + done.errors
    assert "usable 3.0" in done.output, done.errors


def test_deadlock_is_found_by_the_host_that_waits_for_an_event(run_forked: Any) -> None:
    done = run_forked(
        """
import cann_sim
cann_sim.activate()
import torch, torch_npu
external, stream = torch.npu.ExternalEvent(), torch.npu.Stream()
external.wait(stream)
event = stream.record_event()
try:
    event.synchronize()
except RuntimeError as error:
    print(error)
external.record(torch.npu.current_stream())
event.synchronize()
print("usable")
""",
        environment={"CANN_SIM_DEADLOCK_SECONDS": "0.3"},
    )
    assert "507047" in done.output, done.errors
    assert re.search(r"synchronise event \d+: deadlock: stream \d+ waits for", done.output)
    assert "usable" in done.output


def test_deadlock_of_two_replays_of_a_graph_names_the_one_that_waits_for_the_other(
    run_forked: Any,
) -> None:
    done = run_forked(
        """
import cann_sim
cann_sim.activate()
import torch, torch_npu
npu = torch.npu
event, graph, value = npu.ExternalEvent(), npu.NPUGraph(), torch.ones(1).npu()
with npu.graph(graph):
    event.wait(npu.current_stream())
    value.mul_(2.0)
streams = npu.Stream(), npu.Stream()
for stream in streams:
    with npu.stream(stream):
        graph.replay()
try:
    npu.synchronize()
except RuntimeError as error:
    print(error)
event.record(npu.current_stream())
while value.cpu().item() < 2.0:
    pass
event.record(npu.current_stream())
npu.synchronize()
print("usable", value.cpu().item())
""",
        environment={"CANN_SIM_DEADLOCK_SECONDS": "0.3"},
    )
    assert re.search(r"stream \d+ waits for another replay of graph 1 to end", done.output)
    assert "usable 4.0" in done.output, done.errors
