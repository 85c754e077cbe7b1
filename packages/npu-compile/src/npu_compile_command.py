"""Starts the command ``npu-compile``.

Beside the package and not in it: importing the package imports torch, which loads torch_npu, which
fails where something is wrong with it; the command is there to say what.
"""

from __future__ import annotations

import os
import sys


def main() -> None:
    """Run the command, with torch alone, and end the process."""
    os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
    from npu_compile.command_line.command import main as run  # noqa: PLC0415 - after the setting

    sys.exit(run())
