"""Loading the simulated libraries in a process."""

from __future__ import annotations

from typing import Any

import pytest

from cann_sim.building.compiler import find_compiler

USE = "print((torch.ones(2).npu() + 1).cpu().tolist())"


def test_activate_before_torch_lets_torch_load_torch_npu(run_python: Any) -> None:
    done = run_python(
        f"import cann_sim; cann_sim.activate()\nimport torch\n{USE}",
        environment={"TORCH_DEVICE_BACKEND_AUTOLOAD": None},
    )
    assert "[2.0, 2.0]" in done.output, done.errors


def test_activate_after_torch_works_where_autoload_is_off(run_python: Any) -> None:
    done = run_python(
        f"import torch\nimport cann_sim; cann_sim.activate()\nimport torch_npu\n{USE}",
    )
    assert "[2.0, 2.0]" in done.output, done.errors


def test_activate_does_not_import_torch(run_python: Any) -> None:
    done = run_python(
        "import sys, cann_sim; cann_sim.activate(); print('torch' in sys.modules)",
    )
    assert "False" in done.output, done.errors


def test_activate_twice_is_the_same_as_once(run_python: Any) -> None:
    done = run_python(
        "import cann_sim; cann_sim.activate(); cann_sim.activate(); print(cann_sim.is_active())"
    )
    assert "True" in done.output, done.errors


def test_activate_over_other_device_libraries_is_refused(run_python: Any, tmp_path: Any) -> None:
    library = tmp_path / "libascendcl.so"
    source = tmp_path / "other.c"
    source.write_text("int aclInit(void) { return 0; }\n")
    compiler = find_compiler()
    compiler.run(["-shared", "-fPIC", "-o", str(library), str(source)], "compiling a test library")
    done = run_python(
        f"import ctypes; ctypes.CDLL({str(library)!r})\nimport cann_sim; cann_sim.activate()"
    )
    assert "ActivationError" in done.errors
    assert f"found {library}" in done.errors


def test_exit_with_a_stream_that_waits_forever_ends(run_python: Any) -> None:
    done = run_python(
        """
import cann_sim
cann_sim.activate()
import torch, torch_npu
stream = torch.npu.Stream()
torch.npu.ExternalEvent().wait(stream)
print("leaving")
""",
        environment={"CANN_SIM_DEADLOCK_SECONDS": "0.5"},
    )
    assert done.status == 0
    assert "leaving" in done.output


def test_exit_with_queued_work_ends(run_python: Any) -> None:
    done = run_python(
        """
import cann_sim
cann_sim.activate()
import os, torch, torch_npu
value = torch.ones(512, 512).npu()
for _ in range(200):
    value = value @ value
print("leaving", flush=True)
raise SystemExit(3)
""",
    )
    assert done.status == 3, done.errors


def test_fork_after_use_refuses_the_device_and_ends(run_python: Any) -> None:
    done = run_python(
        """
import cann_sim
cann_sim.activate()
import os, torch, torch_npu
value = torch.ones(2).npu() + 1
torch.npu.synchronize()
child = os.fork()
if child == 0:
    try:
        (value + 1).cpu()
    except RuntimeError as error:
        os._exit(7 if "107002" in str(error) else 8)
    os._exit(9)
print("child", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
print("parent", value.cpu().tolist())
""",
        environment={"TASK_QUEUE_ENABLE": "0"},
    )
    assert "child 7" in done.output, done.errors
    assert "parent [2.0, 2.0]" in done.output, done.errors


@pytest.mark.parametrize("queue", ["0", "1"])
def test_fork_after_use_refuses_new_tensors_and_ends(run_python: Any, queue: str) -> None:
    done = run_python(
        """
import cann_sim
cann_sim.activate()
import os, torch, torch_npu
value = torch.ones(2).npu() + 1
torch.npu.synchronize()
child = os.fork()
if child == 0:
    try:
        torch.ones(2).npu()
    except RuntimeError as error:
        os._exit(7 if "107002" in str(error) else 8)
    os._exit(9)
print("child", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
print("parent", (value + 1).cpu().tolist())
""",
        environment={"TASK_QUEUE_ENABLE": queue},
    )
    assert "child 7" in done.output, done.errors
    assert "parent [3.0, 3.0]" in done.output, done.errors
