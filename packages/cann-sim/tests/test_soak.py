"""Resident memory and threads over many captures and replays.

The gate makes a small share, without torch_npu's task queue; `nox -s soak` makes 1,000 captures and
20,000 replays with and without it.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

# What an allocator may hold more at one moment than at another; a byte a call would be more.
SLACK_KIB = 256

PROGRAM = """
import cann_sim
cann_sim.activate()
import ctypes, gc, json, os
import torch, torch_npu

npu = torch.npu
trim = ctypes.CDLL(None).malloc_trim
value, product, total = (torch.ones(64, device="npu:0") for _ in range(3))
event, side, updates = npu.ExternalEvent(), npu.Stream(), npu.Stream()

def capture():
    graph = npu.NPUGraph()
    with npu.graph(graph):
        main = npu.current_stream()
        side.wait_stream(main)
        with npu.stream(side):
            doubled = value * 2.0
        event.wait(main)
        event.reset(main)
        npu.graph_task_group_begin(main)
        torch.mul(value, 3.0, out=product)
        handle = npu.graph_task_group_end(main)
        main.wait_stream(side)
        torch.add(product, doubled, out=total)
    return graph, handle

def replay(graph, handle, number):
    updates.wait_stream(npu.current_stream())
    graph.replay()
    with npu.stream(updates):
        npu.graph_task_update_begin(updates, handle)
        torch.mul(value, float(number), out=product)
        npu.graph_task_update_end(updates)
        event.record(updates)

def capture_and_destroy(number):
    graph, handle = capture()
    replay(graph, handle, number)
    if number % 2:
        npu.synchronize()
    graph.reset()

kept = None
def replay_kept(number):
    global kept
    kept = kept or capture()
    replay(*kept, number)
    if number % 10 == 0:
        npu.synchronize()

def figures():
    npu.synchronize()
    gc.collect()
    trim(0)
    lines = open("/proc/self/status").read().splitlines()
    found = dict(line.split(":", 1) for line in lines)
    return int(found["RssAnon"].split()[0]), int(found["Threads"])

# torch_npu's task queue is a ring of 4,096 slots, which are touched one by one.
if os.environ["TASK_QUEUE_ENABLE"] == "1":
    for number in range(2000):
        replay_kept(number)

samples = []
for number in range(COUNT):
    ACTION(number)
    if number % (COUNT // 10) == 0:
        samples.append(figures())
samples.append(figures())
npu.synchronize()
print("SAMPLES", json.dumps({"samples": samples, "last": total.cpu()[0].item()}))
"""


def soak(run_python: Any, action: str, count: int, task_queue: str) -> dict[str, Any]:
    source = PROGRAM.replace("COUNT", str(count)).replace("ACTION", action)
    done = run_python(source, environment={"TASK_QUEUE_ENABLE": task_queue}, seconds=1800)
    lines = [line for line in done.output.splitlines() if line.startswith("SAMPLES ")]
    assert lines, done.errors
    found: dict[str, Any] = json.loads(lines[0].removeprefix("SAMPLES "))
    return found


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    chosen = metafunc.config.getoption("--task-queues").split(",")
    metafunc.parametrize("task_queue", chosen)


@pytest.mark.parametrize(
    ("action", "option"), [("capture_and_destroy", "--captures"), ("replay_kept", "--replays")]
)
def test_memory_and_threads_stay_flat(
    run_python: Any, request: pytest.FixtureRequest, action: str, option: str, task_queue: str
) -> None:
    count = request.config.getoption(option)
    found = soak(run_python, action, count, task_queue)
    assert found["last"] == (count - 1) + 2.0
    # The first calls load code and start threads.
    settled = found["samples"][2:]
    memory = [kib for kib, _ in settled]
    assert max(memory) - memory[0] <= SLACK_KIB, found["samples"]
    assert len({threads for _, threads in settled}) == 1, found["samples"]
