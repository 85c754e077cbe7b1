"""A run: the environment, then one probe after the other, each kept as soon as it has ended."""

from __future__ import annotations

import dataclasses
import time
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from npu_graph_check.results.result_file import Results, write_results
from npu_graph_check.running.probe_process import not_tried

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from npu_graph_check.probe import Probe
    from npu_graph_check.results.probe_result import ProbeResult
    from npu_graph_check.running.progress import Progress

COMPLETE = "complete"
INTERRUPTED = "interrupted"
NOT_REACHED = "the run did not come to it"


def run_probes(
    probes: Sequence[Probe],
    *,
    device: str,
    environment: dict[str, str],
    output: Path,
    progress: Progress,
    run: Callable[[Probe, str], ProbeResult],
    risky: bool = False,
    minutes: float | None = None,
) -> Results:
    """Run probes in this order, and rewrite the file of results after each.

    An interrupt ends the running probe; it and the remaining ones count as not tried. So do probes
    that begin after so many minutes, or that have a risk, unless `risky`.

    Raises:
        ResultFileError: The file cannot be written.
    """
    begun = datetime.now(timezone.utc).isoformat(timespec="seconds")
    until = None if minutes is None else time.monotonic() + 60 * minutes
    # All probes are in the file from the beginning, whatever ends the run.
    found = [not_tried(probe, NOT_REACHED) for probe in probes]
    results = Results(environment=environment, probes=tuple(found), begun=begun)
    ended = COMPLETE
    try:
        write_results(output, results)
        for number, probe in enumerate(probes, start=1):
            progress.begin(number, probe.id)
            because = _because(probe, device, until, risky=risky)
            result = not_tried(probe, because) if because else run(probe, device)
            found[number - 1] = result
            progress.finish(number, probe.id, result.verdict, result.because)
            if not because:
                write_results(output, dataclasses.replace(results, probes=tuple(found)))
    except KeyboardInterrupt:
        ended = INTERRUPTED
        found = [
            not_tried(probe, "the run was interrupted") if result.because == NOT_REACHED else result
            for probe, result in zip(probes, found, strict=True)
        ]
    results = dataclasses.replace(results, probes=tuple(found), ended=ended)
    write_results(output, results)
    progress.end()
    return results


def _because(probe: Probe, device: str, until: float | None, *, risky: bool) -> str:
    """Return why a probe does not run; empty where it does."""
    if device not in probe.devices:
        return f"it looks at {' and '.join(sorted(probe.devices))} only"
    if probe.risk and not risky:
        return f"--risky was not given; the risk: {probe.risk}"
    if until is not None and time.monotonic() > until:
        return "the time of --minutes was over"
    return ""


def write_untried(
    probes: Sequence[Probe], output: Path, because: str = NOT_REACHED, *, ended: str = ""
) -> None:
    """Write a file of results in which no probe was tried, for one reason.

    Raises:
        ResultFileError: The file cannot be written.
    """
    begun = datetime.now(timezone.utc).isoformat(timespec="seconds")
    results = tuple(not_tried(probe, because) for probe in probes)
    write_results(output, Results(environment={}, probes=results, begun=begun, ended=ended))
