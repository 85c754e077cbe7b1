"""The probes of versions, device and settings."""

from __future__ import annotations

from npu_graph_check.probe import Probe

_MODULE = "npu_graph_check.probes.environment"

ENVIRONMENT = (
    Probe(
        id="environment.versions",
        title="The SoC is an Atlas A2 or A3, and CANN and the driver say their versions",
        run=f"{_MODULE}.device_facts:versions",
    ),
    Probe(
        id="environment.doctor",
        title="`npu-compile doctor` finds nothing that keeps a model from running",
        run=f"{_MODULE}.doctor:doctor",
        limit_s=360,
    ),
)
