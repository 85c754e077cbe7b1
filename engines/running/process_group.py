"""An engine's run in a group of processes, which ends with it."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

Rows = list[dict[str, Any]]


def run_group(
    module: str, given: str, environment: Mapping[str, str], log: Path, limit: float
) -> str | None:
    """Run a module of engines in a process group; all its processes end with it.

    Args:
        module: Name of the module; it gets ``--run`` and `given`.
        given: Text for it.
        environment: Environment of the processes.
        log: Where they print.
        limit: Seconds.

    Returns:
        A text with the exit status; None if the limit was exceeded.
    """
    with log.open("w") as stream:
        process = subprocess.Popen(
            [sys.executable, "-m", module, "--run", given],
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


def rows_of_variant(
    module: str,
    variant: Any,
    checkpoint: Path,
    sequences: int,
    *,
    environment: Mapping[str, str],
    described: Mapping[str, Any],
    log: Path,
    out: Path,
    limit: float,
) -> Rows:
    """Run a variant by a module that calls `run_given`; return its rows, or one with its error.

    Args:
        module: Its name.
        variant: A dataclass of plain values.
        checkpoint: Passed to the module.
        sequences: Passed to the module.
        environment: Of the processes.
        described: What the row of an error says of the variant.
        log: What they print.
        out: File that the rows come in.
        limit: Seconds.
    """
    given = json.dumps([dataclasses.asdict(variant), str(checkpoint), sequences, str(out)])
    ended = run_group(module, given, environment, log, limit)
    if out.exists():
        rows: Rows = json.loads(out.read_text())
        return rows
    ended = ended or f"it took more than {limit} s"
    return [{**described, "error": f"{ended}; see {log}"}]


def run_given(given: str, variant: Callable[..., Any], run: Callable[..., Rows]) -> None:
    """Run the text that `rows_of_variant` passed with ``--run``, in a process of the group.

    Args:
        given: The text.
        variant: Makes the variant.
        run: Runs it; gets it, the checkpoint and the number of sequences, and returns rows.
    """
    values, checkpoint, sequences, out = json.loads(given)
    values["timed"] = tuple(values["timed"])
    rows = run(variant(**values), Path(checkpoint), sequences)
    Path(out).write_text(json.dumps(rows))


def _end(process: subprocess.Popen[bytes]) -> None:
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    process.wait()
