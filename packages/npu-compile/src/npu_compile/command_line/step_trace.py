"""Traces steps of a model: the host and, if the device reports it, the device."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from npu_compile.command_line.layered_events import UPDATE, is_replay, with_layers
from npu_compile.errors import ConfigError
from npu_graph_runtime.tracing import Trace

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from npu_compile.configuration.config import CompileConfig

# cann-sim writes a trace of streams and kernels into the file that this names; nothing else reads
# it, so that on an NPU the trace is that of the host alone.
_DEVICE_TRACE = "CANN_SIM_TRACE"

# With it the device's times are virtual, which those of the host are not.
_DEVICE_CLOCK = "CANN_SIM_CLOCK"


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class StepTrace:
    """Decode steps of a model, with host and device on one clock.

    Attributes:
        host: events of the host, in Chrome's trace event format, with times in microseconds.
        device: events of the device, with layer names for attention; empty if the device reports
            none.
        began: start of the first traced step; captures and warm-up come before it.
        ended: time at which the device finished the last step.
    """

    host: Sequence[Mapping[str, Any]]
    device: Sequence[Mapping[str, Any]]
    began: float
    ended: float

    def write(self, path: str | Path) -> None:
        """Write the trace to a file that Perfetto opens.

        Raises:
            OSError: The file cannot be written.
        """
        trace = Trace()
        trace.join(self.host)
        trace.join(self.device)
        trace.write(path)

    def spans(self, events: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
        """Return those events that begin while the traced steps run and have a duration."""
        return [
            event
            for event in events
            if event["ph"] == "X" and self.began <= event["ts"] <= self.ended
        ]

    def summary(self) -> dict[str, Any]:
        """Return counts over the traced steps, as plain data.

        ``updates`` counts launches whose arguments were updated; ``updates_in_time`` counts those
        that were complete when the replay reached their layer, so that it did not wait.
        """
        spans = self.spans(self.device)
        details = [event.get("args", {}) for event in spans]
        return {
            "replays": sum(is_replay(event) for event in spans),
            "kernels": sum(event["cat"] == "kernel" for event in spans),
            "updates": sum(each.get("role") == UPDATE for each in details),
            "updates_in_time": sum(each.get("in_time", False) for each in details),
        }


def trace_model(
    name: str, config: CompileConfig | None, *, num_steps: int, quiet: bool
) -> StepTrace:
    """Run decode steps of a model in a separate process and return their trace.

    Raises:
        ConfigError: The process failed (its output is on standard error), or the device's times
            would be virtual.
    """
    if os.environ.get(_DEVICE_CLOCK):
        raise ConfigError(
            f"tracing {name!r}: expected host and device on one clock, found {_DEVICE_CLOCK}, with "
            "which the device's times are virtual. Unset it; the trace that cann-sim writes by "
            "itself (CANN_SIM_TRACE) has virtual times of both"
        )
    with tempfile.TemporaryDirectory() as folder:
        output, device_trace = Path(folder, "host.json"), Path(folder, "device.json")
        given = "" if config is None else json.dumps(config.to_mapping())
        command = [sys.executable, "-m", "npu_compile.command_line.traced_steps"]
        command += [name, given, str(num_steps), str(output), *(["--quiet"] if quiet else [])]
        environment = {**os.environ, _DEVICE_TRACE: str(device_trace)}
        done = subprocess.run(command, env=environment, check=False)  # noqa: S603 - this interpreter
        if done.returncode != 0:
            raise ConfigError(
                f"tracing {name!r}: the process that ran it ended with status {done.returncode}; "
                "above it says why"
            )
        traced = json.loads(output.read_text(encoding="utf-8"))
        device = json.loads(device_trace.read_text()) if device_trace.exists() else []
    return StepTrace(
        host=traced["traceEvents"],
        device=with_layers(device, traced["layers"]),
        began=traced["began"],
        ended=traced["ended"],
    )
