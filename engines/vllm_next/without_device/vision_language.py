"""Replacements for what simulated CANN cannot run of Qwen3-VL.

Nothing of the engine is edited: call `install` before you create an engine.
"""

from __future__ import annotations

import importlib

import torch
from engines.vllm_next.without_device import stand_ins


def install() -> None:
    """Replace what the simulator cannot run."""
    stand_ins.install()
    # The engine captures attention on values that are not contiguous, which the simulated operator
    # refuses (docs/upstream/vllm-ascend.md); eagerly the engine copies them.
    attention = importlib.import_module("vllm_ascend.ops.mm_encoder_attention")
    owner = attention.AscendMMEncoderAttention
    split = owner._reshape_qkv_to_3d
    owner._reshape_qkv_to_3d = lambda *given: tuple(each.contiguous() for each in split(*given))
    # As the engine declares it where Triton is there.
    declare = torch.library.custom_op("vllm::triton_split_qkv_rmsnorm_mrope", mutates_args=())
    declare(_split_normalise_rotate).register_fake(_split_normalise_rotate)


def _split_normalise_rotate(
    qkv: torch.Tensor,
    q_weight: torch.Tensor,
    k_weight: torch.Tensor,
    cos_sin: torch.Tensor,
    num_q_heads: int,
    num_kv_heads: int,
    head_size: int,
    eps: float,
    mrope_section: list[int],
    is_interleaved: bool,
    rope_dim: int | None = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Split queries, keys and values; normalise queries and keys, and rotate them.

    Args:
        qkv: [tokens, (num_q_heads + 2 * num_kv_heads) * head_size].
        q_weight: [head_size].
        k_weight: [head_size].
        cos_sin: [3, tokens, head_size], by the position in time, height and width; cosines first.
        num_q_heads: Number of heads of queries.
        num_kv_heads: Number of heads of keys.
        head_size: Size of a head.
        eps: Of both norms.
        mrope_section: How many of the angles follow the position in time, height and width.
        is_interleaved: Whether these angles alternate; they have to.
        rope_dim: Size of the rotated part of a head; it has to be all.

    Returns:
        Queries, keys, values, and an empty gate.
    """
    if not is_interleaved or rope_dim not in {None, head_size}:
        raise NotImplementedError("angles side by side, or heads that are rotated in part")
    by_time, by_height, by_width = cos_sin.unflatten(-1, (2, head_size // 2))
    chosen = by_time.clone()
    for offset, angles in ((1, by_height), (2, by_width)):
        places = slice(offset, 3 * mrope_section[offset], 3)
        chosen[..., places] = angles[..., places]
    cos, sin = chosen.repeat(1, 1, 2).unsqueeze(2).unbind(1)
    sizes = [num_q_heads * head_size, num_kv_heads * head_size, num_kv_heads * head_size]
    query, key, value = qkv.split(sizes, dim=-1)
    rotated = []
    for heads, weight in ((query, q_weight), (key, k_weight)):
        normed, _ = torch.ops.npu.npu_rms_norm(
            heads.unflatten(-1, (-1, head_size)).contiguous(), weight, eps
        )
        first, second = normed.chunk(2, dim=-1)
        turned = normed * cos + torch.cat((-second, first), dim=-1) * sin
        rotated.append(turned.flatten(-2))
    # An output may not share memory with an input.
    value = value.clone(memory_format=torch.contiguous_format)
    return rotated[0], rotated[1], value, qkv.new_empty(0)
