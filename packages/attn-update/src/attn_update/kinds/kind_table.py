"""The default tables of kinds of a recorder."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attn_update.kinds.context_parallel_attention import (
    ContextParallelAttention,
    ContextParallelLatentAttention,
)
from attn_update.kinds.device_length_attention import DeviceLengthAttention, MetadataOperator
from attn_update.kinds.flash_attention import FlashAttention
from attn_update.kinds.fused_infer_attention import (
    FIA_V1,
    FIA_V2,
    EncoderAttention,
    FusedInferAttention,
)
from attn_update.kinds.latent_attention import LatentAttention
from attn_update.kinds.paged_attention import PagedAttention

if TYPE_CHECKING:
    from attn_update.kinds.context_parallel_attention import ContextParallelRank
    from attn_update.kinds.kind import Kind


def default_kinds() -> dict[str, Kind]:
    """Return a new table from names to kinds with their default options.

    You may add to it. To use a kind with other options, create it from its class and pass it to the
    recorder instead of a name.
    """
    return {
        "encoder_attention": EncoderAttention(),
        "flash_attention_v3": FlashAttention(),
        "fused_infer_attention_v1": FusedInferAttention(family=FIA_V1),
        "fused_infer_attention_v2": FusedInferAttention(family=FIA_V2),
        "latent_attention_v1": LatentAttention(family=FIA_V1),
        "latent_attention_v2": LatentAttention(family=FIA_V2),
        "paged_attention": PagedAttention(),
        # Sparse attention, and the indexers that choose its keys.
        **{
            name: _reading(f"npu::npu_{name}", "actual_seq_lengths_query", keys)
            for name, keys in (
                ("sparse_flash_attention", "actual_seq_lengths_kv"),
                ("kv_quant_sparse_flash_attention", "actual_seq_lengths_kv"),
                ("lightning_indexer", "actual_seq_lengths_key"),
                ("quant_lightning_indexer", "actual_seq_lengths_key"),
            )
        },
    }


def metadata_kinds() -> dict[str, Kind]:
    """Return the kinds whose operators take metadata made on the device, to add to `default_kinds`.

    No release of torch_npu from 2.10 to 2.14 has these operators: the libraries that register them
    are those of vLLM-Ascend (``_C_ascend``, ``vllm_ascend``) and of the extensions of CANN that
    SGLang and others build (``custom``). A library that registers one under another name:
    ``dataclasses.replace(kind, operator=...)``.
    """
    attention = ("batch_size", "max_seqlen_q")
    indexer = (*attention, "max_seqlen_k")
    mla = (*attention, "max_seqlen_ori_kv", "max_seqlen_cmp_kv")
    mixed, shared = "mixed_quant_sparse_flash_mla", "sparse_attn_sharedkv"
    of_version_2 = _made_by("_C_ascend::npu_quant_lightning_indexer_v2_metadata", *indexer, stage=2)
    return {
        # It needs no metadata: it is here because only a library of vLLM-Ascend registers it.
        "ascend_sparse_flash_attention": _reading(
            "_C_ascend::npu_sparse_flash_attention",
            "actual_seq_lengths_query",
            "actual_seq_lengths_kv",
        ),
        # It fills the cache of compressed keys; the slots go to what writes there.
        "compressor": _reading(
            "_C_ascend::compressor",
            "cu_seqlens",
            "start_pos",
            metadata=MetadataOperator(
                argument="rope_cos",
                further=("rope_sin", None),
                operator="_C_ascend::compressor_metadata",
                bounds=frozenset({"num_compressed_tokens", "num_reqs_actual"}),
            ),
        ),
        # FIA v2 whose lengths are on the device. Replays are reported not to run what makes its
        # metadata, so that its producers do not belong into a graph.
        "fused_infer_attention_sink": _reading(
            "_C_ascend::npu_fused_infer_attention_score_v2_sink",
            "actual_seq_qlen",
            "actual_seq_kvlen",
            metadata=MetadataOperator(
                argument="meta_data",
                operator="_C_ascend::_npu_fused_infer_attention_score_v2_sink_metadata",
                bounds=frozenset({"batch_size"}),
                stage=1,
            ),
        ),
        **{
            name: _reading(
                f"_C_ascend::npu_{name}", "cu_seqlens_q", "seqused_k", metadata=of_version_2
            )
            for name in ("quant_lightning_indexer_v2", "quant_lightning_indexer_v3")
        },
        **{
            name: _reading(
                operator, "cu_seqlens_q", keys, metadata=_made_by(f"{operator}_metadata", *bounds)
            )
            for name, operator, keys, bounds in (
                (mixed, f"vllm_ascend::{mixed}", "seqused_ori_kv", mla),
                ("sparse_flash_mla", "_C_ascend::npu_sparse_flash_mla", "seqused_ori_kv", mla),
                (shared, f"custom::npu_{shared}", "seqused_kv", (*attention, "max_seqlen_kv")),
            )
        },
        "sharedkv_lightning_indexer": _reading(
            "custom::npu_quant_lightning_indexer",
            "actual_seq_lengths_query",
            "actual_seq_lengths_key",
            metadata=_made_by("custom::npu_quant_lightning_indexer_metadata", *indexer, stage=2),
        ),
    }


def context_parallel_kinds(rank: ContextParallelRank) -> dict[str, Kind]:
    """Return the kinds under context parallelism, to add to `default_kinds`.

    Args:
        rank: This process.
    """
    return {
        "context_parallel_attention": ContextParallelAttention(rank=rank),
        "context_parallel_latent_attention": ContextParallelLatentAttention(rank=rank),
    }


def _reading(
    operator: str, *lengths: str, metadata: MetadataOperator | None = None
) -> DeviceLengthAttention:
    made = () if metadata is None else (metadata,)
    return DeviceLengthAttention(
        operator=operator, length_arguments=frozenset(lengths), metadata=made
    )


def _made_by(operator: str, *bounds: str, stage: int = 1) -> MetadataOperator:
    # Stage 1 is that of attention; indexers, which choose its keys, are made ready in stage 2.
    return MetadataOperator(
        argument="metadata", operator=operator, bounds=frozenset(bounds), stage=stage
    )
