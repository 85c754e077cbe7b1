"""Starts the command ``npu-compile``.

Beside the package and not in it: importing the package imports torch, which loads torch_npu, which
fails where something is wrong with it; the command is there to say what.
"""

from __future__ import annotations

import os
import sys

# Those about a model: they try fusions whose operators torch_npu brings, or run it.
_WITH_NPU = frozenset({"explain", "plan", "bench", "trace"})


def main() -> None:
    """Run the command and end the process; with torch alone where no model is asked about."""
    if not _WITH_NPU.intersection(sys.argv[1:2]):
        os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
    try:
        from npu_compile.command_line.command import main as run  # noqa: PLC0415 - after it
    except RuntimeError as error:
        sys.exit(
            f"npu-compile: loading torch: {str(error).splitlines()[0]}; `npu-compile doctor` says "
            "what is wrong. On a machine without an NPU put `cann-sim run --` in front, or set "
            "TORCH_DEVICE_BACKEND_AUTOLOAD=0 to do without the operators of NPUs"
        )
    sys.exit(run())
