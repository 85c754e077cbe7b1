"""One variant of a session in a process of its own, forked from one that imported the engine."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import traceback
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def run_forked(
    run: Callable[[], list[dict[str, Any]]],
    described: dict[str, Any],
    log: Path,
    limit: float | None = None,
) -> list[dict[str, Any]]:
    """Run a variant in a process forked from this one, and return its rows.

    Processes that it started end with it.

    Args:
        run: Returns the rows.
        described: The beginning of a row that says why there is no result.
        log: Where the process prints.
        limit: Seconds; None for no limit.
    """
    context = multiprocessing.get_context("fork")
    receive, send = context.Pipe(duplex=False)
    process = context.Process(target=_run, args=(run, described, log, send))
    process.start()
    send.close()
    if not receive.poll(limit):
        _end_group(process)
        process.join()
        return [{**described, "error": f"it took more than {limit} s; see {log}"}]
    try:
        found: list[dict[str, Any]] = receive.recv()
    except EOFError:
        process.join()
        found = [{**described, "error": f"its process ended with {process.exitcode}; see {log}"}]
    _end_group(process)
    process.join()
    return found


def _end_group(process: Any) -> None:
    """End a variant's process, and all that it started."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        # It did not come to have a group.
        process.kill()


def _run(
    run: Callable[[], list[dict[str, Any]]], described: dict[str, Any], log: Path, out: Any
) -> None:
    """Run in this process, which is the variant's own, and send the rows."""
    os.setsid()
    with log.open("w") as stream:
        os.dup2(stream.fileno(), 1)
        os.dup2(stream.fileno(), 2)
    try:
        out.send(run())
    except BaseException:
        traceback.print_exc()
        ended = traceback.format_exc().strip().splitlines()[-1]
        out.send([{**described, "error": f"{ended} (see {log})"}])
    finally:
        sys.stdout.flush()
        # Nothing of the engine that is forked has to be taken down.
        os._exit(0)
