"""The probes of times."""

from __future__ import annotations

from npu_graph_check.probe import NPU_AND_CUDA, Probe

_MODULE = "npu_graph_check.probes.times.host_times"

TIMES: tuple[Probe, ...] = (
    Probe(
        id="times.replay",
        title="A replay takes the host less time than its launches one by one",
        run=f"{_MODULE}:replay",
        limit_s=60,
        devices=NPU_AND_CUDA,
    ),
)
