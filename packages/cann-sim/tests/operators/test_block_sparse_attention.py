"""Attention over chosen blocks of keys against float64, and its gradient."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch_npu

from operators.drawn_tensors import random

HEADS, DIM = 4, 128
HALVES = [torch.float16, torch.bfloat16]
Lengths = list[int]


def chosen_blocks(
    batch: int, queries: int, keys: int, shape: tuple[int, int], *, seed: int = 5
) -> torch.Tensor:
    """Blocks that leave every query at least one key, [B, N, blocks, blocks]."""
    size = (batch, HEADS, -(-queries // shape[0]), -(-keys // shape[1]))
    blocks = torch.rand(size, generator=torch.Generator().manual_seed(seed)) < 0.5
    blocks[..., 0] |= ~blocks.any(-1)
    return blocks.to(torch.int8)


def visible_keys(
    blocks: torch.Tensor, queries: int, keys: int, shape: tuple[int, int]
) -> torch.Tensor:
    whole = blocks.bool().repeat_interleave(shape[0], -2).repeat_interleave(shape[1], -1)
    return whole[..., :queries, :keys]


def attend(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, visible: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """[N, S, D] and the log of the sum, [N, S], in float64 from [N, S, D] and [KV_N, K, D]."""
    group = query.shape[0] // key.shape[0]
    key, value = (
        key.repeat_interleave(group, 0).double(),
        value.repeat_interleave(group, 0).double(),
    )
    scores = (query.double() @ key.transpose(1, 2) * 0.1).masked_fill(~visible, -torch.inf)
    return scores.softmax(-1) @ value, scores.logsumexp(-1)


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("kv_heads", [4, 1])
@pytest.mark.parametrize("packed", [False, True])
def test_attention_and_gradient_see_the_chosen_blocks(
    conformance: Any, dtype: torch.dtype, kv_heads: int, packed: bool
) -> None:
    shape = (4, 128)
    queries, keys = ([5, 7], [200, 140]) if packed else ([7, 7], [200, 200])
    blocks = chosen_blocks(2, max(queries), max(keys), shape)
    inputs = [
        [random(n, length, DIM, seed=10 * i + j, dtype=dtype) for j, length in enumerate(lengths)]
        for i, (n, lengths) in enumerate([(HEADS, queries), (kv_heads, keys), (kv_heads, keys)])
    ]

    def stored(parts: list[torch.Tensor]) -> torch.Tensor:
        if packed:
            return torch.cat([part.transpose(0, 1) for part in parts])
        return torch.stack(parts)

    leaves = [stored(parts).to("npu").requires_grad_() for parts in inputs]
    layout = "TND" if packed else "BNSD"
    output, lse = torch_npu.npu_block_sparse_attention(
        *leaves,
        blocks.to("npu"),
        list(shape),
        q_input_layout=layout,
        kv_input_layout=layout,
        num_key_value_heads=kv_heads,
        scale_value=0.1,
        inner_precise=0,
        actual_seq_lengths=queries,
        actual_seq_lengths_kv=keys,
        softmax_lse_flag=1,
    )
    weight = random(*output.shape, seed=99, dtype=dtype)
    gradients = torch.autograd.grad(output, leaves, weight.to("npu"))
    wide = [[part.double().requires_grad_() for part in parts] for parts in inputs]
    results = [
        attend(q, k, v, visible_keys(blocks[i], q.shape[1], k.shape[1], shape))
        for i, (q, k, v) in enumerate(zip(*wide, strict=True))
    ]
    expected = stored([result for result, _ in results])
    conformance.close(
        output.detach().cpu(), expected.detach(), ulps=400, magnitude=expected.abs() + 4
    )
    sums = stored([total.unsqueeze(-1) for _, total in results]).detach()
    conformance.close(lse.detach().cpu(), sums, ulps=400, magnitude=sums.abs() + 8)
    flat = [part for parts in wide for part in parts]
    own = torch.autograd.grad(expected, flat, weight.double())
    # The gradient takes the sum over weight * output from the rounded output.
    off = torch.finfo(dtype).eps * (weight.double() * expected).abs().sum(-1).max().item()
    for index, gradient in enumerate(gradients):
        wanted = stored(list(own[2 * index : 2 * index + 2]))
        magnitude = wanted.abs() + 16 + off / (400 * torch.finfo(torch.float32).eps)
        conformance.close(gradient.cpu(), wanted, ulps=400, magnitude=magnitude)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"block_shape": [4, 64]}, "argument 'blockShape'"),
        ({"num_key_value_heads": 3}, "argument 'numKeyValueHeads'"),
        ({"kv_input_layout": "TND"}, "argument 'kvInputLayout'"),
        ({"actual_seq_lengths": [4]}, "argument 'actualSeqLengthsKv'"),
        ({"inner_precise": 2}, "argument 'innerPrecise'"),
    ],
)
def test_block_sparse_attention_refuses(changes: dict[str, Any], message: str) -> None:
    x = random(1, HEADS, 4, DIM, seed=0, dtype=torch.float16).to("npu")
    blocks = torch.ones(1, HEADS, 1, 1, dtype=torch.int8).to("npu")
    options = {
        "block_shape": [4, 128],
        "q_input_layout": "BNSD",
        "kv_input_layout": "BNSD",
        "num_key_value_heads": HEADS,
        **changes,
    }
    with pytest.raises(RuntimeError, match=message):
        torch_npu.npu_block_sparse_attention(x, x, x, blocks, options.pop("block_shape"), **options)
