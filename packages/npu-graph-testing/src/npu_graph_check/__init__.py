"""The command ``npu-graph-check``: tests assumptions about a device and writes one file.

This package is separate from ``npu_graph_testing``, whose import loads torch. ``--help``, ``list``,
``show`` and ``compare`` therefore work at once, on any machine. Probes that need torch load it.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

from npu_graph_check.command import run
from npu_graph_check.parser import make_parser

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["main", "run_command"]


def main() -> None:
    """Run the command on the arguments of the process, and exit with its status."""
    # A file of another machine may hold what this terminal cannot show.
    with suppress(AttributeError):  # the caller has put something else in its place
        sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    try:
        status = run_command()
        sys.stdout.flush()
    except BrokenPipeError:  # the reader has seen enough
        status = _READER_GONE
    except OSError as error:
        sys.stderr.write(f"npu-graph-check: {error}\n")
        status = 2
    if status in {2, _READER_GONE}:
        # The interpreter flushes once more at its end, which would fail again.
        with suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(status)


_READER_GONE = 141  # as the shell says of SIGPIPE


def run_command(arguments: Sequence[str] | None = None) -> int:
    """Run the command.

    Args:
        arguments: The command line without the program name; ``None`` for that of the process.

    Returns:
        The exit status: 0; 1 where a probe found the device otherwise, or two files differ; 2 where
        the command could not do its work; 130 after an interrupt.
    """
    return run(make_parser().parse_args(arguments))
