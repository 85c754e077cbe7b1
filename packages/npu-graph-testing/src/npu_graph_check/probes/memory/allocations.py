"""Memory of the device and pinned memory of the host: sizes, addresses and limits."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

from npu_graph_check.cann.runtime import HOST_TO_DEVICE, Cann, Handle
from npu_graph_check.cann.vector import Vector, Word

if TYPE_CHECKING:
    from collections.abc import Callable

    from npu_graph_check.probe import Look

_PAGE = 2 << 20
_ON_DEVICE_0 = (0, 0, 0, 0, 1)  # aclrtPhysicalMemProp


def sizes(look: Look) -> None:
    """Allocate a byte and a megabyte, and more than the device has."""
    cann = Cann()
    small, large, none = Handle(), Handle(), Handle()
    before = cann.free_memory()
    cann.ok("aclrtMalloc", ctypes.byref(small), 1, 0)
    look.expect("address of one byte, modulo 512", (small.value or 0) % 512, 0)
    cann.ok("aclrtMalloc", ctypes.byref(large), 1 << 20, 0)
    look.expect("address of a megabyte, modulo 512", (large.value or 0) % 512, 0)
    look.figure("what both take", before - cann.free_memory(), "bytes")
    beyond = cann.call("aclrtMalloc", ctypes.byref(none), cann.memory()[1] + 1, 0)
    look.expect("more than the device has", beyond, 207001)


def physical(look: Look) -> None:
    """Reserve addresses and allocate physical memory: the latter counts, in pages of 2 MiB."""
    cann = Cann()
    if not cann.has("aclrtMemGetAllocationGranularity"):
        look.not_tried("this CANN does not say the granularity of physical memory")
    properties = (ctypes.c_uint32 * 16)(*_ON_DEVICE_0)
    granularity, address, memory = ctypes.c_size_t(), Handle(), Handle()
    for option, name in ((0, "least"), (1, "recommended")):
        cann.ok("aclrtMemGetAllocationGranularity", properties, option, ctypes.byref(granularity))
        look.expect(f"the {name} granularity", granularity.value, _PAGE)
    before = cann.free_memory()
    cann.ok("aclrtReserveMemAddress", ctypes.byref(address), 64 * _PAGE, 0, None, 1)
    look.expect("bytes that addresses of 128 MiB take", before - cann.free_memory(), 0)
    cann.ok("aclrtMallocPhysical", ctypes.byref(memory), _PAGE, properties, 0)
    look.expect("bytes that a page takes", before - cann.free_memory(), _PAGE)
    cann.ok("aclrtMapMem", address, _PAGE, 0, memory, 0)
    host = (ctypes.c_float * 4)(1.0, 2.0, 3.0, 4.0)
    copied = cann.call("aclrtMemcpy", address, 16, ctypes.byref(host), 16, HOST_TO_DEVICE)
    look.expect("a copy to the mapped page", copied, 0)
    cann.ok("aclrtUnmapMem", address)
    cann.ok("aclrtFreePhysical", memory)
    cann.ok("aclrtReleaseMemAddress", address)
    look.expect("bytes that stay taken", before - cann.free_memory(), 0)


def pinned(look: Look) -> None:
    """Allocate pinned memory, and register a page inside it for the device."""
    cann = Cann()
    memory, mapped, second = Handle(), Handle(), Handle()
    cann.ok("aclrtMallocHost", ctypes.byref(memory), 3 * 4096)
    first = memory.value or 0
    look.expect("address modulo 4096", first % 4096, 0)
    given, source = (Handle(first + 4096), 4096, 0), (ctypes.c_float * 4)(1.0, 2.0, 3.0, 4.0)
    copy = (given[0], 16, ctypes.byref(source), 16, HOST_TO_DEVICE)
    before = cann.call("aclrtMemcpy", *copy)
    look.expect("a copy to it as to the device, not registered", before, 107000)
    registered = cann.call("aclrtHostRegister", *given, ctypes.byref(mapped))
    look.expect("registering a page inside it", registered, 0)
    look.expect("the copy afterwards", cann.call("aclrtMemcpy", *copy), 0)
    again = cann.call("aclrtHostRegister", *given, ctypes.byref(second))
    look.expect("registering it again", again, 507910)


def waits_for_nothing(look: Look) -> None:
    """Free, copy and set memory from the host while a stream waits."""
    cann = Cann()
    stream, gate, word = cann.create_stream(), cann.create_stream(), Word(cann)
    other, values = Handle(), Vector(cann, [1.0] * 4)
    cann.ok("aclrtMalloc", ctypes.byref(other), 4096, 0)
    word.wait(stream)
    host = ctypes.create_string_buffer(16)
    calls: dict[str, Callable[[], int]] = {
        "aclrtMemset": lambda: cann.call("aclrtMemset", other, 4096, 0, 4096),
        "aclrtMemcpy": lambda: cann.call(
            "aclrtMemcpy", values.address, 16, ctypes.byref(host), 16, HOST_TO_DEVICE
        ),
        "aclrtFree": lambda: cann.call("aclrtFree", other),
    }
    for name, call in calls.items():
        look.doing(f"calling {name} while a stream waits")
        look.expect(f"{name} while a stream waits", call(), 0)
    word.write(gate, 1)
    cann.synchronize(stream)
