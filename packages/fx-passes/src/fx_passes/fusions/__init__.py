"""Fusions for NPUs, one a file, each a function that returns rules."""

from fx_passes.fusions.activations.clipped_swiglu import fuse_clipped_swiglu
from fx_passes.fusions.activations.gated_halves import fuse_geglu, fuse_swiglu
from fx_passes.fusions.activations.swiglu_quant import (
    fuse_swiglu_dynamic_quant,
    fuse_swiglu_mx_quant,
    fuse_swiglu_quant,
)
from fx_passes.fusions.heads.batch_matmul_transpose import fuse_batch_matmul_transpose
from fx_passes.fusions.heads.split_qkv_rms_norm_cache import (
    fuse_split_qkv_rms_norm_mrope,
    fuse_split_qkv_rms_norm_rotary_embedding,
)
from fx_passes.fusions.heads.split_qkv_rms_norm_rope import fuse_split_qkv_rms_norm_rope
from fx_passes.fusions.norms.add_rms_norm import fuse_add_rms_norm
from fx_passes.fusions.norms.add_rms_norm_cast import fuse_add_rms_norm_cast
from fx_passes.fusions.norms.add_rms_norm_dynamic_quant import fuse_add_rms_norm_dynamic_quant
from fx_passes.fusions.norms.add_rms_norm_quant import (
    fuse_add_rms_norm_quant,
    fuse_add_rms_norm_two_quants,
)
from fx_passes.fusions.norms.rms_norm_mx_quant import (
    fuse_add_rms_norm_dynamic_mx_quant,
    fuse_rms_norm_dynamic_mx_quant,
)
from fx_passes.fusions.norms.rms_norm_quant import fuse_rms_norm_quant
from fx_passes.fusions.parallel.collectives import ParallelGroup
from fx_passes.fusions.parallel.gathered_shard import remove_gather_of_own_shard
from fx_passes.fusions.parallel.matmul_all_reduce import fuse_matmul_all_reduce
from fx_passes.fusions.parallel.sequence_parallel import shard_all_reduce_norm

__all__ = [
    "ParallelGroup",
    "fuse_add_rms_norm",
    "fuse_add_rms_norm_cast",
    "fuse_add_rms_norm_dynamic_mx_quant",
    "fuse_add_rms_norm_dynamic_quant",
    "fuse_add_rms_norm_quant",
    "fuse_add_rms_norm_two_quants",
    "fuse_batch_matmul_transpose",
    "fuse_clipped_swiglu",
    "fuse_geglu",
    "fuse_matmul_all_reduce",
    "fuse_rms_norm_dynamic_mx_quant",
    "fuse_rms_norm_quant",
    "fuse_split_qkv_rms_norm_mrope",
    "fuse_split_qkv_rms_norm_rope",
    "fuse_split_qkv_rms_norm_rotary_embedding",
    "fuse_swiglu",
    "fuse_swiglu_dynamic_quant",
    "fuse_swiglu_mx_quant",
    "fuse_swiglu_quant",
    "remove_gather_of_own_shard",
    "shard_all_reduce_norm",
]
