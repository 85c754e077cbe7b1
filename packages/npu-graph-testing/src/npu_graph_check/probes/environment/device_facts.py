"""Properties that the device reports."""

from __future__ import annotations

import ctypes
from concurrent.futures import ThreadPoolExecutor
from types import MappingProxyType
from typing import TYPE_CHECKING

from npu_graph_check.cann.installed_versions import installed_versions, soc_name
from npu_graph_check.cann.runtime import Cann

if TYPE_CHECKING:
    from collections.abc import Mapping

    from npu_graph_check.probe import Look

_CUBE, _VECTOR, _CACHE = 102, 201, 302  # aclrtDevAttr
_MIB = 1 << 20
_KNOWN: Mapping[str, tuple[int, int, int]] = MappingProxyType(
    {
        "Ascend910B1": (24, 48, 192 * _MIB),
        "Ascend910B3": (20, 40, 192 * _MIB),
        "Ascend910_9391": (24, 48, 192 * _MIB),
        "Ascend310P3": (8, 7, 16 * _MIB),
    }
)


def versions(look: Look) -> None:
    """Ask for the SoC and the versions."""
    cann = Cann()
    known = installed_versions(cann)
    look.expect("whether it is an Ascend 910", soc_name(cann)[:9], "Ascend910")
    for name in ("cann", "driver"):
        look.expect(f"whether the version of {name} is known", known[name][:1].isdigit(), True)


def cores(look: Look) -> None:
    """Ask for the cores and the level 2 cache, and compare them where the SoC is known."""
    cann = Cann()
    seen = []
    for attribute in (_CUBE, _VECTOR, _CACHE):
        value = ctypes.c_int64()
        cann.ok("aclrtGetDeviceInfo", 0, attribute, ctypes.byref(value))
        seen.append(value.value)
    for name, number in zip(("cube cores", "vector cores", "level 2 cache"), seen, strict=True):
        look.figure(name, number, "bytes" if "cache" in name else "cores")
    name = soc_name(cann)
    if name not in _KNOWN:
        look.not_tried(f"nothing is known of the cores of {name}; it says {seen}")
    look.expect(f"cube cores, vector cores and cache of {name}", seen, list(_KNOWN[name]))


def core_limits(look: Look) -> None:
    """Limit the cube cores of this process, by one less than there are and by one more."""
    cann = Cann()
    if not cann.has("aclrtSetDeviceResLimit"):
        look.not_tried("this CANN has no limits of cores")
    limit = ctypes.c_uint32()

    def limited() -> int:
        cann.ok("aclrtGetDeviceResLimit", 0, 0, ctypes.byref(limit))
        return limit.value

    whole = limited()
    look.expect("a limit of one core less", cann.call("aclrtSetDeviceResLimit", 0, 0, whole - 1), 0)
    look.expect("the limit afterwards, less what there are", limited() - whole, -1)
    cann.ok("aclrtResetDeviceResLimit", 0)
    look.expect("the limit when it is given back", limited() - whole, 0)
    beyond = cann.call("aclrtSetDeviceResLimit", 0, 0, whole + 1)
    look.expect("a limit of one core more than there are", beyond, 107000)


def threads(look: Look) -> None:
    """Allocate on a thread that has set no device, and set a device that does not exist."""
    cann = Cann()
    given = (ctypes.byref(ctypes.c_void_p()), 512, 0)
    with ThreadPoolExecutor(1) as thread:
        allocated = thread.submit(cann.call, "aclrtMalloc", *given).result()
    look.expect("without aclrtSetDevice on the thread", allocated, 107002)
    count = ctypes.c_uint32()
    cann.ok("aclrtGetDeviceCount", ctypes.byref(count))
    missing = cann.call("aclrtSetDevice", count.value)
    look.expect("a device that does not exist", missing, 107001)
