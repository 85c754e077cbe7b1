"""The probes of the runtime."""

from __future__ import annotations

from npu_graph_check.probe import NPU_AND_CUDA, Probe

_MODULE = "npu_graph_check.probes.runtime.captured_step"

RUNTIME = (
    Probe(
        id="runtime.full",
        title="A step captured whole is bitwise eager, also captured anew after a release",
        run=f"{_MODULE}:full",
        limit_s=120,
        devices=NPU_AND_CUDA,
    ),
    Probe(
        id="runtime.breakable",
        title="A step captured in segments, with a function eager between them, is bitwise eager",
        run=f"{_MODULE}:breakable",
        limit_s=120,
        devices=NPU_AND_CUDA,
    ),
    Probe(
        id="runtime.forecast",
        title="The planner's forecast of streams and bytes after two captures is what is used",
        run=f"{_MODULE}:forecast",
        rows=("capture-14",),
        limit_s=120,
    ),
    Probe(
        id="runtime.forecast-of-bytes",
        title="The planner's forecast of memory after two captures of five is what is used",
        run=f"{_MODULE}:forecast_of_bytes",
        limit_s=120,
        devices=NPU_AND_CUDA,
    ),
    Probe(
        id="runtime.sleep-and-wake",
        title="Released graphs give their memory and streams back, and are captured anew",
        run="npu_graph_check.probes.runtime.sleep_and_wake:sleep_and_wake",
        limit_s=120,
        devices=NPU_AND_CUDA,
    ),
)
