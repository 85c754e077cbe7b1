"""Operators of vLLM and vLLM-Ascend, rewritten into those that the fusions know."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from fx_passes.dialects.vllm_ascend_collectives import collective_rules
from fx_passes.dialects.vllm_ascend_norms import norm_rules
from fx_passes.dialects.vllm_ascend_quantize import quantize_rules

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fx_passes.rewriting.rule import Rule

__all__ = ["vllm_ascend_dialect"]

_NO_GROUPS: Mapping[str, str] = MappingProxyType({})


def vllm_ascend_dialect(
    process_groups: Mapping[str, str] = _NO_GROUPS, *, whole_residuals: bool = False
) -> tuple[Rule, ...]:
    """Return the rules that bring graphs of vLLM-Ascend into the form that the fusions match.

    For a pass between `NormalizePass` and the fusions. The operators need not exist: a rule whose
    operators the process does not have is not tried. In the order in which they are tried:

    - `vllm_ascend_chunk_residual`: `vllm::maybe_chunk_residual` gives its residual, where
      `whole_residuals` says so. Exact.
    - `vllm_ascend_norm_quantize`, `..._norm_dynamic_quant`, `..._norm_mx_quant`:
      `_C_ascend::npu_add_rms_norm_bias`, with a bias or none, and what quantises it
      (`vllm::quantize`, `npu_dynamic_quant`, `npu_dynamic_mx_quant`), to the kernel that does both.
      Where `vllm::maybe_all_gather_and_maybe_unpad` stands between them it gathers what is
      quantised, and its scales. The scale is an argument of `vllm::quantize` beside its reciprocal,
      so nothing is inverted. Rounding.
    - `vllm_ascend_plain_norm_*`, `vllm_ascend_gathered_first_norm_mx_quant`: the same after
      `npu_add_rms_norm`, which the engine uses where it has no operators of its own, and after
      `npu_rms_norm`; without that gathering for `vllm::quantize` only, the others are not the
      engine's words.
    - `vllm_ascend_norm`: `_C_ascend::npu_add_rms_norm_bias` elsewhere, with a bias only where the
      norm moves after a reduce-scatter; else it would be two operators. Rounding: the bias is
      added to what has been rounded.
    - `vllm_ascend_gathered_quantize`: `vllm::quantize` of gathered rows to rows that are gathered
      when they are quantised, which are half the bytes. Exact.
    - `vllm_ascend_quantize`: `vllm::quantize` elsewhere, to the `npu_quantize` by the reciprocal
      that vLLM-Ascend implements it with. Exact.
    - `vllm_ascend_own_chunk`: `vllm::sequence_parallel_chunk_impl` of an all-gather of the same
      ranks to what was gathered. Exact.
    - `vllm_ascend_gemm_all_reduce`, `vllm_ascend_all_reduce`: `vllm::all_reduce`, with
      `vllm::unquantized_gemm` before it or not, to `linear` and the functional collective.
      Rounding, because the engine may add up in another order. Not where somebody sees that it is
      reduced in place, as whoever holds an input of the graph.
    - `vllm_ascend_all_gather`: `vllm::all_gather` along the first dimension to the functional
      collective. Exact.

    Args:
        process_groups: For each group whose collectives are rewritten its name in the engine
            (`GroupCoordinator.unique_name`, such as `tp:0`), and the name of its process group as
            functional collectives and `ParallelGroup` take it (`device_group.group_name`). Worth it
            for the rules for tensor parallelism only; left out, collectives stay as they are.
        whole_residuals: Whether the engine runs without the sequence parallelism that it decides on
            at run time (flash-comm), so that a residual always has the rows of what it is added to.
    """
    residual, *collectives = collective_rules(process_groups, whole_residuals=whole_residuals)
    return (residual, *norm_rules(frozenset(process_groups)), *quantize_rules(), *collectives)
