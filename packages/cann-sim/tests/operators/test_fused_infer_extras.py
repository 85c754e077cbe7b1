"""Rarer parts of fused infer attention: prefix, padding, shift, quantised output, paged scales."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
import torch_npu

from operators import drawn_tensors

HEADS, KV_HEADS, DIM, BATCH, LENGTH, KEYS = 4, 2, 64, 2, 3, 6
DTYPE = torch.float16
random = partial(drawn_tensors.random, dtype=DTYPE)


def attend(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, shift: torch.Tensor | None = None
) -> torch.Tensor:
    """[N, S, D] in float64 of one sequence."""
    group = HEADS // KV_HEADS
    key, value = (t.double().repeat_interleave(group, 0) for t in (key, value))
    scores = query.double() @ key.mT * 0.1
    return (scores if shift is None else scores + shift.double()).softmax(-1) @ value


def run(query: torch.Tensor, key: Any, value: Any, **changes: Any) -> torch.Tensor:
    arguments = {
        "num_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "input_layout": "BNSD",
        "scale": 0.1,
        **changes,
    }
    device = {k: v.to("npu") if isinstance(v, torch.Tensor) else v for k, v in arguments.items()}
    result = torch_npu.npu_fused_infer_attention_score(
        query.to("npu"), key.to("npu"), value.to("npu"), **device
    )
    output: torch.Tensor = result[0].cpu()
    return output


def inputs(length: int = LENGTH) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    query = random(BATCH, HEADS, length, DIM, seed=0)
    key, value = (random(BATCH, KV_HEADS, KEYS, DIM, seed=s) for s in (1, 2))
    return query, key, value


def close(conformance: Any, result: torch.Tensor, reference: torch.Tensor) -> None:
    conformance.close(result, reference, ulps=200, magnitude=torch.tensor(4.0).double())


@pytest.mark.parametrize("own", [None, [3]])
def test_shared_prefix_precedes_every_sequence(conformance: Any, own: list[int] | None) -> None:
    query, key, value = inputs()
    prefix = [random(1, KV_HEADS, 5, DIM, seed=s) for s in (3, 4)]
    result = run(
        query,
        key,
        value,
        key_shared_prefix=prefix[0],
        value_shared_prefix=prefix[1],
        actual_shared_prefix_len=own,
    )
    length = own[0] if own else 5
    for index in range(BATCH):
        parts = [
            torch.cat([p[0, :, :length], t[index]], 1)
            for p, t in zip(prefix, (key, value), strict=True)
        ]
        close(conformance, result[index], attend(query[index], *parts))


def test_padding_on_the_left_moves_the_rows(conformance: Any) -> None:
    query, key, value = inputs()
    result = run(
        query,
        key,
        value,
        actual_seq_lengths=[2, 1],
        actual_seq_lengths_kv=[4, 3],
        query_padding_size=torch.tensor([1]),
        kv_padding_size=torch.tensor([2]),
    )
    for index, (rows, keys) in enumerate(((2, 4), (1, 3))):
        begin, first = LENGTH - 1 - rows, KEYS - 2 - keys
        own = slice(begin, begin + rows)
        expected = attend(
            query[index, :, own], *(t[index, :, first : first + keys] for t in (key, value))
        )
        close(conformance, result[index, :, own], expected)
        assert result[index, :, own.stop :].eq(0).all()


@pytest.mark.parametrize("batch", [1, BATCH])
@pytest.mark.parametrize("length", [1, LENGTH])
def test_position_shift_is_added(conformance: Any, batch: int, length: int) -> None:
    query, key, value = inputs(length)
    shift = random(batch, HEADS, length, KEYS + 2, seed=5)
    result = run(query, key, value, pse_shift=shift)
    for index in range(BATCH):
        own = shift[index % batch, :, :, :KEYS]
        close(conformance, result[index], attend(query[index], key[index], value[index], own))


@pytest.mark.parametrize("by_channel", [False, True])
def test_output_is_quantised(conformance: Any, by_channel: bool) -> None:
    query, key, value = inputs()
    shape = (HEADS * DIM,) if by_channel else (1,)
    scale = random(*shape, seed=6, dtype=torch.float32).abs() * 40
    offset = random(*shape, seed=7, dtype=torch.float32)
    result = run(query, key, value, quant_scale2=scale, quant_offset2=offset)
    assert result.dtype == torch.int8

    def spread(t: torch.Tensor) -> torch.Tensor:
        return t.double().view(HEADS, 1, DIM) if by_channel else t.double()

    for index in range(BATCH):
        expected = attend(query[index], key[index], value[index]) * spread(scale) + spread(offset)
        conformance.quantized(result[index], expected, slack=1e-2)


@pytest.mark.parametrize("mode", [2, 3, 4, 5])
def test_decode_dequantises_by_head_and_by_page(conformance: Any, mode: int) -> None:
    block, blocks, lengths = 16, 5, [20, 9]
    paged = mode >= 4
    generator = torch.Generator().manual_seed(1)
    shape = (blocks, KV_HEADS, block, DIM) if paged else (BATCH, KV_HEADS, 32, DIM)
    caches = [torch.randint(-127, 128, shape, generator=generator) for _ in range(2)]
    query = random(BATCH, HEADS, 1, DIM, seed=0)
    sizes = {
        2: (KV_HEADS,),
        3: (BATCH, KV_HEADS, 32),
        4: (blocks, block),
        5: (blocks, KV_HEADS, block),
    }[mode]
    own = DTYPE if mode == 2 else torch.float32
    scales = [random(*sizes, seed=s, dtype=torch.float32).abs().mul(0.02).to(own) for s in (2, 3)]
    table = torch.tensor([[3, 1], [0, 4]]).int()
    result = run(
        query,
        caches[0].to(torch.int8),
        caches[1].to(torch.int8),
        actual_seq_lengths_kv=lengths,
        block_table=table if paged else None,
        block_size=block if paged else 0,
        key_antiquant_scale=scales[0],
        value_antiquant_scale=scales[1],
        key_antiquant_mode=mode,
        value_antiquant_mode=mode,
    )
    for index, length in enumerate(lengths):
        parts = []
        for cache, scale in zip(caches, scales, strict=True):
            if paged:
                rows = cache[table[index].long()].transpose(1, 2).flatten(0, 1)
                steps = scale[table[index].long()]
                steps = steps.flatten()[:, None] if mode == 4 else steps.mT.flatten(0, 1)
                values = rows[:length].double() * steps[:length].double().unsqueeze(-1)
                parts.append(values.transpose(0, 1))
            else:
                steps = scale.view(-1, 1, 1) if mode == 2 else scale[index, :, :length, None]
                parts.append(cache[index, :, :length].double() * steps.double())
        close(conformance, result[index], attend(query[index], *parts))


def test_pages_in_pieces_of_32_bytes(conformance: Any) -> None:
    block, blocks, lengths = 16, 5, [20, 9]
    query = random(BATCH, HEADS, 1, DIM, seed=0)
    plain = [random(blocks, block, KV_HEADS, DIM, seed=s) for s in (1, 2)]
    pieces = [
        t.view(blocks, block, KV_HEADS, DIM // 16, 16).permute(0, 2, 3, 1, 4).contiguous()
        for t in plain
    ]
    table = torch.tensor([[3, 1], [0, 4]]).int()
    result = run(query, *pieces, actual_seq_lengths_kv=lengths, block_table=table, block_size=block)
    for index, length in enumerate(lengths):
        parts = [t[table[index].long()].flatten(0, 1)[:length].transpose(0, 1) for t in plain]
        close(conformance, result[index], attend(query[index], *parts))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"key_shared_prefix": torch.ones(1, 2, 4, 64).half()}, "both prefixes"),
        ({"pse_shift": torch.ones(1, 4, 2, 6).half()}, "argument 'pseShift'"),
        ({"query_padding_size": torch.tensor([1])}, "argument 'queryPaddingSize'"),
    ],
)
def test_extras_are_refused_where_they_do_not_fit(changes: dict[str, Any], message: str) -> None:
    query, key, value = inputs()
    with pytest.raises(RuntimeError, match=message):
        run(query, key, value, **changes)
