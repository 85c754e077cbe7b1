"""A program: classic memory errors and their fixes, under some fuzzed schedules.

Argument: number of seeds. For each scenario it prints the number of schedules by outcome, and one
of the errors, as JSON.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import re
import sys
from collections import Counter
from collections.abc import Callable
from typing import Any

import cann_sim

cann_sim.activate()

import torch  # noqa: E402
import torch_npu  # noqa: E402

NPU: Any = torch_npu.npu
SIZE = 64
ROUNDED = 512
Scenario = Callable[["Memory"], Any]


class Memory:
    """The C interface of memory, and the common start of all scenarios."""

    def __init__(self) -> None:
        self.runtime = ctypes.CDLL("libascendcl.so")
        self.side = NPU.Stream()
        self.ones = torch.ones(SIZE, device="npu:0")
        self.twos = torch.full((SIZE,), 2.0, device="npu:0")
        self.result = torch.zeros(SIZE, device="npu:0")
        NPU.synchronize()

    def allocate(self, size: int) -> int:
        address = ctypes.c_void_p()
        assert self.runtime.aclrtMalloc(ctypes.byref(address), ctypes.c_size_t(size), 0) == 0
        return address.value or 0

    def free(self, address: int) -> None:
        assert self.runtime.aclrtFree(ctypes.c_void_p(address)) == 0

    def fill(self, address: int, room: int, size: int) -> None:
        """Set memory in the order of the side stream."""
        code = self.runtime.aclrtMemsetAsync(
            ctypes.c_void_p(address),
            ctypes.c_size_t(room),
            0,
            ctypes.c_size_t(size),
            ctypes.c_void_p(self.side.npu_stream),
        )
        assert code == 0


def streams_without_an_event(memory: Memory) -> torch.Tensor:
    torch.add(memory.ones, memory.twos, out=memory.result)
    with NPU.stream(memory.side):
        return memory.result * 2


def streams_with_an_event(memory: Memory) -> torch.Tensor:
    torch.add(memory.ones, memory.twos, out=memory.result)
    memory.side.wait_stream(NPU.current_stream())
    with NPU.stream(memory.side):
        return memory.result * 2


def _used_elsewhere(memory: Memory, *, recorded: bool) -> torch.Tensor:
    """Return the result of a side stream on a tensor whose memory has been reused meanwhile."""
    given = torch.full((1 << 16,), 3.0, device="npu:0")
    address = given.data_ptr()
    memory.side.wait_stream(NPU.current_stream())
    with NPU.stream(memory.side):
        made = given * 2
    if recorded:
        given.record_stream(memory.side)
    del given
    other = torch.zeros(1 << 16, device="npu:0")
    assert recorded or other.data_ptr() == address
    NPU.current_stream().wait_stream(memory.side)
    return made[:SIZE]


def given_on_without_record_stream(memory: Memory) -> torch.Tensor:
    return _used_elsewhere(memory, recorded=False)


def given_on_with_record_stream(memory: Memory) -> torch.Tensor:
    return _used_elsewhere(memory, recorded=True)


def _two_graphs_of_a_pool(memory: Memory, *, waits: bool) -> torch.Tensor:
    """Return the values that a side stream read from the output of a graph that shares its pool."""
    first, second = NPU.NPUGraph(), NPU.NPUGraph()
    with NPU.graph(first):
        output = memory.ones * 6
    place = output.data_ptr()
    # The memory of the first graph's output is the second's while nobody holds the tensor.
    sizes = output.shape
    del output
    with NPU.graph(second, pool=first.pool()):
        other = memory.ones * 7
    assert other.data_ptr() == place
    first.replay()
    memory.side.wait_stream(NPU.current_stream())
    with NPU.stream(memory.side):
        made = other.view(sizes) + 0
    if waits:
        NPU.current_stream().wait_stream(memory.side)
    second.replay()
    NPU.current_stream().wait_stream(memory.side)
    return made


def pool_reused_while_its_output_is_read(memory: Memory) -> torch.Tensor:
    return _two_graphs_of_a_pool(memory, waits=False)


def pool_reused_behind_the_reader(memory: Memory) -> torch.Tensor:
    return _two_graphs_of_a_pool(memory, waits=True)


def input_of_a_graph_freed(memory: Memory) -> torch.Tensor:
    # More than 1 MB: of a segment of its own, which goes back to the device.
    given = torch.full((8 << 20,), 3.0, device="npu:0")
    graph = NPU.NPUGraph()
    with NPU.graph(graph):
        torch.mul(given[:SIZE], 2, out=memory.result)
    del given
    NPU.empty_cache()
    graph.replay()
    return memory.result


def freed_before_the_kernel_has_ended(memory: Memory) -> torch.Tensor:
    address = memory.allocate(ROUNDED)
    memory.fill(address, ROUNDED, ROUNDED)
    memory.free(address)
    return memory.twos * 3


def freed_behind_a_synchronisation(memory: Memory) -> torch.Tensor:
    address = memory.allocate(ROUNDED)
    memory.fill(address, ROUNDED, ROUNDED)
    memory.side.synchronize()
    memory.free(address)
    return memory.twos * 3


def outside_its_allocation(memory: Memory) -> torch.Tensor:
    address = memory.allocate(ROUNDED)
    memory.fill(address, 2 * ROUNDED, ROUNDED + 8)
    memory.side.synchronize()
    memory.free(address)
    return memory.twos * 3


def bytes_behind_overwritten(memory: Memory) -> torch.Tensor:
    address = memory.allocate(ROUNDED)
    ctypes.memset(address + ROUNDED, 0, 4)
    memory.free(address)
    return memory.twos * 3


def host_copy_that_does_not_wait(memory: Memory) -> torch.Tensor:
    with NPU.stream(memory.side):
        torch.add(memory.ones, memory.twos, out=memory.result)
        assert memory.side.npu_stream  # the launch has left torch_npu's queue
    host = (ctypes.c_float * SIZE)()
    size = ctypes.c_size_t(4 * SIZE)
    source = ctypes.c_void_p(memory.result.data_ptr())
    code = memory.runtime.aclrtMemcpy(host, size, source, size, ctypes.c_int(2))
    if code != 0:
        memory.runtime.aclGetRecentErrMsg.restype = ctypes.c_char_p
        raise RuntimeError(memory.runtime.aclGetRecentErrMsg().decode())
    return torch.tensor(list(host)) * 2


def read_before_it_is_written(memory: Memory) -> torch.Tensor:
    # Larger than any that was freed: new memory.
    return torch.empty(12 << 20, device="npu:0")[:SIZE] * 2 + 6


SCENARIOS: dict[str, Scenario] = {
    f.__name__: f
    for f in (
        streams_without_an_event,
        streams_with_an_event,
        given_on_without_record_stream,
        given_on_with_record_stream,
        pool_reused_while_its_output_is_read,
        pool_reused_behind_the_reader,
        input_of_a_graph_freed,
        freed_before_the_kernel_has_ended,
        freed_behind_a_synchronisation,
        outside_its_allocation,
        bytes_behind_overwritten,
        host_copy_that_does_not_wait,
        read_before_it_is_written,
    )
}


def outcome(memory: Memory, scenario: str, seed: int, errors: list[str]) -> str:
    memory.result.zero_()
    NPU.synchronize()
    cann_sim.set_schedule(f"fuzz:{seed}")
    try:
        made = SCENARIOS[scenario](memory)
        NPU.synchronize()
    except RuntimeError as error:
        errors.append(re.sub(r"\s+", " ", str(error)))
        return "named"
    finally:
        cann_sim.set_schedule("free")
        with contextlib.suppress(RuntimeError):
            NPU.synchronize()
        cann_sim.restart_devices()
    return "right" if made.cpu().tolist() == [6.0] * SIZE else "wrong"


def main() -> None:
    count = int(sys.argv[1])
    memory = Memory()
    ended = {}
    for scenario in SCENARIOS:
        errors: list[str] = []
        found = Counter(outcome(memory, scenario, seed, errors) for seed in range(count))
        ended[scenario] = [found, errors[0] if errors else ""]
    print(json.dumps(ended))  # noqa: T201 (the answer of the program)


if __name__ == "__main__":
    main()
