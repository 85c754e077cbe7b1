"""Every rule of the default pipeline that makes a fused operator is looked at on a device."""

from __future__ import annotations

import fx_passes
from npu_graph_check.probes.fusions.written_forms import WRITTEN_FORMS
from npu_graph_check.probes.table import all_probes

# Kernels of Ascend950, which the command is not for, and an operator that vLLM-Ascend defines.
_NOT_LOOKED_AT = {
    "fuse_add_rms_norm_dynamic_mx_quant",
    "fuse_rms_norm_dynamic_mx_quant",
    "fuse_swiglu_mx_quant",
    "fuse_split_qkv_rms_norm_rotary_embedding",
}


def test_every_rule_that_fuses_has_a_probe_and_a_form() -> None:
    (fusions,) = (
        each
        for each in fx_passes.default_npu_pipeline().passes
        if isinstance(each, fx_passes.RulePass) and each.name == "npu_fusions"
    )
    rules = {rule.name for rule in fusions.rules} - _NOT_LOOKED_AT

    assert {probe.argument for probe in all_probes() if probe.group == "fusions"} == rules
    assert WRITTEN_FORMS.keys() == rules
