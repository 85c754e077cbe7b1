"""Effects of operators on memory that their schemas do not declare, with the sources."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Mapping


_RUNNING = ("running_mean", "running_var")

UNDECLARED_WRITES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        # torch: batch statistics are kept in the arguments while training (Normalization.cpp).
        "aten::batch_norm": _RUNNING,
        "aten::_batch_norm_impl_index": _RUNNING,
        "aten::native_batch_norm": _RUNNING,
        "aten::cudnn_batch_norm": _RUNNING,
        "aten::miopen_batch_norm": _RUNNING,
        "aten::instance_norm": _RUNNING,
        "aten::batch_norm_update_stats": _RUNNING,
        "aten::batch_norm_gather_stats": _RUNNING,
        "aten::batch_norm_gather_stats_with_counts": _RUNNING,
        "npu::batch_norm_gather_stats_update": _RUNNING,
        # torch_npu: the successors `npu_kv_rmsnorm_rope_cache_v2` and `npu_mla_prolog_v3` declare
        # both caches; their forms without writes are called `..._functional`.
        "npu::npu_kv_rmsnorm_rope_cache": ("k_cache", "ckv_cache"),
        "npu::npu_mla_prolog": ("kv_cache", "kr_cache"),
        "npu::npu_mla_prolog_v2": ("kv_cache", "kr_cache"),
        "atb::npu_mla_preprocess": ("kv_cache", "kv_cache_rope"),
        # CANN: aclnnRopeQuantKvcache, aclnnDequantRopeQuantKvcache take `kCacheRef`, `vCacheRef`.
        "npu::npu_rope_quant_kvcache": ("k_cache", "v_cache"),
        "npu::npu_dequant_rope_quant_kvcache": ("k_cache", "v_cache"),
        # torch_npu's document: "the result is updated in place"; CANN: `queryRef`, `keyRef`.
        "npu::npu_apply_rotary_pos_emb": ("query", "key"),
        # torch_npu: counts up in memory; the other arguments of the kind are declared.
        "npu::_npu_silent_check": ("val_counter",),
        # ATB's GroupTopk sets to zero what is not selected; the operator returns nothing.
        "atb::_npu_group_topk": ("self",),
        # vLLM-Ascend: its Triton kernel rotates contiguous queries and keys where they are, and
        # they are what it returns (rope_forward_oot); without Triton the results are new.
        "vllm::npu_rotary_embedding": ("query", "key"),
        # vLLM: the communicator reduces in place and returns its argument, which NPUs keep
        # (DeviceCommunicatorBase.all_reduce). The two of vLLM-Ascend do that, return the argument
        # as it is, or reduce and scatter it, by the engine's state at the call.
        "vllm::all_reduce": ("tensor",),
        "vllm::maybe_all_reduce_tensor_model_parallel": ("final_hidden_states",),
        "vllm::maybe_pad_and_reduce": ("x",),
        # vLLM-Ascend's C++ hands these to kernels that update them (csrc/torch_binding.cpp).
        "_C_ascend::npu_causal_conv1d_310": ("conv_states",),
        "_C_ascend::npu_causal_conv1d_custom": ("output", "conv_state"),
        "_C_ascend::npu_hamming_dist_top_k": ("indices",),
        "_C_ascend::npu_recurrent_gated_delta_rule_310": ("state",),
        "_C_ascend::npu_reshape_and_cache_bnsd": ("k_out",),
        # SGLang's kernels for NPUs (sgl-kernel-npu): the same, by its C++.
        "npu::apply_token_bitmask": ("logits",),
        "npu::cache_loc_assign": ("token_pool",),
        "npu::cache_loc_update": ("out_cache_loc",),
        "npu::causal_conv1d": ("conv_states",),
    }
)
"""Operators, and those of their arguments which they write though their schema does not say so."""

UNDECLARED_RESULTS: tuple[str, ...] = ("out", "workspace")
"""Arguments of overloads `out` that torch_npu writes where their schemas declare no write at all.

They take their results as a list (`npu_fused_infer_attention_score.out`), and scratch memory.
"""

RETURNS_MEMORY_OF_ARGUMENTS: frozenset[str] = frozenset(
    {
        # torch: views that are not declared, because autograd must not know of them.
        "aten::_unsafe_view",
        "aten::unsafe_split",
        "aten::unsafe_split_with_sizes",
        "aten::unsafe_chunk",
        "aten::_to_dense",
        # What it writes shows the other argument's memory from then on.
        "aten::set_",
        # The argument itself once the communication is done.
        "_c10d_functional::wait_tensor",
        # torch_npu: the argument itself where it has the format already.
        "npu::npu_format_cast",
        "npu::_npu_format_cast",
        "npu::npu_reshape",
        "npu::npu_dtype_cast",
        "npu::_npu_dtype_cast",
        # vLLM and vLLM-Ascend: the argument, a part of it or what was gathered, by the engine's
        # state at the call.
        "vllm::maybe_all_gather_and_maybe_unpad",
        "vllm::maybe_chunk_residual",
        "vllm::sequence_parallel_chunk_impl",
        # The C++ of vLLM-Ascend and of SGLang's kernels: they return what they say they write, and
        # do not say that.
        "_C_ascend::bgmv_expand",
        "_C_ascend::dispatch_ffn_combine",
        "_C_ascend::mla_preprocess",
        "_C_ascend::npu_ngram_spec_decode",
        "_C_ascend::sgmv_expand",
        "npu::bgmv_expand",
        "npu::sgemmc_expand",
        "npu::sgemmv_expand",
        "npu::sgmv_expand",
    }
)
"""Operators whose result may be memory of an argument though their schema does not say so.

Beside these, every operator that torch spells with other operators may return an argument, but for
those in `COMPUTES`.
"""

COMPUTES: frozenset[str] = frozenset(
    {
        "aten::linear",
        "aten::matmul",
        "aten::layer_norm",
        "aten::rms_norm",
        "aten::group_norm",
        "aten::softmax",
        "aten::log_softmax",
        "aten::conv1d",
        "aten::conv2d",
        "aten::conv3d",
        "aten::scaled_dot_product_attention",
        "aten::embedding",
        "aten::index_select",
        "aten::silu",
        "aten::gelu",
        "aten::square",
        "aten::div",
        "aten::multiply",
        "aten::subtract",
        "aten::divide",
        "aten::true_divide",
        "aten::less",
        "aten::less_equal",
        "aten::greater",
        "aten::greater_equal",
        "aten::not_equal",
        "aten::where",
        "aten::stack",
        "aten::concat",
        "aten::concatenate",
        "aten::argsort",
        "aten::max_pool2d",
        "aten::cross_entropy_loss",
    }
)
"""Operators made of others that always give memory of their own."""

ALWAYS_VIEWS: frozenset[str] = frozenset(
    {
        "aten::broadcast_to",
        "aten::chunk",
        "aten::dsplit",
        "aten::expand_as",
        "aten::hsplit",
        "aten::mT",
        "aten::movedim",
        "aten::moveaxis",
        "aten::narrow",
        "aten::numpy_T",
        "aten::swapaxes",
        "aten::swapdims",
        "aten::tensor_split",
        "aten::unflatten",
        "aten::view_as",
        "aten::vsplit",
    }
)
"""Operators made of others that return views whatever their arguments are."""

EMPTY_MEMORY: frozenset[object] = frozenset(
    {
        torch.empty,
        torch.empty_like,
        torch.ops.aten.empty.memory_format,
        torch.ops.aten.empty_like.default,
        torch.ops.aten.empty_permuted.default,
        torch.ops.aten.empty_strided.default,
        torch.ops.aten.new_empty.default,
        torch.ops.aten.new_empty_strided.default,
    }
)
"""What gives memory that holds nothing until a kernel writes it."""
