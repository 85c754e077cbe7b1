"""Devices: the one that is used where none was set, and several in one process."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pathlib import Path

CONTEXT_NULL = 107002
INVALID_PARAMETER = 100000

WITHOUT_TORCH = """
import cann_sim
cann_sim.activate()
import ctypes, threading
library = ctypes.CDLL("libascendcl.so")
device, stream = ctypes.c_int32(-1), ctypes.c_void_p()
print("before", library.aclrtGetDevice(ctypes.byref(device)), device.value)
print("create", library.aclrtCreateStream(ctypes.byref(stream)))
print("init", library.aclInit({path!r}.encode()))
print("after", library.aclrtGetDevice(ctypes.byref(device)), device.value)
def use():
    print("create", library.aclrtCreateStream(ctypes.byref(stream)))
thread = threading.Thread(target=use)
thread.start()
thread.join()
"""


def configuration(folder: Path, device: str) -> str:
    path = folder / "acl.json"
    path.write_text(json.dumps({"defaultDevice": {"default_device": device}}))
    return str(path)


def test_device_of_the_configuration_is_used_where_none_was_set(
    run_forked: Any, tmp_path: Path
) -> None:
    done = run_forked(
        WITHOUT_TORCH.format(path=configuration(tmp_path, "1")),
        environment={"CANN_SIM_DEVICES": "2"},
    )
    expected = f"before {CONTEXT_NULL} -1\ncreate {CONTEXT_NULL}\ninit 0\nafter 0 1\ncreate 0\n"
    assert done.output == expected, done.errors


@pytest.mark.parametrize("device", ["2", "-1", "first"])
def test_device_of_the_configuration_that_does_not_exist_is_refused(
    run_forked: Any, tmp_path: Path, device: str
) -> None:
    done = run_forked(
        WITHOUT_TORCH.format(path=configuration(tmp_path, device)),
        environment={"CANN_SIM_DEVICES": "2"},
    )
    assert f"init {INVALID_PARAMETER}\nafter {CONTEXT_NULL}" in done.output, done.errors


def test_device_is_known_to_torch_before_it_is_set(run_forked: Any) -> None:
    done = run_forked(
        """
import cann_sim
cann_sim.activate()
import torch, torch_npu
print(torch.npu.get_device_properties(0).total_memory >> 30)
""",
        environment={"CANN_SIM_MEMORY_GB": "3"},
    )
    assert done.output.splitlines()[-1:] == ["3"], done.errors


SEVERAL = """
import cann_sim
cann_sim.activate()
import torch, torch_npu
npu = torch.npu
npu.config.allow_internal_format = False
print("count", npu.device_count())
values = [torch.full((4,), float(device), device=f"npu:{device}") for device in range(2)]
free = [npu.mem_get_info(device)[0] for device in range(2)]
large = torch.empty(1 << 30, dtype=torch.uint8, device="npu:1")
print("memory", *(free[device] - npu.mem_get_info(device)[0] >> 30 for device in range(2)))
copied = values[1].to("npu:0", non_blocking=True)
values[1].copy_(values[0] + 10.0)
print("copies", copied.device, copied.cpu().tolist()[0], values[1].cpu().tolist()[0])
results, graphs = [], []
for device in range(2):
    with npu.device(device):
        graph, result = npu.NPUGraph(), torch.zeros(4, device=f"npu:{device}")
        with npu.graph(graph):
            torch.add(values[device], 1.0, out=result)
        graph.replay()
        results.append(result)
        graphs.append(graph)
npu.synchronize(0)
npu.synchronize(1)
print("graphs", *(result.cpu().tolist()[0] for result in results))
event, first, second = npu.Event(), npu.Stream(device=0), npu.Stream(device=1)
with npu.device(0), npu.stream(first):
    values[0].fill_(5.0)
    event.record(first)
second.wait_event(event)
second.synchronize()
print("event", event.query(), values[0].cpu().tolist()[0])
"""


def test_devices_in_one_process_have_memory_streams_and_graphs_of_their_own(
    run_forked: Any,
) -> None:
    # Each device has a task queue of its own: with them the wait may be launched before the record.
    settings = {"CANN_SIM_DEVICES": "2", "CANN_SIM_MEMORY_GB": "4", "TASK_QUEUE_ENABLE": "0"}
    done = run_forked(SEVERAL, environment=settings)
    said = [line for line in done.output.splitlines() if not line.startswith("Warning")]
    assert said == [
        "count 2",
        "memory 0 1",
        "copies npu:0 1.0 10.0",
        "graphs 1.0 11.0",
        "event True 5.0",
    ], done.errors
