"""The checks of `npu-compile doctor`."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from npu_graph_check.probe import Look

_START = "import sys, npu_compile_command as c; sys.exit(c.run_command(['doctor', '--json']))"


def doctor(look: Look) -> None:
    """Run the command, and expect each of its checks to be right."""
    look.doing("running npu-compile doctor")
    done = subprocess.run(  # noqa: S603 - this interpreter
        [sys.executable, "-c", _START], capture_output=True, text=True, check=False
    )
    if "No module named 'npu_compile_command'" in done.stderr:
        look.not_tried("npu-compile is not installed; install npu-graph-testing[check]")
    for check in json.loads(done.stdout):
        look.expect(check["name"], "right" if check["ok"] else check["found"], "right")
