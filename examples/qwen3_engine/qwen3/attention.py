"""Attention as a custom operator, owned by one model.

The operator hides host integers, the lengths of sequences, which a graph cannot contain.
It receives tensors and the name of its layer, and passes the launch to a function: here an eager
call, in a compiled engine a recorder that can update the lengths in a captured graph. It
reads the cache and writes only its output. New keys and values are written before it,
by operators of the graph (`kv_cache.write_cache`). If a graph is cut at this operator, only
attention itself is therefore outside the captured pieces.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

import torch

from qwen3_engine.errors import BatchError, ConfigError
from qwen3_engine.qwen3.kv_cache import BLOCK_SIZE
from qwen3_engine.qwen3.model_operator import ModelOperator

if TYPE_CHECKING:
    from collections.abc import Mapping

    from qwen3_engine.qwen3.model_config import Qwen3Config
    from qwen3_engine.serving.step_state import StepState

_NAMESPACE = "qwen3_engine"

_SCHEMA = (
    "(Tensor query, Tensor key_cache, Tensor value_cache, Tensor block_table, Tensor(a!) out, "
    "str layer_name) -> ()"
)

# The operator takes causal masks compressed to this size, for any lengths (documentation of
# npu_fused_infer_attention_score, sparse_mode 2 to 4).
_COMPRESSED_MASK_SIZE = 2048

# Causal, aligned at the last query and the last key: a query token sees all keys before its own.
_RIGHT_DOWN_CAUSAL = 3

_DTYPES = (torch.bfloat16, torch.float16)


class Attend(Protocol):
    """Launches attention for one layer."""

    def __call__(self, layer_name: str, arguments: Mapping[str, object], /) -> object:
        """Launch attention on the current stream.

        Args:
            layer_name: the layer, unique in its model.
            arguments: keyword arguments of ``npu::npu_fused_infer_attention_score.out``, without a
                workspace: ``query [T, num_heads, head_dim]``; ``key`` and ``value`` are the caches
                ``[num_blocks, 128, num_kv_heads * head_dim]``; ``out`` is the list of the output
                ``[T, num_heads, head_dim]`` and an unused ``softmax_lse [1]``; lengths are host
                integers. Tensors belong to the caller.
        """


def attend_at_once(layer_name: str, arguments: Mapping[str, object], /) -> object:
    """Launch the fused attention operator directly; fits :class:`Attend`."""
    del layer_name
    return torch.ops.npu.npu_fused_infer_attention_score.out(**arguments)


Launch = Callable[..., None]
Mark = Callable[[Launch], Launch]
"""A decorator of the function behind the operator: one that says that it runs eagerly, say."""


def leave_unmarked(function: Launch) -> Launch:
    """Return the function as it is; fits :data:`Mark`."""
    return function


class AttentionOperator(ModelOperator):
    """The attention of all layers of one model, as a torch operator.

    Attributes:
        step_state: the lengths that the next forward pass reads; set them before you run the model.

    Args:
        config: provides the number and size of heads.
        dtype: dtype of query, key and value: bfloat16 or float16.
        device: device of the caches.
        attend: launches attention; called once per layer and forward pass.
        step_state: see above.
        mark: decorates the operator's function.

    Raises:
        ConfigError: the attention operator does not support the dtype.
    """

    def __init__(
        self,
        config: Qwen3Config,
        *,
        dtype: torch.dtype,
        device: torch.device,
        attend: Attend,
        step_state: StepState,
        mark: Mark = leave_unmarked,
    ) -> None:
        if dtype not in _DTYPES:
            raise ConfigError(
                f"making the attention operator: dtype is {dtype}, expected one of "
                f"{', '.join(map(str, _DTYPES))}"
            )
        self.step_state = step_state
        self._config = config
        self._attend = attend
        ones = torch.ones(_COMPRESSED_MASK_SIZE, _COMPRESSED_MASK_SIZE, dtype=torch.int8)
        self._mask = torch.triu(ones, diagonal=1).to(device)
        self._softmax_lse = torch.empty(1, dtype=torch.float32, device=device)
        self._layer_names: set[str] = set()
        super().__init__(_NAMESPACE, "attention", _SCHEMA, mark(self._run))

    def add_layer(self, layer_name: str) -> None:
        """Declare a layer; its name must be unused.

        Raises:
            ConfigError: the name is already used.
        """
        if layer_name in self._layer_names:
            raise ConfigError(f"adding the attention layer {layer_name!r}: the name is taken")
        self._layer_names.add(layer_name)

    def _run(
        self,
        query: torch.Tensor,
        key_cache: torch.Tensor,
        value_cache: torch.Tensor,
        block_table: torch.Tensor,
        out: torch.Tensor,
        layer_name: str,
    ) -> None:
        config, state = self._config, self.step_state
        num_tokens, num_sequences = self._own_rows(query, block_table, layer_name)
        if num_tokens == 0:
            return
        if num_tokens < query.shape[0]:
            query, out = query[:num_tokens], out[:num_tokens]
        if num_sequences < block_table.shape[0]:
            block_table = block_table[:num_sequences]
        self._attend(
            layer_name,
            {
                "query": query,
                "key": key_cache,
                "value": value_cache,
                "atten_mask": self._mask,
                "block_table": block_table,
                "input_layout": "TND",
                "block_size": BLOCK_SIZE,
                "num_heads": config.num_heads,
                "num_key_value_heads": config.num_kv_heads,
                "scale": config.head_dim**-0.5,
                "sparse_mode": _RIGHT_DOWN_CAUSAL,
                "actual_seq_lengths": state.cumulative_query_lengths,
                "actual_seq_lengths_kv": state.kv_lengths,
                "out": [out, self._softmax_lse],
            },
        )

    def _own_rows(
        self, query: torch.Tensor, block_table: torch.Tensor, layer_name: str
    ) -> tuple[int, int]:
        """Return the tokens and sequences of the step; further rows of its tensors are padding."""
        state = self.step_state
        num_tokens = state.cumulative_query_lengths[-1] if state.cumulative_query_lengths else 0
        num_sequences = len(state.cumulative_query_lengths)
        if (
            num_tokens > query.shape[0]
            or num_sequences > block_table.shape[0]
            or num_sequences != len(state.kv_lengths)
            or (not state.is_padded and num_tokens != query.shape[0])
            or (not state.is_padded and num_sequences != block_table.shape[0])
        ):
            raise BatchError(
                f"running the attention of layer {layer_name!r}: the tensors are of "
                f"{query.shape[0]} tokens and {block_table.shape[0]} sequences, the step state of "
                f"{num_tokens} tokens, {num_sequences} query lengths and {len(state.kv_lengths)} "
                "key lengths; load the step state before each forward pass"
            )
        if layer_name not in self._layer_names:
            near = difflib.get_close_matches(layer_name, sorted(self._layer_names), n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise BatchError(f"running attention: there is no layer {layer_name!r}{hint}")
        return num_tokens, num_sequences
