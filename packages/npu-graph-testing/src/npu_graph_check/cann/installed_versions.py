"""Versions that CANN and the device report."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from npu_graph_check.cann.runtime import Cann

_CANN, _DRIVER = 0, 7  # aclCANNPackageName
_ROOM = 1024  # for an aclCANNPackageVersion, which begins with the version as text


def installed_versions(cann: Cann) -> dict[str, str]:
    """Return the SoC, the versions of CANN and its driver, and whether they are simulated."""
    count = ctypes.c_uint32()
    cann.ok("aclrtGetDeviceCount", ctypes.byref(count))
    return {
        "soc": soc_name(cann),
        "devices": str(count.value),
        "cann": _version(cann, _CANN),
        "driver": _version(cann, _DRIVER),
        "simulated": "yes" if is_simulated(cann) else "no",
    }


def soc_name(cann: Cann) -> str:
    """Return the name of the system on a chip, such as ``Ascend910B1``."""
    function = cann.library.aclrtGetSocName
    function.restype = ctypes.c_char_p
    return (function() or b"not known").decode(errors="replace")


def is_simulated(cann: Cann) -> bool:
    """Return whether the runtime is that of cann-sim."""
    return cann.has("cann_sim_counters")


def _version(cann: Cann, package: int) -> str:
    if not cann.has("aclsysGetCANNVersion"):
        return "not known"
    room = ctypes.create_string_buffer(_ROOM)
    status = cann.call("aclsysGetCANNVersion", package, room)
    return room.value.decode(errors="replace") if status == 0 else f"not known (status {status})"
