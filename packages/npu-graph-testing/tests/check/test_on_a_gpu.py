"""The probes that look at GPUs too, where there is one."""

from __future__ import annotations

import io
import json

import pytest
import torch

from npu_graph_check.child import run_probe
from npu_graph_check.probe import Look, Probe
from npu_graph_check.probes.table import all_probes

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")

_PROBES = [probe for probe in all_probes() if "cuda" in probe.devices]


@pytest.mark.parametrize("probe", _PROBES, ids=lambda probe: probe.id)
def test_probe_finds_a_gpu_as_expected(probe: Probe) -> None:
    if probe.group == "decode":
        pytest.importorskip("npu_compile")
    lines = io.StringIO()

    run_probe(probe, Look(lines, "cuda"))

    written = [json.loads(line) for line in lines.getvalue().splitlines()]
    assert written[-1]["verdict"] in {"confirmed", "not tried"}, written
