"""The command ``npu-compile``: its arguments are read here, without torch.

This package is apart from ``npu_compile``, whose import loads torch: ``npu-compile --help`` answers
at once, and ``npu-compile doctor`` can report a torch or torch_npu that does not load.
"""

from __future__ import annotations

import os
import shlex
import sys
from typing import TYPE_CHECKING

from npu_compile_command.parser import make_parser

if TYPE_CHECKING:
    from collections.abc import Sequence

# Commands about a model need the operators of torch_npu, or run the model on a device.
_WITH_NPU = frozenset({"explain", "plan", "bench", "trace"})
# It needs them only for a model whose inputs are on an NPU.
_BY_CHOICE = "lint"


def main() -> None:
    """Run the command on the arguments of the process, and exit with its status."""
    sys.exit(run_command())


def run_command(arguments: Sequence[str] | None = None) -> int:
    """Run the command.

    Args:
        arguments: The command line without the program name; ``None`` for that of the process.

    Returns:
        The exit status: 0, or 1 if something is wrong.
    """
    options = make_parser().parse_args(
        _with_flags(sys.argv[1:] if arguments is None else arguments)
    )
    if "torch" not in sys.modules and options.command == _BY_CHOICE:
        os.environ.setdefault("TORCH_DEVICE_BACKEND_AUTOLOAD", "0")
    elif "torch" not in sys.modules and options.command not in _WITH_NPU:
        os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
    try:
        from npu_compile.command_line.command import run  # noqa: PLC0415 - loads torch
    except RuntimeError as error:
        sys.stderr.write(
            f"npu-compile: loading torch: {str(error).splitlines()[0]}; run `npu-compile doctor` "
            "to find the cause. On a machine without an NPU, start the command with `cann-sim run "
            "--`, or set TORCH_DEVICE_BACKEND_AUTOLOAD=0 to do without the operators of NPUs\n"
        )
        return 1
    return run(options)


def _with_flags(arguments: Sequence[str]) -> list[str]:
    """Return the arguments with the flags of a configuration as its one text."""
    command, *rest = arguments or [""]
    if command == "config" and rest and rest[0].startswith("--") and rest[0] != "--help":
        return ["config", "--", shlex.join(rest)]
    return list(arguments)
