"""Device memory, pinned memory, copies."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

OUT_OF_MEMORY = 207001
PARAMETER_INVALID = 107000
ALREADY_REGISTERED = 507910
NOT_REGISTERED = 507911


def allocate(acl: Any, size: int) -> tuple[int, int]:
    """Return (code, address) of an allocation."""
    address = ctypes.c_void_p()
    code = acl("aclrtMalloc", ctypes.byref(address), ctypes.c_size_t(size), ctypes.c_int(0))
    return code, address.value or 0


def test_memory_copied_to_the_device_and_back_is_equal(npu: Any) -> None:
    values = torch.arange(1000, dtype=torch.float32)
    assert torch.equal(values.to("npu:0").cpu(), values)


@settings(max_examples=25)
@given(st.binary(min_size=1, max_size=4096))
def test_memory_copied_with_any_bytes_is_equal(content: bytes) -> None:
    values = torch.frombuffer(bytearray(content), dtype=torch.uint8)
    assert torch.equal(values.to("npu:0").cpu(), values)


def test_memory_allocated_is_accounted_and_freed(npu: Any, acl: Any) -> None:
    npu.empty_cache()
    before = npu.mem_get_info()[0]
    code, address = allocate(acl, 1 << 20)
    assert code == 0
    assert address % 512 == 0
    assert npu.mem_get_info()[0] == before - (1 << 20)
    assert acl("aclrtFree", address) == 0
    assert npu.mem_get_info()[0] == before


def test_memory_beyond_the_device_is_out_of_memory(npu: Any, acl: Any) -> None:
    total = npu.mem_get_info()[1]
    code, _ = allocate(acl, total + 1)
    assert code == OUT_OF_MEMORY
    assert "CANN_SIM_MEMORY_GB" in acl.message()


def test_memory_beyond_the_device_raises_out_of_memory_in_torch(npu: Any) -> None:
    total = npu.mem_get_info()[1]
    with pytest.raises(torch.OutOfMemoryError):
        torch.empty(total + 1, dtype=torch.uint8, device="npu:0")
    assert torch.equal(torch.ones(2).to("npu:0").cpu(), torch.ones(2))


def test_memory_freed_twice_is_refused(acl: Any) -> None:
    code, address = allocate(acl, 512)
    assert code == 0
    assert acl("aclrtFree", address) == 0
    assert acl("aclrtFree", address) == PARAMETER_INVALID


def test_copy_larger_than_its_destination_is_refused(acl: Any) -> None:
    _, address = allocate(acl, 512)
    source = ctypes.create_string_buffer(1024)
    to_device = ctypes.c_int(1)
    size, room = ctypes.c_size_t(1024), ctypes.c_size_t(512)
    assert acl("aclrtMemcpy", address, room, source, size, to_device) == PARAMETER_INVALID
    assert "1024 bytes do not fit into a destination of 512" in acl.message()
    assert acl("aclrtFree", address) == 0


def test_copy_of_a_kind_that_does_not_fit_the_addresses_is_refused(acl: Any) -> None:
    _, address = allocate(acl, 512)
    source = ctypes.create_string_buffer(512)
    size, device_to_device = ctypes.c_size_t(512), ctypes.c_int(3)
    assert acl("aclrtMemcpy", address, size, source, size, device_to_device) == PARAMETER_INVALID
    assert "the source is device memory" in acl.message()
    assert acl("aclrtFree", address) == 0


def test_pinned_memory_is_known_to_torch(npu: Any) -> None:
    pinned = torch.ones(16).pin_memory()
    assert pinned.is_pinned()
    assert torch.equal(pinned.to("npu:0", non_blocking=True).cpu(), torch.ones(16))


def test_expandable_segments_hold_tensors_and_give_memory_back(run_forked: Any) -> None:
    done = run_forked(
        """
import cann_sim
cann_sim.activate()
import torch, torch_npu
torch.npu.set_device(0)
free = torch.npu.mem_get_info()[0]
tensors = [torch.full((1 << 20,), i, dtype=torch.int32).to("npu:0") for i in range(8)]
assert all(int(t.cpu()[-1]) == i for i, t in enumerate(tensors))
assert torch.npu.mem_get_info()[0] <= free - 8 * 4 * (1 << 20)
del tensors
torch.npu.empty_cache()
assert torch.npu.mem_get_info()[0] >= free - (64 << 20)
print("held")
""",
        environment={"PYTORCH_NPU_ALLOC_CONF": "expandable_segments:True"},
    )
    assert done.output.endswith("held\n"), done.errors


def test_memory_size_is_what_the_environment_says(run_forked: Any) -> None:
    done = run_forked(
        "import cann_sim; cann_sim.activate()\n"
        "import torch, torch_npu; torch.npu.set_device(0); print(torch.npu.mem_get_info()[1])",
        environment={"CANN_SIM_MEMORY_GB": "0.5"},
    )
    assert done.output.endswith(f"{1 << 29}\n"), done.errors


def test_freed_memory_is_returned_to_the_operating_system(run_forked: Any) -> None:
    done = run_forked(
        """
import cann_sim
cann_sim.activate()
import ctypes, os
import torch, torch_npu

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") >> 20

torch.npu.config.allow_internal_format = False
value = torch.ones(1).npu()
before = resident()
large = torch.full((64 << 20,), 1.0, device="npu:0")
torch.npu.synchronize()
during = resident()
del large
torch.npu.empty_cache()
print(during - before > 200, resident() - before < 50)
""",
    )
    assert "True True" in done.output, (done.output, done.errors)


def test_physical_memory_takes_no_files(npu: Any, acl: Any) -> None:
    """A process may have few of them open, and a device has many pieces of 2 MiB."""
    size = ctypes.c_size_t(2 << 20)
    properties = (ctypes.c_uint32 * 16)(0, 0, 0, 0, 1)  # on device 0
    handles = [ctypes.c_void_p() for _ in range(300)]
    files = Path("/proc/self/fd")
    before = len(list(files.iterdir()))
    for handle in handles:
        code = acl("aclrtMallocPhysical", ctypes.byref(handle), size, properties, 0)
        assert code == 0, acl.message()
    assert len(list(files.iterdir())) <= before + 1
    for handle in handles:
        assert acl("aclrtFreePhysical", handle) == 0


def test_physical_memory_has_pages_of_the_reported_size(npu: Any, acl: Any) -> None:
    granularity = ctypes.c_size_t()
    properties = (ctypes.c_uint32 * 16)(0, 0, 0, 0, 1)  # on device 0
    for option in (0, 1):  # the least, the recommended
        code = acl(
            "aclrtMemGetAllocationGranularity",
            properties,
            ctypes.c_int(option),
            ctypes.byref(granularity),
        )
        assert (code, granularity.value) == (0, 2 << 20)
    code = acl("aclrtMemGetAllocationGranularity", None, ctypes.c_int(0), ctypes.byref(granularity))
    assert code == PARAMETER_INVALID


def test_context_of_its_own_is_refused_by_name(npu: Any, acl: Any) -> None:
    context = ctypes.c_void_p()
    assert acl("aclrtCreateContext", ctypes.byref(context), ctypes.c_int(0)) != 0
    assert "aclrtCreateContext is not simulated" in acl.message()


def batch(items: list[tuple[torch.Tensor, torch.Tensor]]) -> tuple[Any, ...]:
    """Return the arguments of a batch of copies of (destination, source)."""
    numbers, pointers = ctypes.c_size_t * len(items), ctypes.c_void_p * len(items)
    return (
        pointers(*(to.data_ptr() for to, _ in items)),
        numbers(*(to.nbytes for to, _ in items)),
        pointers(*(source.data_ptr() for _, source in items)),
        numbers(*(source.nbytes for _, source in items)),
        ctypes.c_size_t(len(items)),
        None,
        None,
        ctypes.c_size_t(0),
    )


@pytest.mark.parametrize("asynchronous", [False, True])
def test_batch_of_copies_copies_all_and_names_the_one_that_is_refused(
    npu: Any, acl: Any, *, asynchronous: bool
) -> None:
    host = [torch.arange(4.0).pin_memory(), torch.arange(4.0, 8.0).pin_memory()]
    device = [torch.zeros(4).to("npu:0"), torch.zeros(4).to("npu:0")]
    npu.synchronize()
    failed = ctypes.c_size_t()
    name = "aclrtMemcpyBatchAsync" if asynchronous else "aclrtMemcpyBatch"
    last = (ctypes.byref(failed), None) if asynchronous else (ctypes.byref(failed),)
    assert acl(name, *batch(list(zip(device, host, strict=True))), *last) == 0
    npu.synchronize()
    assert [value.cpu().tolist() for value in device] == [value.tolist() for value in host]
    refused = batch([(device[0], host[1]), (device[1][:2], host[0])])
    assert acl(name, *refused, *last) == PARAMETER_INVALID
    assert failed.value == 1


def test_memory_usage_has_the_peak(npu: Any, acl: Any) -> None:
    class Usage(ctypes.Structure):
        _fields_ = (
            ("name", ctypes.c_char * 32),
            ("current", ctypes.c_uint64),
            ("peak", ctypes.c_uint64),
            ("reserved", ctypes.c_size_t * 8),
        )

    usage, count = Usage(), ctypes.c_size_t()
    code, address = allocate(acl, 1 << 20)
    assert (code, acl("aclrtFree", address)) == (0, 0)
    code = acl("aclrtGetMemUsageInfo", 0, ctypes.byref(usage), 1, ctypes.byref(count))
    assert (code, count.value) == (0, 1)
    assert usage.peak >= usage.current + (1 << 20)


def test_pinned_memory_that_is_registered_is_the_devices_too(npu: Any, acl: Any) -> None:
    pinned, mapped = ctypes.c_void_p(), ctypes.c_void_p()
    assert acl("aclrtMallocHost", ctypes.byref(pinned), ctypes.c_size_t(8192)) == 0
    assert (pinned.value or 0) % 4096 == 0
    inside = (pinned.value or 0) + 512
    register = ("aclrtHostRegister", inside, ctypes.c_uint64(4096), ctypes.c_int(0))
    size, to_device = ctypes.c_size_t(16), ctypes.c_int(1)
    source = torch.arange(4.0)
    copy = ("aclrtMemcpy", inside, size, source.data_ptr(), size, to_device)
    assert acl(*copy) == PARAMETER_INVALID
    assert acl(*register, ctypes.byref(mapped)) == 0
    assert acl(*copy) == 0
    assert ctypes.string_at(mapped, 16) == source.numpy().tobytes()
    assert acl(*register, ctypes.byref(mapped)) == ALREADY_REGISTERED
    assert acl("aclrtHostUnregister", inside) == 0
    assert acl("aclrtHostUnregister", inside) == NOT_REGISTERED
    assert acl("aclrtFreeHost", pinned) == 0
