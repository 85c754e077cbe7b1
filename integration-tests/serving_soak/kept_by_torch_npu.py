"""Memory that torch_npu itself never frees, measured with only torch_npu and counted under load.

It does not free the word of an external event, nor the pool of pinned memory of a capture whose end
the device rejected: `NPUGraph.reset` only releases captures that ended well, and there is no other
way to free it (read in 2.13). See `docs/upstream/torch-npu.md`.
"""

from __future__ import annotations

import ctypes
import gc
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import pytest
import torch

import cann_sim
from npu_graph_runtime import NpuDevice

if TYPE_CHECKING:
    from collections.abc import Callable

    from npu_graph_runtime.device import ExternalEvent

_EVENTS = 400
_CAPTURES = 20


class CountedDevice(NpuDevice):
    """A device that counts the external events it has made.

    Attributes:
        external_events: how many.
    """

    external_events = 0

    def create_external_event(self) -> ExternalEvent:
        """Return a new external event."""
        self.external_events += 1
        return super().create_external_event()


@dataclass(frozen=True)
class KeptBytes:
    """Heap of the process that torch_npu keeps.

    Attributes:
        external_event: of an event that a graph waited for.
        refused_capture: of a capture that failed at its end.
    """

    external_event: float
    refused_capture: float


class _MallocInfo(ctypes.Structure):
    """The result of `mallinfo2` of glibc; see mallinfo(3)."""

    _fields_: ClassVar = [
        (name, ctypes.c_size_t)
        for name in (
            *("arena", "ordblks", "smblks", "hblks", "hblkhd"),
            *("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"),
        )
    ]


def heap_bytes() -> int:
    """Return the bytes that `malloc` has allocated in all threads and that are not freed."""
    library = ctypes.CDLL(None)
    library.mallinfo2.restype = _MallocInfo
    found = library.mallinfo2()
    return int(found.uordblks + found.hblkhd)


def measure_kept() -> KeptBytes:
    """Return the memory that torch_npu keeps, measured by loops that use only torch_npu."""
    # torch_npu puts it there, which torch's types do not know.
    npu: Any = vars(torch)["npu"]
    stream = npu.Stream()
    return KeptBytes(
        external_event=_growth(npu, lambda: _wait_in_graph(npu, stream), _EVENTS),
        refused_capture=_growth(npu, lambda: _refuse(npu, stream), _CAPTURES),
    )


def _growth(npu: Any, turn: Callable[[], None], turns: int) -> float:
    found = []
    for _ in range(2):
        for _ in range(turns):
            turn()
        npu.synchronize()
        gc.collect()
        found.append(heap_bytes())
    before, after = found
    return (after - before) / turns


def _wait_in_graph(npu: Any, stream: Any) -> None:
    event = npu.ExternalEvent()
    with npu.graph(npu.NPUGraph(), stream=stream):
        event.wait(stream)
        event.reset(stream)


def _refuse(npu: Any, stream: Any) -> None:
    faults = cann_sim.injected_faults("capture_end:1")
    with (
        pytest.raises(RuntimeError, match="capture_end"),
        faults,
        npu.graph(npu.NPUGraph(), stream=stream),
    ):
        torch.ones(4, device="npu")
