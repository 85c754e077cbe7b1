"""Qwen3, written once in plain torch and operators of the NPU.

The text keeps to the forms that fusion rules know: a residual addition directly followed by its
norm, and one projection split into query, key and value with their norms and rotary embedding.
Nothing in it depends on how it is run: eagerly, captured whole or in pieces.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812

from qwen3_engine.qwen3.kv_cache import new_layer_cache, write_cache

if TYPE_CHECKING:
    from qwen3_engine.qwen3.attention import AttentionOperator
    from qwen3_engine.qwen3.model_config import Qwen3Config


class Qwen3Model(nn.Module):
    """A dense Qwen3 decoder with its paged key/value cache; runs without gradients.

    Parameters are allocated but not filled; see :mod:`qwen3_engine.qwen3.model_loader`.

    Attributes:
        config: the shape of the model.
        attention: the attention operator of all layers; owned by the caller, who closes it.

    Args:
        config: see above.
        attention: see above.
        num_blocks: blocks of the key/value cache of every layer.
        max_length: positions that the rotary tables cover.
        dtype: of parameters, activations and cache.
        device: of all memory.
    """

    cos: torch.Tensor
    sin: torch.Tensor

    def __init__(
        self,
        config: Qwen3Config,
        attention: AttentionOperator,
        *,
        num_blocks: int,
        max_length: int,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        super().__init__()
        self.config = config
        self.attention = attention
        self.embedding = _parameter(config.vocab_size, config.hidden_size, like=(dtype, device))
        self.layers = nn.ModuleList(
            Qwen3Layer(
                config,
                attention,
                layer_name=f"layers.{index}",
                num_blocks=num_blocks,
                dtype=dtype,
                device=device,
            )
            for index in range(config.num_layers)
        )
        self.final_norm = _parameter(config.hidden_size, like=(dtype, device))
        self.lm_head = (
            self.embedding
            if config.tie_word_embeddings
            else _parameter(config.vocab_size, config.hidden_size, like=(dtype, device))
        )
        cos, sin = _rotary_tables(config, max_length)
        self.register_buffer("cos", cos.to(device, dtype), persistent=False)
        self.register_buffer("sin", sin.to(device, dtype), persistent=False)

    def forward(
        self,
        input_ids: torch.Tensor,
        positions: torch.Tensor,
        slot_mapping: torch.Tensor,
        block_table: torch.Tensor,
    ) -> torch.Tensor:
        """Run all layers over the tokens of a step; set the step state before.

        Args:
            input_ids: ``[T]``, int32, all tokens of the step, sequence after sequence.
            positions: ``[T]``, int64, below ``max_length``.
            slot_mapping: ``[T]``, int32, the cache slot of each token.
            block_table: ``[S, max_blocks]``, int32, the blocks of each sequence.

        Returns:
            ``[T, hidden_size]``: normed hidden states, for :meth:`compute_logits`.
        """
        head_dim, eps = self.config.head_dim, self.config.rms_norm_eps
        layers = [layer for layer in self.layers if isinstance(layer, Qwen3Layer)]
        cos = self.cos.index_select(0, positions).view(1, -1, 1, head_dim)
        sin = self.sin.index_select(0, positions).view(1, -1, 1, head_dim)
        residual = F.embedding(input_ids, self.embedding)
        next_norms = [*(layer.input_norm for layer in layers[1:]), self.final_norm]
        normed = _rms_norm(residual, layers[0].input_norm, eps)
        for layer, next_norm in zip(layers, next_norms, strict=True):
            attended = layer.attend(normed, cos, sin, slot_mapping, block_table)
            residual = attended + residual
            normed = _rms_norm(residual, layer.post_attention_norm, eps)
            residual = layer.feed_forward(normed) + residual
            normed = _rms_norm(residual, next_norm, eps)
        return normed

    def compute_logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return the logits ``[n, vocab_size]`` of hidden states ``[n, hidden_size]``."""
        return F.linear(hidden, self.lm_head)


class Qwen3Layer(nn.Module):
    """One decoder layer: its weights, its caches, and its two halves.

    Args:
        config: the shape of the model.
        attention: the attention operator; gets a layer of this name.
        layer_name: unique in the model.
        num_blocks: blocks of the two caches.
        dtype: of parameters and caches.
        device: of all memory.
    """

    key_cache: torch.Tensor
    value_cache: torch.Tensor

    def __init__(
        self,
        config: Qwen3Config,
        attention: AttentionOperator,
        *,
        layer_name: str,
        num_blocks: int,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        super().__init__()
        attention.add_layer(layer_name)
        self.layer_name = layer_name
        self.config = config
        self._attention = attention
        hidden, inner, head = config.hidden_size, config.intermediate_size, config.head_dim
        like = (dtype, device)
        self.input_norm = _parameter(hidden, like=like)
        self.qkv = _parameter(config.q_size + 2 * config.kv_size, hidden, like=like)
        self.q_norm = _parameter(head, like=like)
        self.k_norm = _parameter(head, like=like)
        self.output = _parameter(hidden, config.q_size, like=like)
        self.post_attention_norm = _parameter(hidden, like=like)
        self.gate_up = _parameter(2 * inner, hidden, like=like)
        self.down = _parameter(hidden, inner, like=like)
        for name in ("key_cache", "value_cache"):
            cache = new_layer_cache(config, num_blocks=num_blocks, dtype=dtype, device=device)
            self.register_buffer(name, cache, persistent=False)

    def attend(
        self,
        normed: torch.Tensor,
        cos: torch.Tensor,
        sin: torch.Tensor,
        slot_mapping: torch.Tensor,
        block_table: torch.Tensor,
    ) -> torch.Tensor:
        """Return the attention output ``[T, hidden_size]`` of normed hidden states of that shape.

        ``cos`` and ``sin`` are ``[1, T, 1, head_dim]``; the rest is as in the model.
        """
        config = self.config
        num_heads, num_kv_heads, head_dim = config.num_heads, config.num_kv_heads, config.head_dim
        eps = config.rms_norm_eps
        qkv = F.linear(normed, self.qkv)
        sizes = [config.q_size, config.kv_size, config.kv_size]
        q, k, v = qkv.split(sizes, dim=-1)  # type: ignore[no-untyped-call]
        q = _rms_norm(q.reshape(-1, num_heads, head_dim), self.q_norm, eps)
        k = _rms_norm(k.reshape(-1, num_kv_heads, head_dim), self.k_norm, eps)
        q = torch.ops.npu.npu_rotary_mul(q.unsqueeze(0), cos, sin).squeeze(0)
        k = torch.ops.npu.npu_rotary_mul(k.unsqueeze(0), cos, sin).squeeze(0)
        v = v.reshape(-1, num_kv_heads, head_dim)
        write_cache(k, self.key_cache, slot_mapping)
        write_cache(v, self.value_cache, slot_mapping)
        out = torch.empty_like(q)
        self._attention.operator(
            q, self.key_cache, self.value_cache, block_table, out, self.layer_name
        )
        return F.linear(out.reshape(-1, config.q_size), self.output)

    def feed_forward(self, normed: torch.Tensor) -> torch.Tensor:
        """Return the gated feed-forward output ``[T, hidden_size]``."""
        gate_up = F.linear(normed, self.gate_up)
        gate, up = gate_up.chunk(2, dim=-1)
        return F.linear(F.silu(gate) * up, self.down)


def _rms_norm(states: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    normed: torch.Tensor = torch.ops.npu.npu_rms_norm(states, weight, eps)[0]
    return normed


def _parameter(*shape: int, like: tuple[torch.dtype, torch.device]) -> nn.Parameter:
    dtype, device = like
    return nn.Parameter(torch.empty(shape, dtype=dtype, device=device), requires_grad=False)


def _rotary_tables(config: Qwen3Config, max_length: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return cosine and sine ``[max_length, head_dim]``, float32, CPU.

    Angle of position p and pair i: ``p * theta ** (-2i / head_dim)`` (RoFormer, arXiv 2104.09864);
    both halves of a row are equal, as the operator pairs element i with i + head_dim / 2.
    """
    exponents = torch.arange(0, config.head_dim, 2, dtype=torch.float32) / config.head_dim
    frequencies = 1.0 / config.rope_theta**exponents
    angles = torch.outer(torch.arange(max_length, dtype=torch.float32), frequencies)
    angles = torch.cat([angles, angles], dim=-1)
    return angles.cos(), angles.sin()
