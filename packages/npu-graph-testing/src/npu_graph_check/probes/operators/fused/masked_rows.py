"""Results of fused attention for rows and sequences without keys, and for its mask and sinks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from npu_graph_check.probe import Look

_HEADS, _DIM, _BLOCK, _COLUMNS, _SEQUENCES = 2, 64, 128, 2, 3


class _Attention:
    """One decode step over a paged cache, of three sequences."""

    def __init__(self, look: Look) -> None:
        self.on = look.on
        generator = torch.Generator().manual_seed(0)

        def random(*shape: int) -> torch.Tensor:
            return torch.randn(shape, generator=generator).to(torch.float16)

        self.query = random(_SEQUENCES, _HEADS, _DIM)
        self.cache = random(_SEQUENCES * _COLUMNS, _BLOCK, _HEADS * _DIM)
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

    def expected(self, sequence: int, length: int) -> torch.Tensor:
        """Return ``[heads, dim]`` of one sequence, in float64."""
        rows = self.cache.view(_SEQUENCES, _COLUMNS * _BLOCK, _HEADS, _DIM)[sequence, :length]
        keys = rows.double()
        scores = torch.einsum("hd,khd->hk", self.query[sequence].double(), keys) * _DIM**-0.5
        return torch.einsum("hk,khd->hd", scores.softmax(-1), keys)


def no_keys(look: Look) -> None:
    """Attend with a sequence of no keys between two others."""
    attention = _Attention(look)
    lengths = [150, 0, 7]
    output, sums = attention.run(lengths)
    look.expect("output without keys", bool((output[1] == 0).all()), True)
    look.expect("log-sum-exp without keys", sums[1].reshape(-1).tolist(), [float("inf")] * _HEADS)
    for sequence in (0, 2):
        close = torch.allclose(
            output[sequence].double(),
            attention.expected(sequence, lengths[sequence]),
            rtol=2e-3,
            atol=2e-3,
        )
        look.expect(f"sequence of {lengths[sequence]} keys is its softmax", close, True)


def causal_with_one_query(look: Look) -> None:
    """Compare sparse mode 3 and its mask with no mask, where each sequence has one query."""
    attention = _Attention(look)
    lengths = [150, 33, 7]
    plain, _ = attention.run(lengths)
    mask = torch.triu(torch.ones(2048, 2048, dtype=torch.int8), diagonal=1).to(attention.on)
    masked, _ = attention.run(lengths, sparse_mode=3, atten_mask=mask)
    look.expect("sparse mode 3 equals no mask, bitwise", torch.equal(plain, masked), True)
    for sequence, length in enumerate(lengths):
        close = torch.allclose(
            plain[sequence].double(), attention.expected(sequence, length), rtol=2e-3, atol=2e-3
        )
        look.expect(f"sequence of {length} keys is its softmax", close, True)
