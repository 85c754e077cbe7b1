"""Limits of cores are stored and returned."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest

PARAMETER_INVALID = 107000
CUBE_CORES, VECTOR_CORES = 24, 48


def limits(npu: Any, stream: Any) -> tuple[int, int]:
    found = npu.get_stream_limit(stream)
    return found["cube_core_num"], found["vector_core_num"]


def test_resource_limit_of_a_stream_overrides_that_of_its_device(npu: Any, acl: Any) -> None:
    stream = npu.Stream()
    assert limits(npu, stream) == (CUBE_CORES, VECTOR_CORES)
    # torch_npu sets the limit of a device once in a process.
    assert acl("aclrtSetDeviceResLimit", 0, ctypes.c_int(0), ctypes.c_uint32(20)) == 0
    npu.set_stream_limit(stream, 5, 6)
    assert npu.get_device_limit(0)["cube_core_num"] == 20
    assert limits(npu, stream) == (5, 6)
    npu.reset_stream_limit(stream)
    assert limits(npu, stream) == (20, VECTOR_CORES)
    assert acl("aclrtResetDeviceResLimit", 0) == 0
    assert limits(npu, stream) == (CUBE_CORES, VECTOR_CORES)


def test_resource_limit_above_what_the_device_has_is_refused(npu: Any) -> None:
    with pytest.raises(RuntimeError, match=f"(?s){PARAMETER_INVALID}.*at most 24 cores, found 25"):
        npu.set_stream_limit(npu.Stream(), CUBE_CORES + 1, 1)
