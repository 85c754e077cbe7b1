"""The process that runs the steps of a trace, started as a module by the command.

It is a separate process because a device writes one trace per process, when the process ends.
"""

from __future__ import annotations

import argparse
import functools
import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attn_update import AddressedDevice
from npu_compile.command_line.named_model import TOLD_ERRORS, NamedModel
from npu_compile.command_line.progress import Progress
from npu_compile.command_line.sample_steps import SampleSteps
from npu_compile.configuration.config import CompileConfig
from npu_graph_runtime.tracing import Trace, TraceObserver

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from npu_compile.runners.decode_runner import DecodeRunner

STEPS_TRACK = "decode steps"
UPDATES_TRACK = "issuing updates"
_WARMUP_STEPS = 3


def trace_steps(named: NamedModel, num_steps: int, progress: Progress) -> dict[str, Any]:
    """Capture a model and run steps of it, with the host ahead of the device as in serving.

    Returns:
        Plain data: ``traceEvents``; ``layers``, which maps addresses of external events to the
            layers
        whose updates they signal; ``began`` and ``ended``, in microseconds of the events' clock.
    """
    trace = Trace("npu-compile")
    device = SampleSteps.device_of(named)
    observer = TraceObserver(trace, device)
    steps = SampleSteps(named, named.config, device=device, observer=observer)
    try:
        steps.capture(functools.partial(progress.captured, ""))
        began = time.perf_counter()
        for number in range(_WARMUP_STEPS + num_steps):
            if number == _WARMUP_STEPS:
                device.synchronize()
                began = time.perf_counter()
            _run_traced(steps, number, trace)
        device.synchronize()
        ended = time.perf_counter()
        layers = _layers(device, steps.runner)
    finally:
        steps.close()
    return {
        "traceEvents": trace.to_mapping()["traceEvents"],
        "layers": layers,
        "began": began * 1e6,
        "ended": ended * 1e6,
    }


def _run_traced(steps: SampleSteps, number: int, trace: Trace) -> None:
    begin = time.perf_counter()
    steps.run(number)
    end, step, updated = time.perf_counter(), steps.latest, steps.observed_at
    if step.update_seconds:
        trace.add_span(UPDATES_TRACK, "updates", begin=updated - step.update_seconds, end=updated)
    name = f"step of {step.num_rows} rows, padded to {step.padded_size}"
    trace.add_span(STEPS_TRACK, name, begin=begin, end=end, mode=step.run_mode.value)


def _layers(device: object, runner: DecodeRunner) -> Mapping[str, str]:
    if not isinstance(device, AddressedDevice):
        return {}
    return {
        hex(device.external_event_address(update.event)): update.layer_name
        for plan in runner.update_plans.values()
        for update in plan.updates
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the steps and write the trace."""
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("config", help="as JSON")
    parser.add_argument("steps", type=int)
    parser.add_argument("output", type=Path)
    parser.add_argument("--quiet", action="store_true")
    options = parser.parse_args(arguments)
    config = CompileConfig.from_json(options.config) if options.config else None
    try:
        with Progress(quiet=options.quiet) as progress:
            traced = trace_steps(NamedModel.load(options.model, config), options.steps, progress)
    except TOLD_ERRORS as error:
        sys.exit(f"npu-compile: {error}")
    options.output.write_text(json.dumps(traced), encoding="utf-8")


if __name__ == "__main__":
    main()
