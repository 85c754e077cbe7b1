"""Steps of a model as a trace: what the host did, and what the device did where that tells."""

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
    """Decode steps of a model, host and device on one clock.

    Attributes:
        host: events of the host, in Chrome's trace event format, with times in microseconds.
        device: those of the device, tasks of attention with their layers; empty where it does not
            tell.
        began: when the first of the traced steps began; in front of it are captures and warm-up.
        ended: when the device had finished the last one.
    """

    host: Sequence[Mapping[str, Any]]
    device: Sequence[Mapping[str, Any]]
    began: float
    ended: float

    def write(self, path: str | Path) -> None:
        """Write all of it into a file that Perfetto opens.

        Raises:
            OSError: it cannot be written.
        """
        trace = Trace()
        trace.join(self.host)
        trace.join(self.device)
        trace.write(path)

    def summary(self) -> dict[str, Any]:
        """Return what can be counted in the traced steps, as plain data.

        ``updates`` are launches whose arguments were rewritten; ``updates_in_time`` those that were
        made when the replay came to their layer, so that it did not wait.
        """
        spans = [
            event
            for event in self.device
            if event["ph"] == "X" and self.began <= event["ts"] <= self.ended
        ]
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
    """Run decode steps of a model in a process of its own and return their trace.

    Args:
        name: ``MODULE:FUNCTION``, as for `NamedModel.load`.
        config: in place of the function's.
        num_steps: traced.
        quiet: no progress is shown.

    Raises:
        ConfigError: the process failed; what it said is on the standard error. Or the device's
            times would be virtual.
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
