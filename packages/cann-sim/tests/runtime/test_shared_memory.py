"""Device memory and events that several processes share."""

from __future__ import annotations

import ctypes
import os
import sys
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pathlib import Path

PARAMETER_INVALID = 107000
FEATURE_NOT_SUPPORTED = 207000
KEY_LENGTH = 65
EVENT_IPC = 0x40

TENSOR = """
import torch, torch_npu
import torch.multiprocessing as multiprocessing

def child(queue, answers):
    tensor = queue.get()
    answers.put((str(tensor.device), tensor.cpu().tolist()))
    tensor.add_(1.0)
    torch.npu.synchronize()
    answers.put("added")
    queue.get()

if __name__ == "__main__":
    torch.npu.config.allow_internal_format = False
    context = multiprocessing.get_context("spawn")
    queue, answers = context.Queue(), context.Queue()
    process = context.Process(target=child, args=(queue, answers))
    process.start()
    # Not at the beginning of its segment.
    others, tensor = torch.zeros(1000).npu(), torch.arange(4.0).npu()
    queue.put(tensor)
    print(answers.get(), answers.get())
    print(tensor.cpu().tolist())
    queue.put("done")
    process.join()
    print("status", process.exitcode)
"""


@pytest.mark.parametrize("expandable", ["False", "True"])
def test_tensor_sent_to_another_process_is_the_same_memory(
    run_python: Any, tmp_path: Path, expandable: str
) -> None:
    program = tmp_path / "program.py"
    program.write_text("import cann_sim\ncann_sim.activate()\n" + TENSOR)
    done = run_python(
        str(program),
        program=(sys.executable,),
        environment={"PYTORCH_NPU_ALLOC_CONF": f"expandable_segments:{expandable}"},
    )
    assert "('npu:0', [0.0, 1.0, 2.0, 3.0]) added" in done.output, done.errors
    assert "[1.0, 2.0, 3.0, 4.0]\nstatus 0" in done.output, done.errors


EVENT = """
import torch, torch_npu
import torch.multiprocessing as multiprocessing

def child(queue, answers):
    event = queue.get()
    stream = torch.npu.Stream()
    waited = torch.zeros(1).npu()
    event.wait(stream)
    with torch.npu.stream(stream):
        waited.add_(1.0)
    answers.put(("waits", stream.query()))
    stream.synchronize()
    answers.put(("went on", waited.item()))
    queue.get()

if __name__ == "__main__":
    torch.npu.config.allow_internal_format = False
    context = multiprocessing.get_context("spawn")
    queue, answers = context.Queue(), context.Queue()
    process = context.Process(target=child, args=(queue, answers))
    process.start()
    event, stream = torch.npu.Event(enable_timing=False, interprocess=True), torch.npu.Stream()
    gate = torch.npu.ExternalEvent()
    gate.wait(stream)
    event.record(stream)
    print("recorded", event.query())
    queue.put(event)
    print(*answers.get())
    gate.record(torch.npu.current_stream())
    print(*answers.get())
    event.synchronize()
    print("happened", event.query())
    queue.put("done")
    process.join()
    print("status", process.exitcode)
"""


def test_event_recorded_in_one_process_is_waited_for_in_another(
    run_python: Any, tmp_path: Path
) -> None:
    program = tmp_path / "program.py"
    program.write_text("import cann_sim\ncann_sim.activate()\n" + EVENT)
    done = run_python(str(program), program=(sys.executable,))
    said = [line for line in done.output.splitlines() if not line.startswith("Warning")]
    expected = ["recorded False", "waits False", "went on 1.0", "happened True", "status 0"]
    assert said == expected, done.errors


def exported(acl: Any, address: int, size: int, *, flags: int = 0) -> tuple[int, Any]:
    key = ctypes.create_string_buffer(KEY_LENGTH)
    bytes_, length = ctypes.c_size_t(size), ctypes.c_size_t(KEY_LENGTH)
    return acl("aclrtIpcMemGetExportKey", address, bytes_, key, length, flags), key


@pytest.fixture
def address(npu: Any, acl: Any) -> Any:
    pointer = ctypes.c_void_p()
    size = ctypes.c_size_t(1 << 20)
    assert acl("aclrtMalloc", ctypes.byref(pointer), size, ctypes.c_int(0)) == 0
    yield pointer.value
    assert acl("aclrtFree", pointer) == 0


def test_import_by_a_process_that_was_not_named_is_refused(acl: Any, address: int) -> None:
    code, key = exported(acl, address, 1 << 20)
    assert code == 0
    imported = ctypes.c_void_p()
    assert acl("aclrtIpcMemImportByKey", ctypes.byref(imported), key, 0) == PARAMETER_INVALID
    assert "aclrtIpcMemSetImportPid" in acl.message()
    own = (ctypes.c_int32 * 1)(os.getpid())
    assert acl("aclrtIpcMemSetImportPid", key, own, ctypes.c_size_t(1)) == 0
    assert acl("aclrtIpcMemImportByKey", ctypes.byref(imported), key, 0) == 0
    ctypes.memset(address, 7, 8)
    assert ctypes.string_at(imported, 8) == bytes([7] * 8)
    assert acl("aclrtIpcMemClose", key) == 0
    assert acl("aclrtIpcMemClose", key) == 0  # first the import, then the export
    assert acl("aclrtIpcMemClose", key) == PARAMETER_INVALID


def test_import_of_a_key_that_was_closed_is_refused(acl: Any, address: int) -> None:
    _, key = exported(acl, address, 1 << 20, flags=1)
    assert acl("aclrtIpcMemClose", key) == 0
    imported = ctypes.c_void_p()
    assert acl("aclrtIpcMemImportByKey", ctypes.byref(imported), key, 0) == PARAMETER_INVALID
    assert "closed it" in acl.message()


def test_export_of_more_than_was_allocated_is_refused(acl: Any, address: int) -> None:
    assert exported(acl, address, (1 << 20) + 1)[0] == PARAMETER_INVALID
    assert exported(acl, address + 512, 512)[0] == PARAMETER_INVALID


def test_event_between_processes_is_refused_in_a_capture(npu: Any, acl: Any) -> None:
    event = ctypes.c_void_p()
    flags = ctypes.c_uint32(EVENT_IPC)
    assert acl("aclrtCreateEventExWithFlag", ctypes.byref(event), flags) == 0
    stream = npu.Stream()
    assert acl("aclmdlRICaptureBegin", stream.npu_stream, ctypes.c_int(2)) == 0
    assert acl("aclrtRecordEvent", event, stream.npu_stream) == FEATURE_NOT_SUPPORTED
    assert acl("aclrtStreamWaitEvent", stream.npu_stream, event) == FEATURE_NOT_SUPPORTED
    assert acl("aclmdlRICaptureEnd", stream.npu_stream, ctypes.byref(ctypes.c_void_p())) == 0
    assert acl("aclrtDestroyEvent", event) == 0


def test_event_between_processes_excludes_other_flags(acl: Any) -> None:
    event = ctypes.c_void_p()
    flags = ctypes.c_uint32(EVENT_IPC | 0x8)
    code = acl("aclrtCreateEventExWithFlag", ctypes.byref(event), flags)
    assert code == PARAMETER_INVALID
