"""Functions of the runtime, by their names in pyACL. Addresses and sizes are integers."""

from __future__ import annotations

import ctypes
from typing import NoReturn


def memcpy(dst: int, dest_max: int, src: int, count: int, kind: int) -> int:
    """Copy memory at once, as `aclrtMemcpy` does.

    Args:
        dst: Where to.
        dest_max: Bytes that may be written there.
        src: Where from.
        count: Bytes to copy.
        kind: An `aclrtMemcpyKind`: 0 within the host, 1 to the device, 2 from it, 3 within it.

    Returns:
        0, or the code of the runtime, for instance 107000 where `count` is above `dest_max`.
    """
    copy = ctypes.CDLL("libascendcl.so").aclrtMemcpy
    copy.argtypes = [
        ctypes.c_void_p,
        ctypes.c_size_t,
        ctypes.c_void_p,
        ctypes.c_size_t,
        ctypes.c_int,
    ]
    copy.restype = ctypes.c_int
    status: int = copy(dst, dest_max, src, count, kind)
    return status


def get_device_info(device: int, attribute: int) -> tuple[int, int]:
    """Return a property of a device, as `aclrtGetDeviceInfo` does.

    Args:
        device: Its number.
        attribute: An `aclrtDevAttr`.

    Returns:
        The value, and 0 or the code of the runtime: an attribute that is not simulated has the
        value 0 and a code other than 0.
    """
    read = ctypes.CDLL("libascendcl.so").aclrtGetDeviceInfo
    read.argtypes = [ctypes.c_uint32, ctypes.c_int, ctypes.POINTER(ctypes.c_int64)]
    read.restype = ctypes.c_int
    value = ctypes.c_int64(0)
    status: int = read(device, attribute, ctypes.byref(value))
    return value.value, status


def __getattr__(name: str) -> NoReturn:
    raise AttributeError(
        f"acl.rt.{name} of pyACL is not simulated; acl.rt has get_device_info and memcpy"
    )
