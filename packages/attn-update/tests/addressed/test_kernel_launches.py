"""Launches of the kernel updater, on C functions that record their arguments."""

from __future__ import annotations

import ctypes
import gc
from collections import Counter
from typing import Any

import pytest
import torch

from addressed.writing_device import STREAM, WritingDevice
from attn_update.issuing.kernels.kernel_launches import KernelLaunches
from attn_update.issuing.kernels.kernel_signature import (
    KernelParameter,
    KernelSignature,
    ParameterType,
)
from attn_update.issuing.updater import LaunchFailure

PROBE = KernelSignature(
    kernel="aclnnProbe",
    operator="test::probe",
    parameters=(
        KernelParameter(type=ParameterType.INTEGERS, argument="lengths"),
        KernelParameter(type=ParameterType.INTEGERS, argument="fixed"),
        KernelParameter(type=ParameterType.INTEGERS, argument=""),
        KernelParameter(type=ParameterType.INTEGER, argument="heads"),
        KernelParameter(type=ParameterType.FLOAT, argument="scale"),
        KernelParameter(type=ParameterType.BOOLEAN, argument="causal"),
        KernelParameter(type=ParameterType.TEXT, argument="layout"),
        KernelParameter(type=ParameterType.INTEGER, argument=""),
        KernelParameter(type=ParameterType.TENSOR, argument="mask"),
    ),
)
WORKSPACE = torch.zeros(100, dtype=torch.uint8)


class WritingKernels:
    """A kernel library of one kernel; its objects are numbers, and arrays are read."""

    def __init__(self, device: WritingDevice) -> None:
        self.device = device
        self.needed_bytes = 64
        self.status = {"prepare": 0, "launch": 0}
        self.calls: list[tuple[Any, ...]] = []
        self.arrays: dict[int, list[int]] = {}
        self.counts: Counter[str] = Counter()
        self._message = ctypes.create_string_buffer(b"heads are odd")
        pointer, long, integer = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int
        types: list[Any] = [pointer, pointer, pointer, long]
        types += [ctypes.c_double, ctypes.c_bool, ctypes.c_char_p]
        types += [long, pointer, ctypes.POINTER(ctypes.c_uint64), ctypes.POINTER(pointer)]
        prepare = ctypes.CFUNCTYPE(integer, *types)
        launch = ctypes.CFUNCTYPE(integer, pointer, ctypes.c_uint64, pointer, pointer)
        make_integers = ctypes.CFUNCTYPE(pointer, ctypes.POINTER(long), ctypes.c_uint64)
        destroy = ctypes.CFUNCTYPE(integer, pointer)
        self._kept: dict[str, Any] = {
            "aclnnProbeGetWorkspaceSize": prepare(self._prepare),
            "aclnnProbe": launch(self._launch),
            "aclCreateIntArray": make_integers(self._make_integers),
            "aclDestroyIntArray": destroy(lambda given: self._count("destroyed", given)),
            "aclDestroyAclOpExecutor": destroy(lambda given: self._count("executors", given)),
            "aclGetRecentErrMsg": ctypes.CFUNCTYPE(ctypes.c_void_p)(self._say),
            "describe_tensor": ctypes.CFUNCTYPE(pointer, pointer)(lambda _: None),
            "aclDestroyTensor": destroy(lambda given: self._count("tensors", given)),
            "aclCreateTensorList": ctypes.CFUNCTYPE(pointer, pointer, long)(lambda *_: None),
            "aclDestroyTensorList": destroy(lambda given: self._count("lists", given)),
        }

    def addresses(self) -> dict[str, int]:
        return {
            name: ctypes.cast(call, ctypes.c_void_p).value or 0 for name, call in self._kept.items()
        }

    def _prepare(self, lengths: int, fixed: int, absent: int | None, *rest: Any) -> int:
        *values, needed, executor = rest
        read = [self.arrays[lengths], self.arrays[fixed], absent]
        self.calls.append(("prepare", *read, *values))
        needed[0] = self.needed_bytes
        executor[0] = 555
        return self.status["prepare"]

    def _launch(self, workspace: int, num_bytes: int, executor: int, stream: int) -> int:
        assert (workspace, num_bytes) == (WORKSPACE.data_ptr(), WORKSPACE.nbytes)
        assert (executor, stream) == (555, STREAM)
        self.calls.append(("launch",))
        return self.status["launch"]

    def _make_integers(self, values: Any, count: int) -> int:
        address = 1000 + len(self.arrays)
        self.arrays[address] = values[:count]
        self.counts["made"] += 1
        return address

    def _say(self) -> int:
        return ctypes.addressof(self._message)

    def _count(self, what: str, given: int) -> int:
        assert given
        self.counts[what] += 1
        return 0


@pytest.fixture
def kernels() -> WritingKernels:
    return WritingKernels(WritingDevice())


def make_launches(kernels: WritingKernels, **given: object) -> KernelLaunches:
    """Return three launches, the first two in one slot."""
    launches = KernelLaunches(kernels.device.native_calls(), kernels.addresses())
    values = {"lengths": [0], "fixed": [8, 9], "heads": 2**40, "scale": 0.25, "causal": True}
    values |= {"layout": "TND", "mask": None, **given}
    for index in range(3):
        numbers = {"group": 10 + index, "event": 20 + index, "slot": index // 2}
        launches.add(PROBE, values | {"lengths": [index]}, workspace=WORKSPACE, **numbers)
    return launches


def prepared(lengths: list[int], heads: int = 2**40) -> tuple[Any, ...]:
    return ("prepare", lengths, [8, 9], None, heads, 0.25, True, b"TND", 0, None)


def test_kernel_launches_pass_every_value_and_keep_what_did_not_change(
    kernels: WritingKernels,
) -> None:
    launches = make_launches(kernels)
    around = [
        step
        for index in range(3)
        for step in (("begin", 10 + index), ("end", 0), ("record", 20 + index))
    ]

    assert launches.run([{}, {}], STREAM) is None
    assert kernels.calls[::2] == [prepared([0]), prepared([1]), prepared([2])]
    assert kernels.calls[1::2] == [("launch",)] * 3
    assert kernels.device.seen == around

    kernels.calls.clear()
    assert launches.run([{"lengths": [5, 6]}, {"lengths": (7,), "heads": 3}], STREAM) is None
    assert kernels.calls[::2] == [prepared([5, 6]), prepared([5, 6]), prepared([7], heads=3)]

    kernels.calls.clear()
    kernels.device.seen.clear()
    assert launches.run([{"lengths": [6, 6]}, None], STREAM) is None
    assert kernels.calls[::2] == [prepared([6, 6]), prepared([6, 6])]
    assert kernels.device.seen == [*around[:6], ("record", 22)]

    kernels.calls.clear()
    assert launches.run([None, {}], STREAM) is None
    assert kernels.calls[::2] == [prepared([7], heads=3)]


def test_kernel_launches_destroy_what_they_made(kernels: WritingKernels) -> None:
    launches = make_launches(kernels)
    for step in range(50):
        assert launches.run([{"lengths": [step]}, None], STREAM) is None
    # One list of each launch, one that they share, and one for each step; all but the latest of
    # the steps are gone.
    assert (kernels.counts["made"], kernels.counts["destroyed"]) == (4 + 50, 49)
    del launches
    gc.collect()
    assert kernels.counts["destroyed"] == kernels.counts["made"]
    assert kernels.counts["executors"] == 0


@pytest.mark.parametrize(
    ("failing", "position", "message"),
    [
        (("begin", 11), 1, "aclmdlRICaptureTaskUpdateBegin returned 107000"),
        (("record", 22), 2, "recording its external event returned 107000"),
        (("end", 0), 0, "aclmdlRICaptureTaskUpdateEnd returned 107000"),
    ],
)
def test_kernel_launches_stop_where_a_call_of_the_device_fails(
    kernels: WritingKernels, failing: tuple[str, int], position: int, message: str
) -> None:
    launches = make_launches(kernels)
    kernels.device.failing = failing
    failure = launches.run([{}, {}], STREAM)
    assert failure == LaunchFailure(position=position, open=False, message=message)
    assert kernels.device.seen[-1] == failing


@pytest.mark.parametrize(
    ("phase", "message"),
    [
        ("prepare", "aclnnProbeGetWorkspaceSize returned 161002: heads are odd"),
        ("launch", "aclnnProbe returned 161002: heads are odd"),
    ],
)
def test_kernel_launches_stop_at_a_refused_kernel_with_its_update_open(
    kernels: WritingKernels, phase: str, message: str
) -> None:
    launches = make_launches(kernels)
    kernels.status[phase] = 161002
    failure = launches.run([{}, {}], STREAM)
    assert failure == LaunchFailure(position=0, open=True, message=message)
    assert kernels.device.seen == [("begin", 10)]


def test_kernel_launches_with_too_small_a_workspace_destroy_the_executor(
    kernels: WritingKernels,
) -> None:
    launches = make_launches(kernels)
    kernels.needed_bytes = 101
    failure = launches.run([{}, {}], STREAM)
    message = "aclnnProbe needs a workspace of 101 bytes, found 100"
    assert failure == LaunchFailure(position=0, open=True, message=message)
    assert kernels.counts["executors"] == 1
    assert ("launch",) not in kernels.calls


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("heads", "two", r"argument 'heads' takes integer, found <class 'str'>"),
        ("heads", 2**64 + 16, r"argument 'heads' takes integer, found <class 'int'>"),
        ("scale", "half", r"argument 'scale' takes float, found <class 'str'>"),
        ("scale", 10**400, r"argument 'scale' takes float, found <class 'int'>"),
        ("causal", 1, r"argument 'causal' takes boolean, found <class 'int'>"),
        ("layout", None, r"argument 'layout' takes text, found <class 'NoneType'>"),
        ("lengths", 5, r"argument 'lengths' takes integers, found <class 'int'>"),
        ("lengths", [2**63], r"argument 'lengths' takes integers, found <class 'list'>"),
        ("mask", [1], r"argument 'mask' takes tensor, found <class 'list'>"),
        ("mask", torch.ones(1), r"argument 'mask' takes tensor, found <class 'torch.Tensor'>"),
        ("length", [1], "no argument 'length' of test::probe reaches aclnnProbe"),
    ],
)
def test_a_value_that_does_not_fit_is_refused_before_anything_is_begun(
    kernels: WritingKernels, name: str, value: object, message: str
) -> None:
    launches = make_launches(kernels)
    for _ in range(2):
        with pytest.raises(ValueError, match=message):
            launches.run([{name: value}, {}], STREAM)
    assert kernels.device.seen == []
    assert launches.run([{}, {}], STREAM) is None
    assert kernels.calls[::2] == [prepared([0]), prepared([1]), prepared([2])]


@pytest.mark.parametrize(("name", "value"), [("heads", 2**64 + 16), ("mask", [1]), ("causal", 1)])
def test_a_captured_value_that_does_not_fit_is_refused(
    kernels: WritingKernels, name: str, value: object
) -> None:
    with pytest.raises(ValueError, match=f"argument '{name}' takes"):
        make_launches(kernels, **{name: value})


def test_kernel_launches_without_one_of_the_functions_are_refused(kernels: WritingKernels) -> None:
    calls = kernels.device.native_calls()
    del calls["aclrtRecordEvent"]
    with pytest.raises(ValueError, match="the device did not tell aclrtRecordEvent"):
        KernelLaunches(calls, kernels.addresses())
    addresses = kernels.addresses()
    del addresses["aclDestroyIntArray"]
    with pytest.raises(ValueError, match="the device did not tell aclDestroyIntArray"):
        KernelLaunches(kernels.device.native_calls(), addresses)
