"""Injected faults: the device's code on the chosen occasion, and a process that goes on."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest
import torch

import cann_sim
from cann_sim.errors import SettingError

OUT_OF_MEMORY = 207001
NO_STREAM = 207008
KERNEL_FAILED = 507015
REPLAY_FAILED = 507011
CAPTURE_INVALID = 507903
INTERNAL_ERROR = 507000
LAUNCH_FAILED = 507899


def allocate(acl: Any) -> int:
    address = ctypes.c_void_p()
    code: int = acl("aclrtMalloc", ctypes.byref(address), ctypes.c_size_t(512), ctypes.c_int(0))
    if code == 0:
        acl("aclrtFree", address)
    return code


@pytest.mark.parametrize(
    ("count", "failing"), [("2", [2]), ("2-3", [2, 3]), ("3+", [3, 4, 5]), ("1,5", None)]
)
def test_fault_of_an_allocation_occurs_at_the_chosen_one(
    acl: Any, count: str, failing: list[int] | None
) -> None:
    faults = "allocation:1,allocation:5" if failing is None else f"allocation:{count}"
    with cann_sim.injected_faults(faults):
        codes = [allocate(acl) for _ in range(5)]
    expected = failing or [1, 5]
    assert codes == [OUT_OF_MEMORY if n in expected else 0 for n in range(1, 6)]
    assert allocate(acl) == 0


def test_fault_of_an_allocation_is_torchs_own_error(npu: Any) -> None:
    with cann_sim.injected_faults("allocation:1+"), pytest.raises(torch.OutOfMemoryError):
        torch.empty(1 << 26, device="npu:0")
    assert torch.empty(1 << 26, device="npu:0").numel() == 1 << 26
    npu.empty_cache()


def test_fault_of_a_stream_answers_as_at_the_limit(acl: Any) -> None:
    stream = ctypes.c_void_p()
    with cann_sim.injected_faults("stream:1"):
        assert acl("aclrtCreateStream", ctypes.byref(stream)) == NO_STREAM
        assert "injected fault" in acl.message()
        assert acl("aclrtCreateStream", ctypes.byref(stream)) == 0
    assert acl("aclrtDestroyStream", stream) == 0


def test_fault_of_a_running_operator_fails_the_synchronisation(npu: Any) -> None:
    value = torch.ones(2, device="npu:0")
    npu.synchronize()
    with cann_sim.injected_faults("run(aclnnInplaceMuls):2"):
        value.mul_(2.0)
        value.add_(1.0)
        npu.synchronize()
        value.mul_(2.0)
        with pytest.raises(RuntimeError, match=f"(?s){KERNEL_FAILED}.*run of aclnnInplaceMuls"):
            npu.synchronize()
    value.mul_(2.0)
    assert value.cpu().tolist() == [6.0, 6.0]


def test_fault_of_an_operator_in_a_replay_fails_the_replay(npu: Any) -> None:
    value, graph = torch.ones(2, device="npu:0"), npu.NPUGraph()
    with npu.graph(graph):
        value.mul_(2.0)
    # By its name: before 2.12 torch_npu fills two numbers as a capture begins, which may run now.
    with cann_sim.injected_faults("run(aclnnInplaceMuls):2"):
        graph.replay()
        npu.synchronize()
        graph.replay()
        with pytest.raises(RuntimeError, match=f"(?s){REPLAY_FAILED}.*injected fault"):
            npu.synchronize()
    graph.replay()
    assert value.cpu().tolist() == [4.0, 4.0]


@pytest.mark.absent_in_torch_npu(
    "2.10", reason="its allocator takes no capture after one whose end failed"
)
def test_fault_of_the_end_of_a_capture_leaves_the_process_usable(npu: Any) -> None:
    value = torch.ones(2, device="npu:0")
    with cann_sim.injected_faults("capture_end:1"):
        with pytest.raises(RuntimeError, match=f"(?s){CAPTURE_INVALID}.*injected fault"):  # noqa: SIM117
            with npu.graph(npu.NPUGraph()):
                value.mul_(2.0)
        graph = npu.NPUGraph()
        with npu.graph(graph):
            value.mul_(3.0)
    graph.replay()
    assert value.cpu().tolist() == [3.0, 3.0]


LAUNCHES = """
import cann_sim
cann_sim.activate()
import torch, torch_npu
npu = torch.npu
value, product = torch.ones(1).npu(), torch.zeros(1).npu()
graph, stream = npu.NPUGraph(), npu.Stream()
with npu.graph(graph):
    npu.graph_task_group_begin(npu.current_stream())
    torch.mul(value, 3.0, out=product)
    handle = npu.graph_task_group_end(npu.current_stream())

def update(factor):
    with npu.stream(stream):
        npu.graph_task_update_begin(stream, handle)
        try:
            torch.mul(value, factor, out=product)
        finally:
            npu.graph_task_update_end(stream)

npu.synchronize()
with cann_sim.injected_faults("launch(aclnnExp):1,task_update:1"):
    for attempt in (lambda: torch.exp(value), lambda: update(5.0)):
        try:
            attempt()
        except RuntimeError as error:
            print(error, error.__context__)
    update(7.0)
    torch.exp(value)
# The update is on another stream: the replay has to come after it.
npu.synchronize()
graph.replay()
npu.synchronize()
print("afterwards", product.cpu().item())
"""


def test_fault_of_a_launch_and_of_a_task_update_are_refusals(run_forked: Any) -> None:
    # Where a launch is refused, torch_npu's task queue gives up for good, so it is left out.
    done = run_forked(LAUNCHES, environment={"TASK_QUEUE_ENABLE": "0"})
    said = done.output + done.errors
    assert "launch of aclnnExp" in said
    assert str(LAUNCH_FAILED) in said
    assert "task_update of aclnnMuls" in said
    assert str(INTERNAL_ERROR) in said
    assert "afterwards 7.0" in done.output, done.errors


KERNELS = """
import cann_sim
cann_sim.activate()
import torch, torch_npu
npu = torch.npu
value, product, stream = torch.ones(1).npu(), torch.zeros(1).npu(), npu.Stream()

def captured():
    graph = npu.NPUGraph()
    with npu.graph(graph):
        npu.graph_task_group_begin(npu.current_stream())
        torch.mul(value, 3.0, out=product)
        handle = npu.graph_task_group_end(npu.current_stream())
    return graph, handle

def update(handle):
    npu.synchronize()
    with npu.stream(stream):
        npu.graph_task_update_begin(stream, handle)
        try:
            torch.mul(value, 5.0, out=product)
        finally:
            npu.graph_task_update_end(stream)

one, handle_of_one = captured()
with cann_sim.injected_faults("two_kernels(aclnnMuls):1-2"):
    torch.mul(value, 7.0, out=product)
    print("eager", product.cpu().item())
    two, handle_of_two = captured()
with cann_sim.injected_faults("two_kernels(aclnnMuls):1"):
    for handle in (handle_of_one, handle_of_two):
        try:
            update(handle)
        except RuntimeError as error:
            print(error, error.__context__)
        else:
            print("taken")
npu.synchronize()
"""


def test_update_with_another_number_of_kernels_is_refused(run_forked: Any) -> None:
    # Where a launch is refused, torch_npu's task queue gives up for good, so it is left out.
    done = run_forked(KERNELS, environment={"TASK_QUEUE_ENABLE": "0"})
    said = done.output + done.errors
    assert "eager 7.0" in said
    assert "the task group has 1 kernels, aclnnMuls is one more" in said
    assert "the task group has 2 kernels, 1 were launched in the update" in said
    assert "taken" not in said


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("alloc:1", "expected one of allocation.*found 'alloc'"),
        ("allocation", "with counts from 1, found 'allocation'"),
        ("allocation:0", "with counts from 1"),
        ("allocation:3-2", "with counts from 1"),
        ("allocation:1,,run:1", "found '' in ''"),
        ("stream(aclnnAdd):1", "behind launch, run or two_kernels only"),
        ("run():1", "behind launch, run or two_kernels only"),
    ],
)
def test_faults_of_another_form_are_refused(npu: Any, text: str, message: str) -> None:
    del npu
    with pytest.raises(SettingError, match=message):
        cann_sim.set_faults(text)


def test_faults_of_the_environment_are_used(run_forked: Any) -> None:
    program = """
import cann_sim
cann_sim.activate()
import torch, torch_npu
try:
    torch.ones(4).npu()
except torch.OutOfMemoryError:
    print("out of memory")
"""
    done = run_forked(program, environment={"CANN_SIM_FAULTS": "allocation:1+"})
    assert "out of memory" in done.output, done.errors
    done = run_forked(program, environment={"CANN_SIM_FAULTS": "memory:1"})
    # Refused before a library is loaded.
    assert done.status == 1
    assert "CANN_SIM_FAULTS" in done.errors
    assert "memory" in done.errors
