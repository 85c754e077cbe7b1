"""The probes of times."""

from __future__ import annotations

from npu_graph_check.probe import NPU_AND_CUDA, Probe

_PACKAGE = "npu_graph_check.probes.times"

TIMES: tuple[Probe, ...] = (
    Probe(
        id="times.replay",
        title="A replay takes the host less time than its launches one by one",
        run=f"{_PACKAGE}.host_times:replay",
        limit_s=60,
        devices=NPU_AND_CUDA,
    ),
    Probe(
        id="times.update",
        title="A replay with its update takes the host less than with `NPUGraph.update`",
        run=f"{_PACKAGE}.update_times:update",
        limit_s=180,
    ),
    Probe(
        id="times.stall",
        title="How much do updates add to a step on the device, by layer?",
        run=f"{_PACKAGE}.update_times:stall",
        limit_s=180,
    ),
    Probe(
        id="times.kernels",
        title="How long do kernels of a decode step take on the device?",
        run=f"{_PACKAGE}.kernel_times:kernel_times",
        limit_s=180,
    ),
)
