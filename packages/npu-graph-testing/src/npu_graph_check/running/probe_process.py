"""One probe in a process of its own, within its time."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
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
    from collections.abc import Iterator, Mapping, Sequence

    from npu_graph_check.probe import Probe

_GRACE_SECONDS = 10.0
_CHILD = (sys.executable, "-m", "npu_graph_check.child")
_FRAME = re.compile(r'File "([^"]+)", line (\d+) in (\S+)')
_LAST_LINES = 3


def probe_in_process(
    probe: Probe,
    device: str,
    *,
    child: Sequence[str] = _CHILD,
    environment: Mapping[str, str] | None = None,
) -> ProbeResult:
    """Run a probe in a new process, and return its result, however that process ends.

    Args:
        probe: probe to run.
        device: kind of the device.
        child: the command that runs a probe, without its arguments.
        environment: environment of the process; by default that of this one.

    Raises:
        KeyboardInterrupt: This process was interrupted; the probe's process is ended first.
    """
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="npu-graph-check-") as folder:
        lines, errors = Path(folder) / "lines", Path(folder) / "errors"
        command = [*child, probe.id, "--device", device, "--into", str(lines)]
        command += ["--limit", str(probe.limit_s)]
        with errors.open("wb") as stream:
            # A session of its own: an interrupt of the terminal reaches this process alone, which
            # ends the probe with all that it started.
            process = subprocess.Popen(  # noqa: S603 - this interpreter
                command,
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=stream,
                env=_environment(os.environ if environment is None else environment),
                cwd=folder,
                start_new_session=True,
            )
            try:
                process.wait(probe.limit_s + _GRACE_SECONDS)
            except subprocess.TimeoutExpired:
                pass
            finally:
                _end(process)
        said = errors.read_text(encoding="utf-8", errors="replace")
        return _result(
            probe, list(_lines(lines)), process.returncode, said, time.monotonic() - began
        )


def _environment(variables: Mapping[str, str]) -> dict[str, str]:
    # The probes that need torch_npu import it themselves; `import torch` alone would fail where
    # it does not load, and say less. What a library writes to a console must not be kept back.
    return {**variables, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0", "PYTHONUNBUFFERED": "1"}


def _end(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


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
        verdict, because = OTHERWISE, _how_it_ended(probe, status, said, doing)
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


def _how_it_ended(probe: Probe, status: int, said: str, doing: str) -> str:
    at = f", while it was {doing}" if doing else ""
    _, timeout, dump = said.rpartition("Timeout (")
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
