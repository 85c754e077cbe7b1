"""Starts the command ``npu-compile``.

Beside the package and not in it: importing the package imports torch, which loads torch_npu, which
fails where something is wrong with it; the command is there to say what.
"""

from __future__ import annotations

import os
import sys


def main() -> None:
    """Run the command and end the process.

    With torch alone, but for `explain`: it tries the fusions whose operators torch_npu brings.
    """
    if sys.argv[1:2] != ["explain"]:
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
