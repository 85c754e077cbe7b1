from __future__ import annotations

import pytest

from npu_graph_runtime.diagnosis import diagnose, find_error_code
from npu_graph_runtime.errors import (
    DeviceError,
    IllegalWhileCapturingError,
    KernelError,
    OutOfDeviceMemoryError,
    OutOfDeviceResourcesError,
    TaskGroupError,
    UnknownDeviceError,
)

TORCH_NPU = (
    "getDevice:torch_npu/csrc/core/npu/NPUFunctions.cpp:20 NPU function error: {call}, "
    "error code is {code}\n[ERROR] 2026-11-21-12:00:00 (PID:100000, Device:0, RankID:-1) ERR00100 "
    "PTA call acl api failed\n[Error]: the reason, runtime result = 507899"
)


@pytest.mark.parametrize(
    ("message", "error", "code"),
    [
        (TORCH_NPU.format(call="AclmdlRICaptureEnd", code=107033), TaskGroupError, 107033),
        (TORCH_NPU.format(call="sync", code=107027), IllegalWhileCapturingError, 107027),
        (TORCH_NPU.format(call="sync", code=507015), KernelError, 507015),
        (TORCH_NPU.format(call="new", code=507998), UnknownDeviceError, 507998),
        ("NPU out of memory. Tried to allocate 2.00 GiB", OutOfDeviceMemoryError, 207001),
        ("EL0009: stream resource(s) insufficient", OutOfDeviceResourcesError, 207008),
        ("alloc sq cq fail", OutOfDeviceResourcesError, 207008),
        (
            "Cannot run aclop operators during NPU graph capture. Current working aclop is Cast",
            IllegalWhileCapturingError,
            107030,
        ),
    ],
)
def test_diagnose_known_failure_gives_typed_error(
    message: str, error: type[DeviceError], code: int
) -> None:
    diagnosed = diagnose(RuntimeError(message), doing="capturing", subject="'decode'")
    assert type(diagnosed) is error
    assert diagnosed.code == code
    text = str(diagnosed)
    assert text.startswith("capturing 'decode': ")
    assert message.splitlines()[0] in text
    assert f"error code {code}" in text


@pytest.mark.parametrize(
    "message",
    [
        "mat1 and mat2 shapes cannot be multiplied (107027x4 and 8x8)",
        "tensor of 507015 elements",
        "address 0x107027",
        "error code is 12",
        "",
    ],
)
def test_find_error_code_in_other_message_finds_nothing(message: str) -> None:
    assert find_error_code(RuntimeError(message)) is None


@pytest.mark.parametrize(
    "message",
    ["runtime result = 207008.", "retCode=207008", "[Error]: 207008", "error code:207008"],
)
def test_find_error_code_in_message_of_cann_is_found(message: str) -> None:
    found = find_error_code(RuntimeError(message))
    assert found is not None
    assert found.code == 207008


def test_diagnose_unknown_failure_keeps_what_the_device_said() -> None:
    error = diagnose(RuntimeError("\n odd \nmore"), doing="replaying", subject="'decode'")
    assert type(error) is UnknownDeviceError
    assert error.code is None
    assert str(error).endswith("it said: odd; more")
    assert "it said: RuntimeError" in str(diagnose(RuntimeError(), doing="a", subject="b"))


def test_diagnose_names_the_operator_and_the_stream_that_the_device_named() -> None:
    message = TORCH_NPU.format(call="sync", code=507015) + (
        "\n        Rectify the fault based on the error information in the ascend log."
        "\nstream 3: aclnnAdd failed on the device\n" + "x" * 1000
    )

    text = str(diagnose(RuntimeError(message), doing="replaying", subject="'decode'"))

    assert "error code is 507015; stream 3: aclnnAdd failed on the device; xxx" in text
    assert "Rectify" not in text
    assert "PTA call" not in text
    assert text.endswith("x...")
    assert len(text) < 1500
