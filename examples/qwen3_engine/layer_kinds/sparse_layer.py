"""A decoder layer with sparse latent attention, in the form of DeepSeek V4.

All heads share one latent key, which is the value too. A row sees the keys of a window and, in a
layer with an indexer, further keys that the indexer chooses in a second cache.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812

from qwen3_engine.layer_kinds.step_metadata import CHOSEN, HEADS, WIDTH, Rule
from qwen3_engine.qwen3.kv_cache import BLOCK_SIZE, write_cache
from qwen3_engine.qwen3.model import Qwen3Layer
from qwen3_engine.qwen3.model_operator import ModelOperator

if TYPE_CHECKING:
    from attn_update import Recorder
    from qwen3_engine.layer_kinds.step_metadata import StepMetadata
    from qwen3_engine.qwen3.attention import Mark
    from qwen3_engine.serving.step_state import StepState

INDEX_HEADS, INDEX_WIDTH = 8, 128
# So few that most sequences have more keys; the rest of an index row is empty.
CANDIDATES = 16
_SCHEMA = (
    "(Tensor query, Tensor cache, Tensor? chosen_cache, Tensor? index_query, Tensor? index_cache, "
    "Tensor? index_weights, Tensor block_table, Tensor(a!) out, str layer_name) -> ()"
)


class SparseAttentionOperator(ModelOperator):
    """The indexer and the attention of all layers, as one torch operator.

    Args:
        step_state: the lengths of the next step, which say how many rows it has.
        recorder: runs both operators.
        metadata: the buffers that they read.
        mark: decorates the operator's function.
    """

    def __init__(
        self, step_state: StepState, recorder: Recorder, metadata: StepMetadata, mark: Mark
    ) -> None:
        self._step_state = step_state
        self._recorder = recorder
        self._metadata = metadata
        self._sinks = torch.zeros(HEADS).to(metadata.query_ends.device)
        super().__init__("sparse_model", "sparse_attention", _SCHEMA, mark(self._run))

    def _run(
        self,
        query: torch.Tensor,
        cache: torch.Tensor,
        chosen_cache: torch.Tensor | None,
        index_query: torch.Tensor | None,
        index_cache: torch.Tensor | None,
        index_weights: torch.Tensor | None,
        block_table: torch.Tensor,
        out: torch.Tensor,
        layer_name: str,
    ) -> None:
        sequences = len(self._step_state.kv_lengths)
        tokens = self._step_state.cumulative_query_lengths[-1]
        table = block_table[:sequences]
        rule = Rule.WINDOW if chosen_cache is None else Rule.CHOSEN
        arguments = {"ori_kv": cache, "ori_block_table": table, "sinks": self._sinks}
        if chosen_cache is not None:
            assert index_query is not None
            assert index_weights is not None
            found = self._recorder.attention(
                layer_name,
                "lightning_indexer",
                {
                    "query": index_query[:tokens],
                    "key": index_cache,
                    "weights": index_weights[:tokens],
                    "actual_seq_lengths_query": self._metadata.query_ends[1 : sequences + 1],
                    "actual_seq_lengths_key": self._metadata.keys[:sequences],
                    "block_table": table,
                    "layout_query": "TND",
                    "layout_key": "PA_BSND",
                    "sparse_count": CANDIDATES,
                },
                launch="indexer",
            )[0]
            arguments |= {"cmp_kv": chosen_cache, "cmp_block_table": table}
            arguments["cmp_sparse_indices"] = F.pad(found, (0, CHOSEN - CANDIDATES), value=-1)
        attended = self._recorder.attention(
            layer_name,
            "sparse_flash_mla",
            {
                "q": query[:tokens],
                **arguments,
                **self._metadata.lengths(rule, sequences),
                "metadata": self._metadata.buffers[rule],
                "softmax_scale": WIDTH**-0.5,
            },
        )[0]
        out[:tokens].copy_(attended)


class SparseLayer(Qwen3Layer):
    """A layer of the example's model whose attention is sparse.

    Args:
        layer: provides norms and the feed-forward half; its key/value caches are not used.
        operator: sparse attention.
        num_blocks: blocks of each cache.
        has_indexer: whether the layer also sees keys outside of the window.
        seed: of its weights.
    """

    cache: torch.Tensor
    chosen_cache: torch.Tensor | None
    index_cache: torch.Tensor | None

    def __init__(
        self,
        layer: Qwen3Layer,
        operator: SparseAttentionOperator,
        *,
        num_blocks: int,
        has_indexer: bool,
        seed: int,
    ) -> None:
        nn.Module.__init__(self)
        self.config = layer.config
        self._operator = operator
        self.layer_name = layer.layer_name
        for name in ("input_norm", "post_attention_norm", "gate_up", "down"):
            self.register_parameter(name, getattr(layer, name))
        generator, like = torch.Generator().manual_seed(seed), layer.qkv

        def weight(*shape: int) -> nn.Parameter:
            values = torch.randn(shape, generator=generator) / shape[-1] ** 0.5
            return nn.Parameter(values.to(like.device, like.dtype), requires_grad=False)

        def kept(width: int) -> torch.Tensor:
            shape = (num_blocks, BLOCK_SIZE, 1, width)
            return torch.zeros(shape, dtype=like.dtype, device=like.device)

        hidden = self.config.hidden_size
        self.query, self.output = weight(HEADS * WIDTH, hidden), weight(hidden, HEADS * WIDTH)
        self.norm = nn.Parameter(torch.ones(WIDTH).to(like), requires_grad=False)
        self.key = weight(WIDTH, hidden)
        self.register_buffer("cache", kept(WIDTH))
        self.register_buffer("chosen_cache", kept(WIDTH) if has_indexer else None)
        self.register_buffer("index_cache", kept(INDEX_WIDTH) if has_indexer else None)
        if has_indexer:
            self.chosen_key, self.index_key = weight(WIDTH, hidden), weight(INDEX_WIDTH, hidden)
            self.index_query = weight(INDEX_HEADS * INDEX_WIDTH, hidden)
            self.index_weights = weight(INDEX_HEADS, hidden)

    def attend(
        self,
        normed: torch.Tensor,
        cos: torch.Tensor,
        sin: torch.Tensor,
        slot_mapping: torch.Tensor,
        block_table: torch.Tensor,
    ) -> torch.Tensor:
        """Return the attention output of normed hidden states, both ``[T, hidden_size]``."""
        query = self._latent(normed, self.query, cos, sin)
        write_cache(self._latent(normed, self.key, cos, sin), self.cache, slot_mapping)
        index_query = index_weights = None
        if self.chosen_cache is not None:
            assert self.index_cache is not None
            chosen = self._latent(normed, self.chosen_key, cos, sin)
            write_cache(chosen, self.chosen_cache, slot_mapping)
            write_cache(F.linear(normed, self.index_key), self.index_cache, slot_mapping)
            index_query = F.linear(normed, self.index_query)
            index_query = index_query.reshape(-1, INDEX_HEADS, INDEX_WIDTH)
            index_weights = F.linear(normed, self.index_weights)
        out = torch.zeros_like(query)
        self._operator.operator(
            query,
            self.cache,
            self.chosen_cache,
            index_query,
            self.index_cache,
            index_weights,
            block_table,
            out,
            self.layer_name,
        )
        return F.linear(out.reshape(-1, HEADS * WIDTH), self.output)

    def _latent(
        self, normed: torch.Tensor, weight: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor
    ) -> torch.Tensor:
        """Return projected and normed ``[T, heads, 512]``, the last part of each head rotated."""
        projected = F.linear(normed, weight).reshape(-1, weight.shape[0] // WIDTH, WIDTH)
        latent = torch.ops.npu.npu_rms_norm(projected, self.norm, 1e-6)[0]
        rotated = cos.shape[-1]
        sizes = [WIDTH - rotated, rotated]
        still, turned = latent.split(sizes, dim=-1)
        turned = torch.ops.npu.npu_rotary_mul(turned.unsqueeze(0), cos, sin).squeeze(0)
        return torch.cat([still, turned], dim=-1)
