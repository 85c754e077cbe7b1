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
        id="environment.cores",
        title="The SoC has the cores and the level 2 cache that are known of it",
        run=f"{_MODULE}.device_facts:cores",
        rows=("version-1", "version-2", "version-3", "version-4"),
    ),
    Probe(
        id="environment.core-limits",
        title="Limits of cores are kept and given back; more than there are is 107000",
        run=f"{_MODULE}.device_facts:core_limits",
        rows=("version-15",),
    ),
    Probe(
        id="environment.threads",
        title="A thread that set no device is refused with 107002, a missing device with 107001",
        run=f"{_MODULE}.device_facts:threads",
        rows=("version-9",),
    ),
    Probe(
        id="environment.doctor",
        title="`npu-compile doctor` finds nothing that keeps a model from running",
        run=f"{_MODULE}.doctor:doctor",
        limit_s=360,
    ),
)
