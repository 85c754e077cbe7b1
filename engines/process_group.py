"""An engine's run in a group of processes, which ends with it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


def run_group(
    script: str, given: str, environment: Mapping[str, str], log: Path, limit: float
) -> str | None:
    """Run a script of this folder; nothing of its engine has to be taken down.

    Args:
        script: Its path; it is told ``--run`` and what is given.
        given: Text for it.
        environment: Of the processes.
        log: What they print.
        limit: Seconds.

    Returns:
        How it ended; None where it took longer.
    """
    with log.open("w") as stream:
        process = subprocess.Popen(
            [sys.executable, script, "--run", given],
            env=environment,
            stdout=stream,
            stderr=stream,
            start_new_session=True,
        )
        try:
            return f"its process ended with {process.wait(limit)}"
        except subprocess.TimeoutExpired:
            return None
        finally:
            _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    process.wait()
