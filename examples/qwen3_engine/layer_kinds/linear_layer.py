"""A decoder layer with linear attention (gated delta rule), which keeps one state per sequence."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812

from qwen3_engine.qwen3.model import Qwen3Layer
from qwen3_engine.qwen3.model_operator import ModelOperator

if TYPE_CHECKING:
    from qwen3_engine.qwen3.attention import Mark
    from qwen3_engine.serving.step_state import StepState

_SCHEMA = (
    "(Tensor query, Tensor key, Tensor value, Tensor beta, Tensor decay, Tensor(a!) state, "
    "Tensor rows, Tensor(b!) out) -> ()"
)


class LinearAttentionOperator(ModelOperator):
    """Linear attention as a torch operator, which a graph may be split at.

    A step with one token per sequence runs the recurrent operator, which reads and writes state
    rows by their numbers, and can be captured. Other steps run the operator for whole sequences,
    whose host lengths come from the step state.

    Args:
        step_state: the lengths of the next step.
        mark: decorates the operator's function.
    """

    def __init__(self, step_state: StepState, mark: Mark) -> None:
        self._step_state = step_state
        super().__init__("hybrid_model", "linear_attention", _SCHEMA, mark(self._run))

    def _run(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        beta: torch.Tensor,
        decay: torch.Tensor,
        state: torch.Tensor,
        rows: torch.Tensor,
        out: torch.Tensor,
    ) -> None:
        scale = query.shape[-1] ** -0.5
        if query.shape[0] == rows.shape[0]:
            given = {"beta": beta, "g": decay, "scale": scale}
            ones = torch.ones(rows.shape[0], dtype=torch.int32, device=rows.device)
            out.copy_(
                torch.ops.npu.npu_recurrent_gated_delta_rule(
                    query,
                    key,
                    value,
                    state,
                    actual_seq_lengths=ones,
                    ssm_state_indices=rows,
                    **given,
                )
            )
            return
        ends = self._step_state.cumulative_query_lengths
        lengths = [end - start for start, end in zip([0, *ends[:-1]], ends, strict=True)]
        own = [number for number, length in enumerate(lengths) if length]
        tokens = sum(lengths)
        places = rows.index_select(0, torch.tensor(own).to(rows.device))
        output, last = torch.ops.npu.npu_chunk_gated_delta_rule(
            query[:tokens],
            key[:tokens],
            value[:tokens],
            beta=beta[:tokens],
            g=decay[:tokens],
            scale=scale,
            initial_state=state.index_select(0, places),
            actual_seq_lengths=torch.tensor([lengths[n] for n in own], dtype=torch.int32).to(
                rows.device
            ),
        )
        out[:tokens].copy_(output)
        state.index_copy_(0, places.to(torch.int64), last)


class LinearLayer(Qwen3Layer):
    """A layer of the example's model whose attention is linear.

    The number of a sequence's state row is that of its first cache block, so rows of padding use
    the state of the padding block.

    Args:
        layer: provides weights; its key/value cache is not used.
        operator: linear attention.
        num_rows: state rows.
    """

    state: torch.Tensor

    def __init__(self, layer: Qwen3Layer, operator: LinearAttentionOperator, num_rows: int) -> None:
        nn.Module.__init__(self)
        self.config = config = layer.config
        self._operator = operator
        for name, parameter in layer.named_parameters():
            self.register_parameter(name, parameter)
        like = layer.qkv
        shape = (2 * config.num_heads, config.hidden_size)
        gates = torch.randn(shape, generator=torch.Generator().manual_seed(5)) / 8
        self.gates = nn.Parameter(gates.to(like.device, like.dtype), requires_grad=False)
        state = torch.zeros(
            (num_rows, config.num_heads, config.head_dim, config.head_dim),
            dtype=like.dtype,
            device=like.device,
        )
        self.register_buffer("state", state)

    def attend(
        self,
        normed: torch.Tensor,
        cos: torch.Tensor,  # noqa: ARG002 - called like a layer of full attention
        sin: torch.Tensor,  # noqa: ARG002
        slot_mapping: torch.Tensor,  # noqa: ARG002
        block_table: torch.Tensor,
    ) -> torch.Tensor:
        """Return the attention output ``[T, hidden_size]`` of normed hidden states of that shape.

        Values have the heads of the example's queries, queries and keys those of its keys.
        """
        config = self.config
        heads, key_heads, dim = config.num_heads, config.num_kv_heads, config.head_dim
        sizes = [config.q_size, config.kv_size, config.kv_size]
        value, query, key = F.linear(normed, self.qkv).split(sizes, dim=-1)  # type: ignore[no-untyped-call]
        query, key = (
            torch.ops.npu.npu_rms_norm(states.reshape(-1, key_heads, dim), norm, 1e-6)[0]
            * dim**-0.5
            for states, norm in ((query, self.q_norm), (key, self.k_norm))
        )
        beta, decay = F.linear(normed, self.gates).sigmoid().chunk(2, dim=-1)
        value = value.reshape(-1, heads, dim)
        out = torch.zeros_like(value)
        self._operator.operator(
            query,
            key,
            value,
            beta.contiguous(),
            -decay.float(),
            self.state,
            block_table[:, 0].contiguous(),
            out,
        )
        return F.linear(out.reshape(-1, config.q_size), self.output)
