"""Conditional tasks: child graphs that run, or not, by a value on the device."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import pytest
import torch

IF, WHILE, SWITCH = 0, 1, 2
ASSIGN_DEFAULT = 1
PARAMETER_INVALID = 107000
NOT_CAPTURED = 107029
CHILD_IS_CAPTURING = 107046
FEATURE_NOT_SUPPORTED = 207000


class Parameters(ctypes.Structure):
    _fields_ = (
        ("handle", ctypes.c_void_p),
        ("type", ctypes.c_int),
        ("size", ctypes.c_uint32),
        ("graphs", ctypes.POINTER(ctypes.c_void_p)),
    )


class Conditional:
    """A capture with one conditional task, through the C interface."""

    def __init__(self, npu: Any, acl: Any, *, default: int, flag: int = ASSIGN_DEFAULT) -> None:
        self.npu, self.acl = npu, acl
        self.stream = npu.Stream()
        self.graph = ctypes.c_void_p()
        self.handle = ctypes.c_void_p()
        self.children: Any = None
        assert acl("aclmdlRICaptureBegin", self.stream.npu_stream, ctypes.c_int(2)) == 0
        acl("aclmdlRICaptureGetInfo", self.stream.npu_stream, None, ctypes.byref(self.graph))
        code = acl(
            "aclmdlRICondHandleCreate",
            self.graph,
            ctypes.c_uint32(default),
            ctypes.c_int(flag),
            ctypes.byref(self.handle),
        )
        assert code == 0, acl.message()
        self.value = ctypes.c_void_p()
        acl("aclmdlRICondHandleGetCondPtr", self.handle, ctypes.byref(self.value))

    def add(self, kind: int, count: int) -> int:
        self.children = (ctypes.c_void_p * count)()
        parameters = Parameters(self.handle, kind, count, self.children)
        code: int = self.acl(
            "aclmdlRIAddCondTask", parameters, self.stream.npu_stream, ctypes.c_uint32(0)
        )
        return code

    def capture_child(self, index: int, launch: Any) -> None:
        stream = self.npu.Stream()
        graph = ctypes.c_void_p(self.children[index])
        mode = ctypes.c_int(2)
        assert self.acl("aclmdlRICaptureToModelRIBegin", stream.npu_stream, graph, mode) == 0
        with self.npu.stream(stream):
            launch(stream)
            assert stream.npu_stream  # all launches have left torch_npu's queue
        assert self.acl("aclmdlRICaptureEnd", stream.npu_stream, None) == 0

    def end(self) -> int:
        code: int = self.acl("aclmdlRICaptureEnd", self.stream.npu_stream, ctypes.byref(self.graph))
        return code

    def replay(self) -> None:
        assert self.acl("aclmdlRIExecuteAsync", self.graph, None) == 0, self.acl.message()
        self.npu.synchronize()

    def set_value(self, value: int, stream: Any) -> None:
        """Write the value in the order of the stream."""
        wide = ctypes.c_uint64(value)
        assert self.acl("aclrtValueWrite", self.value, wide, 0, stream.npu_stream) == 0


def add_in_place(result: torch.Tensor, number: float) -> Any:
    return lambda _stream: result.add_(number)


@pytest.mark.parametrize(
    ("kind", "kernels", "further"),
    [(IF, 2013, 0), (IF, 2014, 1), (WHILE, 2012, 0), (WHILE, 2013, 1), (SWITCH, 2014, 1)],
)
def test_condition_takes_entries_of_the_queue_by_its_kind(
    npu: Any, acl: Any, kind: int, kernels: int, further: int
) -> None:
    """Behind 2,016 entries the next kernel goes to a further stream; while takes 3, others 2."""
    result, count = torch.zeros(1, device="npu:0"), ctypes.c_uint32()
    npu.synchronize()
    conditional = Conditional(npu, acl, default=0)
    acl("aclrtGetStreamAvailableNum", ctypes.byref(count))
    before = count.value
    with npu.stream(conditional.stream):
        for _ in range(kernels):
            result.add_(1)
        assert conditional.stream.npu_stream  # all launches have left torch_npu's queue
        assert conditional.add(kind, 1) == 0
        result.add_(1)
        assert conditional.stream.npu_stream
    conditional.capture_child(0, add_in_place(result, 1))
    acl("aclrtGetStreamAvailableNum", ctypes.byref(count))
    assert before - count.value == 1 + further  # the child graph has one
    assert conditional.end() == 0


@pytest.mark.parametrize(("value", "expected"), [(1, 1.0), (7, 1.0), (0, 100.0)])
def test_condition_if_runs_the_branch_of_its_value(
    npu: Any, acl: Any, value: int, expected: float
) -> None:
    result = torch.zeros(1).to("npu:0")
    conditional = Conditional(npu, acl, default=value)
    assert conditional.add(IF, 2) == 0
    conditional.capture_child(0, add_in_place(result, 1.0))
    conditional.capture_child(1, add_in_place(result, 100.0))
    assert conditional.end() == 0, acl.message()
    conditional.replay()
    assert result.item() == expected
    acl("aclmdlRIDestroy", conditional.graph)


@pytest.mark.parametrize(("value", "expected"), [(0, 1.0), (1, 10.0), (2, 100.0), (3, 0.0)])
def test_condition_switch_runs_the_child_of_that_number(
    npu: Any, acl: Any, value: int, expected: float
) -> None:
    result = torch.zeros(1).to("npu:0")
    conditional = Conditional(npu, acl, default=value)
    assert conditional.add(SWITCH, 3) == 0
    for index, number in enumerate((1.0, 10.0, 100.0)):
        conditional.capture_child(index, add_in_place(result, number))
    assert conditional.end() == 0
    conditional.replay()
    assert result.item() == expected
    acl("aclmdlRIDestroy", conditional.graph)


def test_condition_while_runs_until_its_value_is_zero(npu: Any, acl: Any) -> None:
    """A host function counts down, as a kernel would."""
    result = torch.zeros(1).to("npu:0")
    conditional = Conditional(npu, acl, default=3)
    counter = ctypes.c_uint64.from_address(conditional.value.value or 0)

    def count_down(_argument: Any) -> None:
        counter.value -= 1

    function = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(count_down)
    assert conditional.add(WHILE, 1) == 0

    def body(stream: Any) -> None:
        result.add_(1.0)
        assert acl("aclrtLaunchHostFunc", stream.npu_stream, function, None) == 0

    conditional.capture_child(0, body)
    assert conditional.end() == 0
    for replays in (1, 2):
        conditional.replay()  # the default value is assigned again
        assert result.item() == 3.0 * replays
    acl("aclmdlRIDestroy", conditional.graph)


def test_condition_without_default_keeps_the_value_that_was_written(npu: Any, acl: Any) -> None:
    result = torch.zeros(1).to("npu:0")
    conditional = Conditional(npu, acl, default=0, flag=0)
    assert conditional.add(IF, 1) == 0
    conditional.capture_child(0, add_in_place(result, 1.0))
    assert conditional.end() == 0
    stream = npu.Stream()
    for value, expected in ((1, 1.0), (0, 1.0), (5, 2.0)):
        conditional.set_value(value, stream)
        stream.synchronize()
        conditional.replay()
        assert result.item() == expected
    acl("aclmdlRIDestroy", conditional.graph)


def test_condition_while_ends_where_kernels_do_nothing(run_forked: Any) -> None:
    done = run_forked(
        f"""
import sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
sys.path.insert(0, {str(Path(__file__).parents[1])!r})
import conftest, torch, torch_npu, test_condition
acl = conftest.Acl()
torch_npu.npu.config.allow_internal_format = False
result = torch.zeros(1).npu()
conditional = test_condition.Conditional(torch_npu.npu, acl, default=3)
conditional.add(test_condition.WHILE, 1)
conditional.capture_child(0, test_condition.add_in_place(result, 1.0))
print("end", conditional.end())
conditional.replay()
print("ended")
""",
        environment={"CANN_SIM_KERNELS": "null"},
    )
    assert "end 0\nended" in done.output, done.errors


def test_condition_in_a_torch_capture_follows_the_predicate(npu: Any) -> None:
    module = pytest.importorskip(
        "torch_npu.npu._npugraph_conditional_nodes", reason="torch_npu has them from 2.12 on"
    )
    predicate = torch.tensor(True).to("npu:0")
    value = torch.full((4,), 2.0).to("npu:0")
    graph = npu.NPUGraph()
    with (
        npu.graph(graph, stream=npu.Stream()),
        module.NPUGraphCaptureControlFlowOpDispatchMode(),
    ):
        result = torch.cond(predicate, torch.exp, torch.neg, (value,))
    for chosen, function in ((True, torch.exp), (False, torch.neg), (True, torch.exp)):
        predicate.fill_(chosen)
        graph.replay()
        npu.synchronize()
        assert torch.equal(result.cpu(), function(value.cpu()))


def test_condition_child_that_is_not_captured_fails_the_end(npu: Any, acl: Any) -> None:
    conditional = Conditional(npu, acl, default=1)
    assert conditional.add(IF, 1) == 0
    assert conditional.end() == CHILD_IS_CAPTURING
    npu.synchronize()


def test_condition_child_is_not_a_separate_graph(npu: Any, acl: Any) -> None:
    conditional = Conditional(npu, acl, default=1)
    assert conditional.add(IF, 1) == 0
    child = ctypes.c_void_p(conditional.children[0])
    conditional.capture_child(0, lambda _stream: None)
    assert conditional.end() == 0
    assert acl("aclmdlRIExecuteAsync", child, None) == FEATURE_NOT_SUPPORTED
    assert acl("aclmdlRIDestroy", child) == FEATURE_NOT_SUPPORTED
    assert acl("aclmdlRIDestroy", conditional.graph) == 0
    assert acl("aclmdlRIExecuteAsync", child, None) == PARAMETER_INVALID


@pytest.mark.parametrize(("kind", "count"), [(IF, 3), (WHILE, 2), (SWITCH, 0), (7, 1)])
def test_condition_with_a_wrong_number_of_children_is_refused(
    npu: Any, acl: Any, kind: int, count: int
) -> None:
    conditional = Conditional(npu, acl, default=1)
    assert conditional.add(kind, count) == PARAMETER_INVALID
    assert conditional.end() == 0


def test_condition_used_twice_is_refused(npu: Any, acl: Any) -> None:
    conditional = Conditional(npu, acl, default=1)
    assert conditional.add(IF, 1) == 0
    assert conditional.add(IF, 1) == PARAMETER_INVALID
    conditional.end()


def test_condition_on_a_stream_that_is_not_captured_is_refused(npu: Any, acl: Any) -> None:
    conditional = Conditional(npu, acl, default=1)
    captured, conditional.stream = conditional.stream, npu.Stream()
    assert conditional.add(IF, 1) == NOT_CAPTURED
    conditional.stream = captured
    assert conditional.end() == 0
