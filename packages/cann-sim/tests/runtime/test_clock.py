"""Virtual time: small programs whose times can be computed by hand from the constants."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

import cann_sim
from cann_sim.errors import SettingError

if TYPE_CHECKING:
    from pathlib import Path

LAUNCH = 20.0
"""Microseconds of the host for each launch."""

LARGE, SMALL = 8 * 2**20, 4
"""Elements of float32: what takes longer than a launch, and what takes no time to move."""

PROGRAM = """
import json, cann_sim
cann_sim.activate()
import torch, torch_npu
npu = torch.npu
constants = {name: row.value for name, row in cann_sim.clock_constants().items()}
large, large_out = torch.ones(8 * 2**20).npu(), torch.zeros(8 * 2**20).npu()
value, product = torch.ones(4).npu(), torch.zeros(4).npu()
one, other, updates = npu.Stream(), npu.Stream(), npu.Stream()
found = {"constants": constants}

def timed():
    return npu.Event(enable_timing=True)

def microseconds(begin, end):
    return begin.elapsed_time(end) * 1000

def two_streams_and_an_event():
    begin, between, end = timed(), timed(), timed()
    begin.record(one)
    with npu.stream(one):
        torch.mul(large, 2.0, out=large_out)
    between.record(one)
    other.wait_event(between)
    with npu.stream(other):
        torch.mul(value, 2.0, out=product)
    end.record(other)
    npu.synchronize()
    return [microseconds(begin, between), microseconds(begin, end)]

def value_wait_before_its_write():
    begin, end, event = timed(), timed(), npu.ExternalEvent()
    begin.record(one)
    event.wait(one)
    end.record(one)
    with npu.stream(other):
        torch.mul(large, 2.0, out=large_out)
    event.record(other)
    npu.synchronize()
    return microseconds(begin, end)

def value_wait_behind_its_write():
    begin, end, event = timed(), timed(), npu.ExternalEvent()
    event.record(other)
    npu.synchronize()
    begin.record(one)
    event.wait(one)
    end.record(one)
    npu.synchronize()
    return microseconds(begin, end)

def host_goes_on_behind_what_it_waited_for():
    end = timed()
    before = cann_sim.virtual_time()
    with npu.stream(one):
        torch.mul(large, 2.0, out=large_out)
    launched = cann_sim.virtual_time()
    end.record(one)
    end.synchronize()
    return [launched - before, cann_sim.virtual_time() - launched]

def host_that_asks_comes_to_it():
    end = timed()
    with npu.stream(one):
        torch.mul(large, 2.0, out=large_out)
    end.record(one)
    launched = cann_sim.virtual_time()
    while not end.query():
        pass
    return cann_sim.virtual_time() - launched

for case in (two_streams_and_an_event, value_wait_before_its_write, value_wait_behind_its_write,
             host_goes_on_behind_what_it_waited_for, host_that_asks_comes_to_it):
    found[case.__name__] = case()

event, graph = npu.ExternalEvent(), npu.NPUGraph()
with npu.graph(graph):
    main = npu.current_stream()
    torch.mul(value, 3.0, out=product)
    event.wait(main)
    event.reset(main)
    npu.graph_task_group_begin(main)
    torch.mul(value, 3.0, out=product)
    task = npu.graph_task_group_end(main)
    torch.mul(product, 1.0, out=value)

def update(factor):
    with npu.stream(updates):
        npu.graph_task_update_begin(updates, task)
        torch.mul(value, factor, out=product)
        npu.graph_task_update_end(updates)
        event.record(updates)

def step(order):
    value.fill_(1.0)
    npu.synchronize()
    begin, end = timed(), timed()
    main = npu.current_stream()
    begin.record(main)
    for part in order:
        graph.replay() if part == "replay" else update(5.0)
    end.record(main)
    npu.synchronize()
    return microseconds(begin, end)

found["late_update"] = step(["replay", "update"])
found["early_update"] = step(["update", "replay"])
found["values"] = product.cpu().tolist()
print(json.dumps(found))
"""


@pytest.fixture(name="clocked", scope="module")
def _clocked(run_forked: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Return a function that runs the program and returns its output and its trace."""

    def run(**settings: str) -> tuple[dict[str, Any], Path]:
        trace = tmp_path_factory.mktemp("clock") / "trace.json"
        environment = {
            "CANN_SIM_CLOCK": f"given:{LAUNCH:g}",
            "CANN_SIM_TRACE": str(trace),
            "TASK_QUEUE_ENABLE": "0",
            **settings,
        }
        done = run_forked(PROGRAM, environment=environment)
        assert done.status == 0, done.errors
        return json.loads(done.output), trace

    return run


@pytest.fixture(name="first", scope="module")
def _first(clocked: Any) -> tuple[dict[str, Any], Path]:
    """Return the first run, in which kernels compute."""
    first: tuple[dict[str, Any], Path] = clocked()
    return first


@pytest.fixture(name="found")
def _found(first: tuple[dict[str, Any], Path]) -> dict[str, Any]:
    return first[0]


class Times:
    """Durations of the program's tasks computed from the constants, in microseconds."""

    def __init__(self, constants: dict[str, float]) -> None:
        self.control = constants["control_task"] / 1000
        self.update_copy = constants["update_copy"] / 1000
        self.replay = constants["replay_overhead"] / 1000
        self.wake = constants["host_wake"] / 1000
        # A product by a number reads one tensor and writes one.
        moved = {size: 2 * 4 * size / constants["l2_bandwidth"] * 1e6 for size in (LARGE, SMALL)}
        overhead = constants["kernel_overhead"] / 1000
        self.large, self.small = overhead + moved[LARGE], overhead + moved[SMALL]


@pytest.fixture(name="times")
def _times(found: dict[str, Any]) -> Times:
    times = Times(found["constants"])
    assert times.large < LAUNCH, "else the expectations below are others"
    return times


def near(microseconds: float) -> Any:
    """Elapsed times are milliseconds in float32, and each task is rounded to a nanosecond."""
    return pytest.approx(microseconds, abs=0.02)


def test_kernel_starts_at_the_latest_of_its_submission_and_the_event(
    found: dict[str, Any], times: Times
) -> None:
    between, end = found["two_streams_and_an_event"]
    # The first record ends a control task after the host's call, the kernel begins when it is
    # launched, and the second record is a control task after it.
    assert between == near(LAUNCH + times.large)
    # The event is there before the second launch, so that is what the second kernel waits for.
    assert end == near(2 * LAUNCH + times.small)


def test_value_wait_ends_with_the_write(found: dict[str, Any], times: Times) -> None:
    written = LAUNCH + times.large + times.control
    # Behind it: the wait, the reset of the event, the record; the first record is one as well.
    assert found["value_wait_before_its_write"] == near(written + 2 * times.control)


def test_value_wait_after_its_write_takes_only_its_own_time(
    found: dict[str, Any], times: Times
) -> None:
    assert found["value_wait_behind_its_write"] == near(3 * times.control)


def test_host_continues_after_what_it_waited_for(found: dict[str, Any], times: Times) -> None:
    launched, waited = found["host_goes_on_behind_what_it_waited_for"]
    assert launched == near(LAUNCH)
    assert waited == near(times.large + times.control + times.wake)


def test_host_that_queries_in_a_loop_reaches_the_event(found: dict[str, Any], times: Times) -> None:
    assert found["host_that_asks_comes_to_it"] == near(times.large + times.control)


def test_late_update_stalls_the_replay(
    first: tuple[dict[str, Any], Path], found: dict[str, Any], times: Times
) -> None:
    stall, _ = cann_sim.read_stalls(first[1])
    arrived = LAUNCH + times.replay + times.small
    written = 2 * LAUNCH + times.update_copy + times.control
    assert stall.microseconds == near(written - arrived)
    # Wait, reset, eight empty tasks, both kernels, record; the first record is one control task.
    expected = written + 10 * times.control + 2 * times.small
    assert found["late_update"] == near(expected)


def test_early_update_is_hidden(
    first: tuple[dict[str, Any], Path], found: dict[str, Any], times: Times
) -> None:
    _, stall = cann_sim.read_stalls(first[1])
    assert (stall.replay, stall.position, stall.microseconds) == (2, 0, 0.0)
    assert stall.written < stall.arrived
    arrived = 2 * LAUNCH + times.replay + times.small
    expected = arrived + 10 * times.control + 2 * times.small
    assert found["early_update"] == near(expected)


def test_clock_does_not_change_results(found: dict[str, Any]) -> None:
    assert found["values"] == [5.0] * SMALL


def device_spans(trace: Path) -> list[tuple[str, float, float]]:
    """Return the activities of the device, ordered by time."""
    return sorted(
        (event["name"], event["ts"], event["dur"])
        for event in json.loads(trace.read_text())
        if event["ph"] == "X" and event["cat"] != "host"
    )


@pytest.mark.parametrize("kernels", ["real", "null"])
def test_times_are_the_same_in_every_run(
    first: tuple[dict[str, Any], Path], clocked: Any, kernels: str
) -> None:
    found, trace = clocked(CANN_SIM_KERNELS=kernels)
    assert device_spans(trace) == device_spans(first[1])
    assert {**found, "values": 0} == {**first[0], "values": 0}


MEASURED = """
import cann_sim
cann_sim.activate()
import torch, torch_npu
values, result = torch.ones(8 * 2**20).npu(), torch.zeros(8 * 2**20).npu()
torch.npu.synchronize()
before = cann_sim.virtual_time()
torch.mul(values, 2.0, out=result)
launched = cann_sim.virtual_time()
torch.npu.synchronize()
print(launched - before, cann_sim.virtual_time() - launched)
"""


def test_measured_host_time_passes_while_the_host_works_alone(
    run_forked: Any, times: Times
) -> None:
    settings = {"CANN_SIM_KERNELS": "null", "TASK_QUEUE_ENABLE": "0"}
    # Of a host that takes no time what is left is the wait; of a slow one the launch is everything.
    quick = run_forked(MEASURED, environment={**settings, "CANN_SIM_CLOCK": "measured:1e-12"})
    slow = run_forked(MEASURED, environment={**settings, "CANN_SIM_CLOCK": "measured:1e6"})
    launched, waited = map(float, quick.output.split())
    assert launched == near(0.0)
    assert waited == near(times.large + times.wake)
    launched, _ = map(float, slow.output.split())
    assert launched > times.large


def test_trace_says_that_its_times_are_virtual(first: tuple[dict[str, Any], Path]) -> None:
    events = json.loads(first[1].read_text())
    names = [event["args"]["name"] for event in events if event["name"] == "process_name"]
    assert "device 0, virtual time" in names
    launches = [e for e in events if e.get("cat") == "host" and e["name"] == "aclnnMuls"]
    # What is captured takes none of the host's time, which is given for what is given to a stream.
    assert {event["dur"] for event in launches} == {0.0, LAUNCH}


def test_stalls_command_shows_them(
    first: tuple[dict[str, Any], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    from cann_sim.cli import main

    assert main(["stalls", str(first[1])]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in lines[1:]] == [["1", "0"], ["2", "0"]]
    assert float(lines[1].split()[4]) > 0
    assert float(lines[2].split()[4]) == 0


def test_trace_without_virtual_times_has_no_stalls(tmp_path: Path) -> None:
    replay = {"name": "MODEL_EXECUTE", "ph": "X", "cat": "replay", "ts": 0, "dur": 9}
    wait = {"name": "MEM_WAIT_VALUE", "ph": "X", "cat": "wait", "ts": 1, "dur": 2}
    events = [{**e, "pid": 1, "tid": 1, "args": {"event": "0x1"}} for e in (replay, wait)]
    trace = tmp_path / "trace.json"
    trace.write_text(json.dumps(events))
    with pytest.raises(ValueError, match="Set CANN_SIM_CLOCK"):
        cann_sim.read_stalls(trace)


def test_virtual_time_needs_a_clock() -> None:
    with pytest.raises(SettingError, match="expected CANN_SIM_CLOCK to be set"):
        cann_sim.virtual_time()


def test_every_constant_has_a_source() -> None:
    for name, constant in cann_sim.clock_constants().items():
        assert constant.value > 0, name
        assert constant.origin in {"documented", "published", "fitted", "assumed"}, name
        assert constant.source, name
