"""Faults of memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from check_teeth.fault import answer, nothing_done

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from check_teeth.fault import Fault

_COPY = "aclrtMemcpy"

MEMORY: Mapping[str, Sequence[Fault]] = {
    "memory.sizes": [answer("aclrtMalloc", 207001)],
    "memory.physical": [nothing_done("aclrtFreePhysical")],
    "memory.pinned": [answer("aclrtHostRegister", 507910), answer(_COPY, 107000)],
    "memory.waits-for-nothing": [answer("aclrtFree", 0, 507046)],
    "memory.refused": [answer(_COPY, 107000)],
    "memory.batch": [answer("aclrtMemcpyBatch", 107000)],
    "memory.pageable": [nothing_done("aclrtMemcpyAsync")],
}
