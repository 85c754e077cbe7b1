"""Faults of operators: each computes as another library might."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from check_teeth.fault import Fault, answer, nothing_done

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import torch


def computes(
    names: str, what: str, change: Callable[[torch.Tensor, Mapping[str, Any]], torch.Tensor]
) -> Fault:
    """Return a fault that changes the results of operators.

    Args:
        names: names of the operators without namespace and overload, separated by spaces.
        what: how they compute, for the table.
        change: returns the changed result, given the simulator's result and the keyword arguments.
    """

    def apply() -> None:
        from torch.utils._python_dispatch import TorchDispatchMode
        from torch.utils._pytree import tree_map_only

        class Changing(TorchDispatchMode):  # type: ignore[no-untyped-call]
            def __torch_dispatch__(
                self, func: Any, types: Any, args: Any = (), kwargs: Any = None
            ) -> Any:
                del types
                given = kwargs or {}
                result = func(*args, **given)
                if func.overloadpacket.__name__ not in names.split():
                    return result
                # What a probe expects is computed on the CPU, and stays right.
                return tree_map_only(
                    _tensor(),
                    lambda value: value if value.is_cpu else change(value, given),
                    result,
                )

        Changing().__enter__()  # type: ignore[no-untyped-call]

    return Fault(what=f"`{names}` {what}", apply=apply)


def writes(
    names: str, place: int | str, what: str, change: Callable[[torch.Tensor], torch.Tensor]
) -> Fault:
    """Return the fault of operators that write otherwise into one of their arguments.

    Args:
        names: of the operators, with spaces between them.
        place: of the argument, or its name.
        what: how they write, for the table.
        change: gives what stands there from what the simulator wrote.
    """

    def apply() -> None:
        from torch.utils._python_dispatch import TorchDispatchMode

        class Writing(TorchDispatchMode):  # type: ignore[no-untyped-call]
            def __torch_dispatch__(
                self, func: Any, types: Any, args: Any = (), kwargs: Any = None
            ) -> Any:
                del types
                given = kwargs or {}
                result = func(*args, **given)
                if func.overloadpacket.__name__ in names.split():
                    written = given[place] if isinstance(place, str) else args[place]
                    written.copy_(change(written))
                return result

        Writing().__enter__()  # type: ignore[no-untyped-call]

    return Fault(what=f"`{names}` {what}", apply=apply)


def takes(names: str) -> Fault:
    """Return the fault of operators that refuse nothing, and return their first argument."""

    def apply() -> None:
        from torch.utils._python_dispatch import TorchDispatchMode

        class Taking(TorchDispatchMode):  # type: ignore[no-untyped-call]
            def __torch_dispatch__(
                self, func: Any, types: Any, args: Any = (), kwargs: Any = None
            ) -> Any:
                del types
                if func.overloadpacket.__name__ not in names.split():
                    return func(*args, **(kwargs or {}))
                try:
                    return func(*args, **(kwargs or {}))
                except RuntimeError:
                    count = len(func._schema.returns)
                    return args[0] if count == 1 else (args[0],) * count

        Taking().__enter__()  # type: ignore[no-untyped-call]

    return Fault(what=f"`{names}` refuses nothing", apply=apply)


def off_by_one(names: str) -> Fault:
    """Return the fault of operators whose first value is the next one of its dtype."""
    return computes(names, "is off by one in its first value", _off_by_one)


def doubles(names: str) -> Fault:
    """Return the fault of operators that give twice their values."""
    return computes(names, "gives twice its values", lambda value, _: value * 2)


def _tensor() -> type:
    import torch

    return torch.Tensor


def _off_by_one(value: torch.Tensor, _: Mapping[str, Any] | None = None) -> torch.Tensor:
    import torch

    host = value.cpu().contiguous()
    if not host.numel():
        return value
    of_size = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    bits = host.view(of_size[host.element_size()])
    bits.view(-1)[0] += 1
    return bits.view(host.dtype).to(value.device)


def _zero(value: torch.Tensor) -> torch.Tensor:
    return value * 0


def _third(value: torch.Tensor) -> torch.Tensor:
    return value / 3


def _counts_in_its_dtype(value: torch.Tensor, _: Mapping[str, Any]) -> torch.Tensor:
    return value.clamp(max=256 if "bfloat16" in str(value.dtype) else 2048)


def _away_from_zero(value: torch.Tensor, _: Mapping[str, Any]) -> torch.Tensor:
    return value + 2 * value.sign() if value.is_floating_point() else value


def _next(value: torch.Tensor, _: Mapping[str, Any]) -> torch.Tensor:
    return value if value.is_floating_point() else (value + 1) % 5


def _no_zeros(value: torch.Tensor, _: Mapping[str, Any]) -> torch.Tensor:
    return value.masked_fill(value == 0, 1)


def _reads_its_mode(value: torch.Tensor, given: Mapping[str, Any]) -> torch.Tensor:
    return value + 1 if given.get("sparse_mode") else value


def _wider(value: torch.Tensor, _: Mapping[str, Any]) -> torch.Tensor:
    return value * (1 + 1e-5) if "float32" in str(value.dtype) else value


_FIA = "npu_fused_infer_attention_score"

OPERATORS: Mapping[str, Sequence[Fault]] = {
    "operators.rounding": [computes("add sub", "round away from zero", _away_from_zero)],
    "operators.products": [
        computes("mm bmm linear addmm matmul", "count in the dtype of x", _counts_in_its_dtype)
    ],
    "operators.scaled-products": [
        computes("addmm baddbmm", "count in the dtype of x", _counts_in_its_dtype)
    ],
    "operators.sums": [computes("sum mean", "count in the dtype of x", _counts_in_its_dtype)],
    "operators.ties": [computes("argmax argmin max", "take a later place", _next)],
    "operators.halves": [computes("npu_quantize", "has no zeros", _no_zeros)],
    "operators.not-a-number": [computes("npu_quantize", "has no zeros", _no_zeros)],
    "operators.dynamic": [computes("npu_dynamic_quant", "has no zeros", _no_zeros)],
    "operators.no-keys": [computes(_FIA, "gives 1 without keys", _no_zeros)],
    "operators.causal-with-one-query": [
        computes(_FIA, "counts the sparse mode of one query", _reads_its_mode)
    ],
    "operators.numbers": [off_by_one("add sub mul div")],
    "operators.scaled-sums": [off_by_one("add sub")],
    "operators.stepwise-products": [off_by_one("addcmul addcdiv")],
    "operators.mixed-products": [off_by_one("bmm"), takes("bmm")],
    "operators.rms-norm": [off_by_one("npu_rms_norm")],
    "operators.add-rms-norm": [off_by_one("npu_add_rms_norm")],
    "operators.rounded-sum": [off_by_one("npu_add_rms_norm")],
    "operators.add-rms-norm-cast": [
        computes("npu_add_rms_norm_cast", "is wider in float32", _wider)
    ],
    "operators.quantised-norm": [off_by_one("npu_add_rms_norm_quant")],
    "operators.dynamic-sum": [doubles("npu_add_rms_norm_dynamic_quant")],
    "operators.with-beta": [off_by_one("npu_add_rms_norm_quant")],
    "operators.scale-dtypes": [takes("npu_add_rms_norm_quant")],
    "operators.interleaved": [doubles("npu_interleave_rope")],
    "operators.lstm-cell": [doubles("_thnn_fused_lstm_cell")],
    "operators.matrix-vector": [off_by_one("addmv")],
    "operators.one-length": [doubles(_FIA)],
    "operators.older-attention": [
        doubles("npu_prompt_flash_attention"),
        doubles("npu_incre_flash_attention"),
    ],
    "operators.latent-statistics": [doubles(_FIA)],
    "operators.quantised-latent-keys": [doubles("npu_kv_quant_sparse_flash_attention")],
    "operators.prolog": [writes("npu_mla_prolog_v3", "kv_cache", "is off by one", _off_by_one)],
    "operators.prolog-by-tile": [writes("npu_mla_prolog_v3", "kv_cache", "stores 0", _zero)],
    "operators.image-formats": [off_by_one("npu_format_cast")],
    "operators.normalised-rows": [writes("npu_kv_rmsnorm_rope_cache", 6, "stores 0", _zero)],
    "operators.quantised-blocks": [off_by_one("npu_dynamic_block_quant")],
    "operators.gelu": [doubles("gelu")],
    "operators.geglu": [doubles("npu_geglu")],
    "operators.rotary": [doubles("npu_rotary_mul")],
    "operators.accumulation": [
        computes("mse_loss avg_pool2d", "count in the dtype of x", _counts_in_its_dtype)
    ],
    "operators.layer-norms": [doubles("_softmax")],
    "operators.dropout-masks": [computes("native_dropout", "has no zeros", _no_zeros)],
    "operators.pooling-gradient": [off_by_one("max_pool2d_with_indices_backward")],
    "operators.uniform": [writes("uniform_", 0, "draws a third", _third)],
    "operators.without-replacement": [
        computes("multinomial", "draws the last first", lambda value, _: value.flip(-1))
    ],
    "operators.top-k-top-p": [off_by_one("npu_top_k_top_p_sample")],
    "operators.statuses": [
        answer("aclnnInplaceAddsGetWorkspaceSize", 161001),
        nothing_done("aclnnInplaceAdds", from_call=2),
    ],
    "operators.refused-dtypes": [takes("npu_rms_norm")],
    "operators.other-products": [takes("npu_dynamic_mx_quant")],
    "operators.scalars-and-strides": [
        computes("exp", "gives a vector for a scalar", lambda value, _: value.reshape(1))
    ],
    "operators.shapes-of-results": [
        computes("nonzero", "leaves out the last", lambda value, _: value[:-1])
    ],
    "operators.rows-past-lengths": [computes(_FIA, "has no zeros", _no_zeros)],
    "operators.compressed-mask": [doubles(_FIA)],
    "operators.shared-prefix": [doubles(_FIA)],
    "operators.padding-on-the-left": [doubles(_FIA)],
    "operators.position-shift": [doubles(_FIA)],
    "operators.quantised-output": [off_by_one(_FIA)],
    "operators.sparse-attention": [
        computes("npu_sparse_flash_attention", "has no zeros", _no_zeros)
    ],
    "operators.indexer": [off_by_one("npu_lightning_indexer")],
    "operators.indexer-of-few-keys": [off_by_one("npu_lightning_indexer")],
    "operators.delta-rule": [doubles("npu_recurrent_gated_delta_rule")],
    "operators.expert-ties": [off_by_one("npu_moe_gating_top_k_softmax")],
    "operators.expert-weights": [off_by_one("npu_moe_gating_top_k")],
    "operators.expert-rows": [off_by_one("npu_moe_init_routing_v2")],
    "operators.expert-sums": [off_by_one("npu_moe_finalize_routing")],
    "operators.grouped-products": [doubles("npu_grouped_matmul")],
    "operators.cache-slots": [writes("npu_scatter_pa_kv_cache", 2, "is off by one", _off_by_one)],
    "operators.cache-pages": [writes("npu_gather_pa_kv_cache", 4, "is off by one", _off_by_one)],
    "operators.nz-format": [off_by_one("mm")],
    "operators.plain-format": [off_by_one("npu_format_cast")],
    "operators.flash-statistics": [doubles("npu_fusion_attention")],
    "operators.flash-hidden-rows": [computes("npu_fusion_attention", "has no zeros", _no_zeros)],
    "operators.torch-attention": [doubles("npu_fusion_attention npu_fusion_attention_v3")],
    "operators.joined-rings": [doubles("npu_ring_attention_update")],
    "operators.atb-paged-attention": [
        writes("_npu_paged_attention", "out", "is off by one", _off_by_one)
    ],
    "operators.atb-quantising": [
        writes("_npu_quantize_per_tensor", 3, "is off by one", _off_by_one)
    ],
    "operators.atb-norm": [writes("_npu_quant_rms_norm", 5, "is off by one", _off_by_one)],
    "operators.int4": [off_by_one("npu_quantize")],
    "operators.scale-of-quantising": [off_by_one("npu_quantize")],
    "operators.smoothed-groups": [off_by_one("npu_dynamic_quant")],
    "operators.only-by-token": [takes("npu_dynamic_quant")],
    "operators.quantised-swiglu": [doubles("npu_swiglu_quant")],
    "operators.quantised-groups": [off_by_one("npu_group_quant")],
    "operators.kronecker": [off_by_one("npu_kronecker_quant")],
    "operators.shortened-scales": [off_by_one("npu_trans_quant_param")],
    "operators.quantised-products": [off_by_one("npu_quant_matmul")],
    "operators.weights-of-int8": [doubles("npu_weight_quant_batchmatmul")],
}
"""Faults, by probe."""
