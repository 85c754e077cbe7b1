"""One probe in a process of its own, within its time."""

from __future__ import annotations

import json
import os
import re
import signal
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from npu_graph_check.results.probe_result import (
    NOT_TRIED,
    OTHERWISE,
    Figure,
    Observation,
    ProbeResult,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from npu_graph_check.probe import Probe
    from npu_graph_check.running.start import Start

_GRACE_SECONDS = 10.0
_FRAME = re.compile(r'File "([^"]+)", line (\d+) in (\S+)')
_LAST_LINES = 3


def probe_in_process(probe: Probe, device: str, start: Start) -> ProbeResult:
    """Run a probe in a new process, and return its result, however that process ends.

    Raises:
        KeyboardInterrupt: This process was interrupted; the probe's process is ended first.
    """
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="npu-graph-check-") as name:
        folder = Path(name)
        lines, errors = folder / "lines", folder / "errors"
        arguments = [probe.id, "--device", device, "--into", str(lines)]
        process = start([*arguments, "--limit", str(probe.limit_s)], folder, errors)
        status = None
        try:
            status = process.wait(probe.limit_s + _GRACE_SECONDS)
        finally:
            # Also what a probe has started and left behind ends here.
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            if status is None:
                # A process that waits inside of a driver does not end.
                status = process.wait(_GRACE_SECONDS)
        said = errors.read_text(encoding="utf-8", errors="replace")
        ended = -signal.SIGKILL if status is None else status
        return _result(probe, list(_lines(lines)), ended, said, time.monotonic() - began)


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    if not path.exists():
        return
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        with suppress(ValueError):  # the process was ended inside of its last line
            yield json.loads(line)


def _result(
    probe: Probe, lines: Sequence[dict[str, Any]], status: int, said: str, seconds: float
) -> ProbeResult:
    verdict, because, doing = "", "", ""
    for line in lines:
        verdict, because = line.get("verdict", verdict), line.get("because", because)
        doing = line.get("doing", doing)
    if not verdict:
        verdict, because = OTHERWISE, _how_it_ended(probe, status, said, doing, seconds)
    return ProbeResult(
        id=probe.id,
        title=probe.title,
        rows=probe.rows,
        verdict=verdict,
        because=because,
        observations=tuple(Observation(**x["observation"]) for x in lines if "observation" in x),
        figures=tuple(Figure(**x["figure"]) for x in lines if "figure" in x),
        seconds=round(seconds, 3),
    )


def _how_it_ended(probe: Probe, status: int, said: str, doing: str, seconds: float) -> str:
    at = f", while it was {doing}" if doing else ""
    _, timeout, dump = said.rpartition("Timeout (")
    if status == -signal.SIGKILL and not timeout and seconds < probe.limit_s:
        return (
            f"killed from outside after {seconds:.0f} s{at}; if nobody did so, the host had no "
            "memory left: see dmesg"
        )
    if timeout or status == -signal.SIGKILL:
        # The main thread is the last of the dump, its innermost frame the first.
        frames = _FRAME.findall(dump.rpartition("Thread 0x")[2])
        waited = f"; it waited in {_place(*frames[0])}" if frames else ""
        return f"hung: ended after {probe.limit_s:g} s{at}{waited}"
    last = "; ".join(line.strip() for line in said.strip().splitlines()[-_LAST_LINES:])[:500]
    if status < 0:
        how = f"crashed with {signal.Signals(-status).name}"
    else:
        how = f"its process ended with status {status}"
    return f"{how}{at}" + (f": {last}" if last else "")


def _place(path: str, line: str, function: str) -> str:
    return f"{function} ({'/'.join(Path(path).parts[-2:])}:{line})"


def not_tried(probe: Probe, because: str) -> ProbeResult:
    """Return the result of a probe that does not run."""
    return ProbeResult(
        id=probe.id, title=probe.title, rows=probe.rows, verdict=NOT_TRIED, because=because
    )
