"""Counters of the simulated device."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch

import cann_sim


@pytest.fixture
def since(npu: Any) -> Any:
    """Return a function that gives the counters since the test began."""
    npu.synchronize()
    before = cann_sim.counters()

    def read() -> cann_sim.Counters:
        npu.current_stream().synchronize()
        return cann_sim.counters() - before

    return read


def test_counters_count_launches_by_operator(since: Any) -> None:
    value = torch.ones(3).to("npu:0")
    value.add_(1.0)
    value.add_(1.0)
    counted = since()
    assert counted.launches == 2
    assert dict(counted.launches_by_operator) == {"aclnnInplaceAdds": 2}


def test_counters_count_copies_and_synchronisations(since: Any) -> None:
    torch.ones(256).to("npu:0").cpu()
    counted = since()
    assert (counted.copies, counted.blocking_copies, counted.copied_bytes) == (2, 2, 2048)
    assert counted.synchronisations >= 1
    assert counted.launches == 0


@pytest.mark.absent_in_torch_npu(
    "2.10", "2.11", reason="two numbers are filled as a capture begins"
)
def test_counters_tell_capture_replay_and_update_apart(npu: Any, since: Any) -> None:
    value, product = torch.ones(2).to("npu:0"), torch.zeros(2).to("npu:0")
    graph, stream = npu.NPUGraph(), npu.Stream()
    with npu.graph(graph):
        npu.graph_task_group_begin(npu.current_stream())
        torch.mul(value, 3.0, out=product)
        handle = npu.graph_task_group_end(npu.current_stream())
        torch.add(product, 1.0, out=value)
    captured = since()
    assert (captured.captures, captured.captured_launches, captured.launches) == (1, 2, 0)
    graph.replay()
    npu.synchronize()
    with npu.stream(stream):
        npu.graph_task_update_begin(stream, handle)
        torch.mul(value, 2.0, out=product)
        npu.graph_task_update_end(stream)
    npu.synchronize()
    counted = since()
    assert (counted.replays, counted.replayed_kernels) == (1, 2)
    assert (counted.task_updates, counted.updated_launches) == (1, 1)
    assert counted.launches == 0


def test_counters_are_frozen(npu: Any) -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        cann_sim.counters().launches = 1  # type: ignore[misc]
    with pytest.raises(TypeError):
        cann_sim.counters().launches_by_operator["aclnnAdd"] = 1  # type: ignore[index]


def test_counters_without_the_simulator_are_refused(run_python: Any) -> None:
    done = run_python("import cann_sim; cann_sim.counters()")
    assert "InactiveError" in done.errors
    assert "cann_sim.activate()" in done.errors


def test_null_kernels_compute_nothing_and_are_counted(run_python: Any) -> None:
    done = run_python(
        """
import cann_sim
cann_sim.activate()
import torch, torch_npu
value = torch.ones(2).npu()
value.add_(41.0)
torch.npu.synchronize()
print(value.cpu().tolist(), cann_sim.counters().launches)
""",
        environment={"CANN_SIM_KERNELS": "null"},
    )
    assert "[1.0, 1.0] 1" in done.output, done.errors
