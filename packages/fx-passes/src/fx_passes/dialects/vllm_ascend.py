"""Operators of vLLM and vLLM-Ascend, rewritten into those that the fusions know."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from fx_passes.dialects.vllm_ascend_collectives import collective_rules
from fx_passes.dialects.vllm_ascend_norms import norm_rules, quantize_rules
from fx_passes.dialects.vllm_ir_norms import ir_norm_rules

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fx_passes.rewriting.rule import Rule


_NO_GROUPS: Mapping[str, str] = MappingProxyType({})


def vllm_ascend_dialect(
    process_groups: Mapping[str, str] = _NO_GROUPS, *, whole_residuals: bool = False
) -> tuple[Rule, ...]:
    """Return the rules that rewrite graphs of vLLM-Ascend into the form that the fusions match.

    Use them in a pass between `NormalizePass` and the fusions. The operators need not exist: rules
    whose operators the process does not have are not tried. In the order in which they are tried:

    - `vllm_ascend_chunk_residual`: `vllm::maybe_chunk_residual` to its residual, if
      `whole_residuals` is set. Exact.
    - `vllm_ascend_norm_quantize`, `..._norm_dynamic_quant`, `..._norm_mx_quant`:
      `_C_ascend::npu_add_rms_norm_bias`, with or without bias, and its quantisation
      (`vllm::quantize`, `npu_dynamic_quant`, `npu_dynamic_mx_quant`), to the kernel that does both.
      If `vllm::maybe_all_gather_and_maybe_unpad` is between them, it then gathers the quantised
      rows and their scales. The scale is an argument of `vllm::quantize` next to its reciprocal, so
      nothing is inverted. Rounding.
    - `vllm_ascend_plain_norm_*`, `vllm_ascend_gathered_first_norm_mx_quant`: the same after
      `npu_add_rms_norm`, which the engine uses if it has no operators of its own, and after
      `npu_rms_norm`. Without gathering only for `vllm::quantize`, because the other forms do not
      contain operators of the engine.
    - `vllm_ascend_norm`: other uses of `_C_ascend::npu_add_rms_norm_bias`, with a bias only if the
      norm moves after a reduce-scatter; otherwise it would be two operators. Rounding: the bias is
      added after rounding.
    - `vllm_ir_add_rms_norm`, `vllm_ir_rms_norm`: `vllm_ir::fused_add_rms_norm` and
      `vllm_ir::rms_norm` with a weight, over all columns, to the operators of the NPU that the
      fusions match. Rounding.
    - `vllm_ascend_gathered_quantize`: `vllm::quantize` of gathered rows to a gather of quantised
      rows, which are half the bytes. Exact.
    - `vllm_ascend_quantize`: other uses of `vllm::quantize` to `npu_quantize` by the reciprocal,
      as vLLM-Ascend implements it. Exact.
    - `vllm_ascend_own_chunk`: `vllm::sequence_parallel_chunk_impl` of an all-gather of the same
      ranks to the input of the all-gather. Exact.
    - `vllm_ascend_gemm_all_reduce`, `vllm_ascend_all_reduce`: `vllm::all_reduce`, with
      or without a preceding `vllm::unquantized_gemm`, to `linear` and the functional collective.
      Rounding, because the engine may add in another order. Not applied if the in-place reduction
      is visible elsewhere, for example to the owner of a graph input.
    - `vllm_ascend_all_gather`: `vllm::all_gather` along the first dimension to the functional
      collective. Exact.

    Args:
        process_groups: For each group whose collectives are rewritten, its name in the engine
            (`GroupCoordinator.unique_name`, such as `tp:0`), and the name of its process group for
            functional collectives and `ParallelGroup` (`device_group.group_name`). Only useful
            with the rules for tensor parallelism; by default collectives stay as they are.
        whole_residuals: Whether the engine runs without the sequence parallelism that it decides
            at run time (flash-comm), so that a residual always has as many rows as its other
            addend.
    """
    residual, *collectives = collective_rules(process_groups, whole_residuals=whole_residuals)
    norms = (*norm_rules(frozenset(process_groups)), *ir_norm_rules())
    return (residual, *norms, *quantize_rules(), *collectives)
