"""Making and destroying communicators, by HCCL's own C interface."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
import torch.distributed as dist
import torch_npu

if TYPE_CHECKING:
    from collectives.rank_processes import RankProcesses

PARAMETER, POINTER, NOT_SUPPORTED, TIMEOUT = 1, 2, 5, 9
ROOT_INFO_BYTES = 4108
FLOAT32, SUM = 4, 0


class Hccl:
    """HCCL's functions, and their error messages."""

    def __init__(self) -> None:
        self.library = ctypes.CDLL("libhccl.so")
        self.runtime = ctypes.CDLL("libascendcl.so")
        self.runtime.aclGetRecentErrMsg.restype = ctypes.c_char_p
        self.library.HcclGetErrorString.restype = ctypes.c_char_p

    def __call__(self, function: str, *arguments: Any) -> int:
        code = getattr(self.library, function)(*arguments)
        assert isinstance(code, int)
        return code

    def message(self) -> str:
        text = self.runtime.aclGetRecentErrMsg()
        return "" if text is None else text.decode()


@pytest.fixture
def hccl(npu: Any) -> Hccl:
    return Hccl()


def root_info(hccl: Hccl) -> Any:
    root = ctypes.create_string_buffer(ROOT_INFO_BYTES)
    assert hccl("HcclGetRootInfo", root) == 0
    return root


def test_communicator_of_one_rank_reduces_and_is_destroyed_once(hccl: Hccl) -> None:
    comm, size, rank = ctypes.c_void_p(), ctypes.c_uint32(), ctypes.c_uint32(7)
    root = root_info(hccl)
    assert hccl("HcclCommInitRootInfo", 1, root, 0, ctypes.byref(comm)) == 0
    assert hccl("HcclGetRankSize", comm, ctypes.byref(size)) == 0
    assert hccl("HcclGetRankId", comm, ctypes.byref(rank)) == 0
    assert (size.value, rank.value) == (1, 0)
    tensor, result = torch.arange(4.0).to("npu"), torch.zeros(4).to("npu")
    stream = ctypes.c_void_p(torch_npu.npu.current_stream().npu_stream)
    addresses = [ctypes.c_void_p(each.data_ptr()) for each in (tensor, result)]
    arguments = (ctypes.c_uint64(4), FLOAT32, SUM, comm, stream)
    torch_npu.npu.synchronize()
    assert hccl("HcclAllReduce", *addresses, *arguments) == 0
    assert result.cpu().tolist() == [0.0, 1.0, 2.0, 3.0]
    assert hccl("HcclCommDestroy", comm) == 0
    assert hccl("HcclCommDestroy", comm) == PARAMETER
    assert "the communicator is unknown; was it destroyed?" in hccl.message()
    assert hccl("HcclAllReduce", *addresses, *arguments) == PARAMETER


@pytest.mark.parametrize(
    ("function", "arguments", "code", "message"),
    [
        ("HcclCommInitRootInfo", (2, None, 0), POINTER, "found a null pointer"),
        ("HcclCommInitRootInfo", (2, b"no root info", 0), PARAMETER, "that HcclGetRootInfo made"),
        ("HcclCommInitRootInfo", (2, b"", 2), PARAMETER, "found rank 2 of 2"),
        ("HcclCommInitRootInfo", (65, b"", 0), NOT_SUPPORTED, "more than 64 ranks"),
    ],
)
def test_communicator_that_makes_no_sense_is_refused(
    hccl: Hccl, function: str, arguments: tuple[Any, ...], code: int, message: str
) -> None:
    ranks, root, rank = arguments
    blob = None if root is None else ctypes.create_string_buffer(root, ROOT_INFO_BYTES)
    comm = ctypes.c_void_p()
    assert hccl(function, ranks, blob, rank, ctypes.byref(comm)) == code
    assert message in hccl.message()
    assert comm.value is None


def test_rank_that_never_connects_is_named_at_the_timeout(
    hccl: Hccl, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HCCL_CONNECT_TIMEOUT", "0.2")
    comm, root = ctypes.c_void_p(), root_info(hccl)
    assert hccl("HcclCommInitRootInfo", 3, root, 1, ctypes.byref(comm)) == TIMEOUT
    message = hccl.message()
    assert "rank 0, 2 did not come to HcclCommInitRootInfo" in message
    assert "HCCL_CONNECT_TIMEOUT" in message
    # The place stays taken, so that a late rank is not left with a partner that gave up.
    assert hccl("HcclCommInitRootInfo", 3, root, 1, ctypes.byref(comm)) == PARAMETER
    assert f"is taken by process {os.getpid()}" in hccl.message()


def test_time_limit_that_is_not_a_number_is_refused(
    hccl: Hccl, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HCCL_EXEC_TIMEOUT", "soon")
    comm, root = ctypes.c_void_p(), root_info(hccl)
    assert hccl("HcclCommInitRootInfo", 1, root, 0, ctypes.byref(comm)) == PARAMETER
    assert "HCCL_EXEC_TIMEOUT: expected seconds, found 'soon'" in hccl.message()


def test_error_codes_have_texts(hccl: Hccl) -> None:
    assert hccl.library.HcclGetErrorString(TIMEOUT) == b"timeout"
    assert hccl.library.HcclGetErrorString(NOT_SUPPORTED) == b"not support feature"


def reduce_between_devices(rank: int) -> list[list[float]]:
    """Make one process all ranks, a device each."""
    hccl = Hccl()
    devices, comms = (ctypes.c_int32 * 2)(0, 1), (ctypes.c_void_p * 2)()
    assert hccl("HcclCommInitAll", 2, devices, comms) == 0
    tensors = []
    for device in range(2):
        torch_npu.npu.set_device(device)
        tensor = torch.full((3,), device + 1.0).to("npu")
        torch_npu.npu.synchronize()
        address = ctypes.c_void_p(tensor.data_ptr())
        stream = ctypes.c_void_p(torch_npu.npu.current_stream().npu_stream)
        count, own = ctypes.c_uint64(3), ctypes.c_void_p(comms[device])
        assert hccl("HcclAllReduce", address, address, count, FLOAT32, SUM, own, stream) == 0
        tensors.append(tensor)
    values = [tensor.cpu().tolist() for tensor in tensors]
    for comm in comms:
        assert hccl("HcclCommDestroy", ctypes.c_void_p(comm)) == 0
    torch_npu.npu.set_device(rank)
    return values


def test_one_process_is_all_ranks_of_its_devices(two_ranks: RankProcesses) -> None:
    results = two_ranks.run_without_group(reduce_between_devices)
    assert results == [[[3.0] * 3] * 2] * 2


def mapped_communicators(rank: int) -> tuple[int, int]:
    """Return how many communicators' memory is mapped within a group, and after more of them."""

    def count() -> int:
        return Path("/proc/self/maps").read_text().count("cann-sim-communicator")

    dist.all_reduce(torch.ones(1).to("npu"))
    torch_npu.npu.synchronize()
    before = count()
    for _ in range(3):
        group: Any = dist.new_group([0, 1])
        dist.all_reduce(torch.ones(1).to("npu"), group=group)
        torch_npu.npu.synchronize()
        dist.barrier()
        dist.destroy_process_group(group)
    dist.barrier()
    return before, count()


def test_destroyed_communicators_leave_no_memory_behind(two_ranks: RankProcesses) -> None:
    for before, after in two_ranks.run(mapped_communicators):
        assert before == 1
        assert after == before
    assert not list(Path("/dev/shm").glob("*cann-sim*"))
