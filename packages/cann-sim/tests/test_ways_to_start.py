"""Every way to start a program, in a process that never had a library path."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pathlib import Path

# By the package in the process, or by the command around it.
BEGINNINGS = {
    "activate": "import cann_sim; cann_sim.activate()\n",
    "run": "",
}
COMMANDS = {
    "activate": (sys.executable,),
    "run": (sys.executable, "-m", "cann_sim", "run", "--", sys.executable),
}
USE = "import torch; print((torch.ones(2).npu() + 1).cpu().tolist())\n"
RESULT = "[2.0, 2.0]"
ABSENT = {"LD_LIBRARY_PATH": None, "TORCH_DEVICE_BACKEND_AUTOLOAD": None}

either_way = pytest.mark.parametrize("way", COMMANDS)


@either_way
def test_source_on_the_command_line_uses_the_device(run_python: Any, way: str) -> None:
    done = run_python(BEGINNINGS[way] + USE, program=(*COMMANDS[way], "-c"), environment=ABSENT)
    assert RESULT in done.output, done.errors


@either_way
def test_folder_of_the_caller_is_not_looked_through(
    run_python: Any, tmp_path: Path, way: str
) -> None:
    (tmp_path / "found" / "inner").mkdir(parents=True)
    source = f"""
import os, sys
os.chdir({str(tmp_path)!r})
looked = []
sys.addaudithook(lambda event, found: looked.append(found[0]) if event == "os.scandir" else None)
{BEGINNINGS[way]}
import torch
import torch_npu.npu.utils
from torch_npu.utils.collect_env import get_cann_version
# The version in the folder is that which the libraries give.
print(get_cann_version() == torch_npu.npu.utils.get_cann_version())
print([path for path in looked if os.fspath(path).endswith("inner")])
"""
    absent = {**ABSENT, "ASCEND_HOME_PATH": None, "ASCEND_OPP_PATH": None}
    done = run_python(source, program=(*COMMANDS[way], "-c"), environment=absent)
    assert done.output.endswith("True\n[]\n"), done.output + done.errors


@either_way
def test_folders_of_the_callers_own_cann_are_kept(
    run_python: Any, tmp_path: Path, way: str
) -> None:
    folders = [tmp_path / name for name in ("opp", "runtime", "compiler")]
    for folder in folders:
        folder.mkdir()
    own = {"ASCEND_HOME_PATH": str(tmp_path), "ASCEND_OPP_PATH": str(folders[0])}
    source = (
        "import os, torch; print(os.environ['ASCEND_HOME_PATH'], os.environ['ASCEND_OPP_PATH'])"
    )
    program = (*COMMANDS[way], "-c")
    done = run_python(BEGINNINGS[way] + source, program=program, environment={**ABSENT, **own})
    assert f"{tmp_path} {folders[0]}\n" in done.output, done.errors


@either_way
def test_pytest_uses_the_device(run_python: Any, tmp_path: Path, way: str) -> None:
    (tmp_path / "conftest.py").write_text(BEGINNINGS[way])
    (tmp_path / "test_device.py").write_text(
        "import torch\n\ndef test_sum():\n    assert torch.ones(2).npu().sum().item() == 2\n"
    )
    program = (*COMMANDS[way], "-m", "pytest", "-q", "-p", "no:cacheprovider")
    done = run_python(str(tmp_path), program=program, environment=ABSENT)
    assert "1 passed" in done.output, done.output + done.errors


@either_way
def test_processes_that_are_spawned_use_the_device(
    run_python: Any, tmp_path: Path, way: str
) -> None:
    script = tmp_path / "spawned.py"
    script.write_text(
        f"""{BEGINNINGS[way]}
import multiprocessing
import torch

def double(number):
    return (torch.full((1,), number).npu() * 2).cpu().item()

if __name__ == "__main__":
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        print(pool.map(double, [1.0, 2.0]), double(3.0))
"""
    )
    done = run_python(str(script), program=COMMANDS[way], environment=ABSENT)
    assert "[2.0, 4.0] 6.0" in done.output, done.errors


@either_way
@pytest.mark.parametrize("shell", [["-q"], ["-q", "-i"], ["-m", "code"]], ids=" ".join)
def test_interactive_shell_on_a_terminal_uses_the_device(way: str, shell: list[str]) -> None:
    environment = {name: value for name, value in os.environ.items() if name not in ABSENT}
    terminal, device = os.openpty()
    try:
        with subprocess.Popen(
            [*COMMANDS[way], *shell], stdin=device, stdout=device, stderr=device, env=environment
        ) as process:
            for line in (BEGINNINGS[way] + USE).splitlines():
                os.write(terminal, line.encode() + b"\n")
            shown = read_until(terminal, RESULT)
            os.write(terminal, b"raise SystemExit(6)\n")
            # The shell of Python 3.13.0 always ends with 1; no crash does.
            assert process.wait(900) in ({6} if sys.version_info < (3, 13) else {1, 6}), shown
    finally:
        os.close(device)
        os.close(terminal)


def read_until(terminal: int, text: str, seconds: float = 900) -> str:
    """Return the output of a terminal up to the first occurrence of the text."""
    shown = ""
    end = time.monotonic() + seconds
    while text not in shown:
        assert time.monotonic() < end, shown
        if select.select([terminal], [], [], 1)[0]:
            shown += os.read(terminal, 4096).decode(errors="replace")
    return shown
