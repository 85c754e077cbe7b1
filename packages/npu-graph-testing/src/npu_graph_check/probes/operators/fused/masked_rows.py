"""Results of fused attention for rows and sequences without keys, and for its mask and sinks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from npu_graph_check.probes.operators.agreement import drawn

if TYPE_CHECKING:
    from npu_graph_check.probe import Look

_HEADS, _DIM, _BLOCK, _COLUMNS, _SEQUENCES = 2, 64, 128, 2, 3


class _Attention:
    """One decode step over a paged cache, of three sequences."""

    def __init__(self, look: Look) -> None:
        self.on = look.on
        self.query = drawn(_SEQUENCES, _HEADS, _DIM, seed=0).half()
        self.cache = drawn(_SEQUENCES * _COLUMNS, _BLOCK, _HEADS * _DIM, seed=1).half()
        self.table = torch.arange(_SEQUENCES * _COLUMNS, dtype=torch.int32).view(_SEQUENCES, -1)

    def run(self, lengths: list[int], **more: Any) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the output ``[3, heads, dim]`` and the log-sum-exp, both on the CPU."""
        query, cache = self.query.to(self.on), self.cache.to(self.on)
        output, sums = torch.ops.npu.npu_fused_infer_attention_score(
            query,
            cache,
            cache,
            block_table=self.table.to(self.on),
            actual_seq_lengths=list(range(1, _SEQUENCES + 1)),
            actual_seq_lengths_kv=lengths,
            num_heads=_HEADS,
            num_key_value_heads=_HEADS,
            scale=_DIM**-0.5,
            input_layout="TND",
            block_size=_BLOCK,
            softmax_lse_flag=True,
            **more,
        )
        return output.cpu(), sums.cpu()

    def expect_softmax(self, look: Look, output: torch.Tensor, sequence: int, length: int) -> None:
        """Compare ``[heads, dim]`` of one sequence with its softmax in float64."""
        rows = self.cache.view(_SEQUENCES, _COLUMNS * _BLOCK, _HEADS, _DIM)[sequence, :length]
        keys = rows.double()
        scores = torch.einsum("hd,khd->hk", self.query[sequence].double(), keys) * _DIM**-0.5
        expected = torch.einsum("hk,khd->hd", scores.softmax(-1), keys)
        close = torch.allclose(output[sequence].double(), expected, rtol=2e-3, atol=2e-3)
        look.expect(f"sequence of {length} keys is its softmax", close, True)


def no_keys(look: Look) -> None:
    """Attend with a sequence of no keys between two others."""
    attention = _Attention(look)
    lengths = [150, 0, 7]
    output, sums = attention.run(lengths)
    look.expect("output without keys", bool((output[1] == 0).all()), True)
    look.expect("log-sum-exp without keys", sums[1].reshape(-1).tolist(), [float("inf")] * _HEADS)
    for sequence in (0, 2):
        attention.expect_softmax(look, output, sequence, lengths[sequence])


def causal_with_one_query(look: Look) -> None:
    """Compare sparse mode 3 and its mask with no mask, where each sequence has one query."""
    attention = _Attention(look)
    lengths = [150, 33, 7]
    plain, _ = attention.run(lengths)
    mask = torch.triu(torch.ones(2048, 2048, dtype=torch.int8), diagonal=1).to(attention.on)
    masked, _ = attention.run(lengths, sparse_mode=3, atten_mask=mask)
    look.expect("sparse mode 3 equals no mask, bitwise", torch.equal(plain, masked), True)
    for sequence, length in enumerate(lengths):
        attention.expect_softmax(look, plain, sequence, length)
