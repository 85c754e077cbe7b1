"""`npu-compile doctor` beside the real torch_npu, with and without libraries of a device."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

PROGRAM = (
    "import sys; sys.argv = ['npu-compile', 'doctor', '--json']; "
    "from npu_compile_command import main; main()"
)


def _checks(*prefix: str) -> tuple[int, dict[str, dict[str, Any]]]:
    command = [*prefix, sys.executable, "-c", PROGRAM]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    return done.returncode, {check["name"]: check for check in json.loads(done.stdout)}


def test_doctor_on_simulated_cann_finds_a_device() -> None:
    status, checks = _checks(sys.executable, "-m", "cann_sim", "run", "--")

    assert checks["torch_npu"]["ok"], checks
    assert checks["device"] == {"name": "device", "ok": True, "found": "1 NPU", "remedy": ""}
    assert status == 0


def test_doctor_without_libraries_of_a_device_says_what_helps() -> None:
    # The libraries that this process has loaded are not those of another one.
    status, checks = _checks("env", "-u", "LD_LIBRARY_PATH", "-u", "LD_PRELOAD")

    assert status == 1
    assert not checks["device"]["ok"]
    assert ".so" in checks["device"]["found"]
    assert "cann-sim run" in checks["device"]["remedy"]
