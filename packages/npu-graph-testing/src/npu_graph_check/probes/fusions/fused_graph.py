"""The graph that a fusion makes, on random inputs, against the operators that it replaced."""

from __future__ import annotations

import dataclasses
import functools
from typing import TYPE_CHECKING

import torch

import fx_passes
from fx_passes import fusions
from fx_passes.testing import assert_same_values
from npu_graph_check.probes.fusions.written_forms import WRITTEN_FORMS

if TYPE_CHECKING:
    from torch import Tensor

    from npu_graph_check.probe import Look

# Without these kernels of vendors the rules fuse into an operator of fx-passes.
_BY_VENDORS = ("fuse_split_qkv_rms_norm_rope", "fuse_split_qkv_rms_norm_mrope")
_THE_SAME = "the same"


def fused_graph(look: Look, name: str) -> None:
    """Trace what a rule replaces, fuse it, and run both in each dtype."""
    on, form = look.on, WRITTEN_FORMS[name]
    rule = dataclasses.replace(_rule(name), accepts_cost=True)
    fusion = fx_passes.RulePass(name="fusion", rules=(rule,))
    pipeline = fx_passes.Pipeline(passes=(fx_passes.NormalizePass(), fusion))
    for dtype in form.dtypes:
        look.doing(f"running {name} in {dtype}")
        inputs = form.inputs(dtype, on)
        call = fx_passes.trace_call(functools.partial(form.function, *inputs), name=name)
        before = call.outputs
        report = pipeline.run(call.graph_module).report
        why_not = [miss.reason for miss in report.near_misses(name)]
        look.expect(f"{dtype}: fused", len(report.matches(name)) or why_not, 1)
        fused = call.run()
        for number, (found, wanted) in enumerate(zip(fused, before, strict=True)):
            _figures(look, f"{dtype}: result {number}", found.cpu(), wanted.cpu(), dtype)
        what = f"{dtype}: within {form.roundings} roundings"
        look.expect(what, _compared(fused, before, form.roundings, dtype), _THE_SAME)


def _rule(name: str) -> fx_passes.Rule:
    if name in _BY_VENDORS:
        own: fx_passes.Rule = getattr(fusions, name)(kernels=())
        return own
    return next(
        rule
        for each in fx_passes.default_npu_pipeline().passes
        if isinstance(each, fx_passes.RulePass)
        for rule in each.rules
        if rule.name == name
    )


def _figures(look: Look, what: str, found: Tensor, wanted: Tensor, dtype: torch.dtype) -> None:
    difference = float((found.double() - wanted.double()).abs().max())
    if wanted.is_floating_point():
        rounding = torch.finfo(dtype).eps * float(wanted.double().abs().max())
        look.figure(f"{what}, largest difference", round(difference / rounding, 3), "roundings")
    else:
        look.figure(f"{what}, largest difference", difference, "steps")


def _compared(
    found: tuple[Tensor, ...], wanted: tuple[Tensor, ...], roundings: int, dtype: torch.dtype
) -> str:
    try:
        assert_same_values(found, wanted, roundings=roundings, dtype=dtype)
    except AssertionError as error:
        return str(error)
    return _THE_SAME
