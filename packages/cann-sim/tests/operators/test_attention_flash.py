"""FlashAttentionScore, forward, against float64."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch_npu

from operators.drawn_tensors import random
from operators.flash_reference import (
    BATCH,
    COMPRESSED,
    DIM,
    FLOATS,
    HEADS,
    KEYS,
    LAYOUTS,
    LENGTH,
    attend,
    attend_apart,
    scores_of,
    weights_with_sink,
)


def close(conformance: Any, result: torch.Tensor, reference: torch.Tensor) -> None:
    conformance.close(result, reference, ulps=200, magnitude=torch.tensor(4.0).double())


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("kv_heads", [4, 2, 1])
def test_layouts_and_statistics(
    conformance: Any, layout: str, dtype: torch.dtype, kv_heads: int
) -> None:
    query = random(BATCH, LENGTH, HEADS, DIM, seed=0, dtype=dtype)
    key, value = (random(BATCH, KEYS, kv_heads, DIM, seed=s, dtype=dtype) for s in (1, 2))
    store = LAYOUTS[layout]
    result = torch_npu.npu_fusion_attention(
        store(query).to("npu"),
        store(key).to("npu"),
        store(value).to("npu"),
        HEADS,
        layout,
        scale=0.2,
    )
    scores = scores_of(query, key, 0.2)
    close(conformance, result[0].cpu(), store(attend(scores, value)))
    largest = scores.amax(-1)
    for statistic, expected in (
        (result[1], largest),
        (result[2], (scores - largest[..., None]).exp().sum(-1)),
    ):
        assert statistic.shape == (BATCH, HEADS, LENGTH, 8)
        wide = expected.unsqueeze(-1).expand(-1, -1, -1, 8)
        conformance.close(statistic.cpu(), wide, ulps=200, magnitude=wide.abs() + 4)


@pytest.mark.parametrize("mode", [0, 1, 2, 3, 4])
def test_sparse_modes_mask_keys(conformance: Any, mode: int) -> None:
    query, key, value = (
        random(BATCH, n, HEADS, DIM, seed=n, dtype=torch.float16) for n in (LENGTH, KEYS, KEYS)
    )
    rows, columns = torch.arange(LENGTH)[:, None], torch.arange(KEYS)[None]
    shift = KEYS - LENGTH
    full = torch.rand(LENGTH, KEYS, generator=torch.Generator().manual_seed(3)) < 0.3
    full[:, 0] = False
    hidden = {
        0: full | (columns - rows > 2) | (rows - columns > 3),
        1: full,
        2: columns > rows,
        3: columns > rows + shift,
        4: (columns > rows + shift + 1) | (columns < rows + shift - 2),
    }[mode]
    tokens = {0: (3, 2), 4: (2, 1)}.get(mode, (2147483647, 2147483647))
    result = torch_npu.npu_fusion_attention(
        query.to("npu"),
        key.to("npu"),
        value.to("npu"),
        HEADS,
        "BSND",
        atten_mask=(full if mode < 2 else COMPRESSED).to("npu"),
        scale=0.2,
        pre_tockens=tokens[0],
        next_tockens=tokens[1],
        sparse_mode=mode,
    )
    scores = scores_of(query, key, 0.2).masked_fill(hidden, -torch.inf)
    close(conformance, result[0].cpu(), attend(scores, value))


def test_packed_sequences_attend_apart(conformance: Any) -> None:
    queries, keys = [3, 0, 4], [5, 2, 4]
    query = random(7, HEADS, DIM, seed=0, dtype=torch.bfloat16)
    key, value = (random(11, 2, DIM, seed=s, dtype=torch.bfloat16) for s in (1, 2))
    result = torch_npu.npu_fusion_attention(
        query.to("npu"),
        key.to("npu"),
        value.to("npu"),
        HEADS,
        "TND",
        atten_mask=COMPRESSED.to("npu"),
        scale=0.2,
        actual_seq_qlen=torch.tensor(queries).cumsum(0).tolist(),
        actual_seq_kvlen=torch.tensor(keys).cumsum(0).tolist(),
        sparse_mode=3,
    )
    expected = attend_apart(query, key, value, queries=queries, keys=keys, scale=0.2)
    close(conformance, result[0].cpu(), expected)


def test_position_shift_is_added_to_the_scaled_scores(conformance: Any) -> None:
    query, key, value = (
        random(BATCH, n, HEADS, DIM, seed=n, dtype=torch.float16) for n in (LENGTH, KEYS, KEYS)
    )
    shift = random(1, HEADS, LENGTH, KEYS, seed=9, dtype=torch.float16)
    result = torch_npu.npu_fusion_attention(
        query.to("npu"),
        key.to("npu"),
        value.to("npu"),
        HEADS,
        "BSND",
        pse=shift.to("npu"),
        scale=0.2,
    )
    close(conformance, result[0].cpu(), attend(scores_of(query, key, 0.2) + shift.double(), value))


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("sunk", [False, True])
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("packed", [False, True])
def test_second_form_takes_sinks_and_rotary_parts(
    conformance: Any, dtype: torch.dtype, sunk: bool, turned: bool, packed: bool
) -> None:
    if turned and (sunk or not packed):
        pytest.skip("torch_npu has rotary parts of packed sequences without sinks alone")
    dim, rope = (128, 64) if turned else (DIM, 0)
    query, key = (
        random(BATCH, LENGTH, HEADS, dim + rope, seed=seed, dtype=dtype) for seed in (0, 1)
    )
    value = random(BATCH, LENGTH, HEADS, dim, seed=2, dtype=dtype)
    sink = random(HEADS, seed=3, dtype=torch.float32) if sunk else None
    ends = list(range(LENGTH, BATCH * LENGTH + 1, LENGTH))

    def stored(values: torch.Tensor) -> torch.Tensor:
        return (values.flatten(0, 1) if packed else values).contiguous().to("npu")

    options: dict[str, Any] = {"scale": 0.1, "sink": None if sink is None else sink.to("npu")}
    if packed:
        options |= {"actual_seq_qlen": ends, "actual_seq_kvlen": ends}
    if turned:
        options |= {"query_rope": stored(query[..., dim:]), "key_rope": stored(key[..., dim:])}
    result = torch_npu.npu_fusion_attention_v2(
        stored(query[..., :dim]),
        stored(key[..., :dim]),
        stored(value),
        HEADS,
        "TND" if packed else "BSND",
        **options,
    )[0].cpu()
    weights = weights_with_sink(scores_of(query, key, 0.1), sink)
    expected = torch.einsum("bnsk,bknd->bsnd", weights, value.double())
    close(conformance, result.view_as(expected), expected)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sparse_mode": 5}, "argument 'sparseMode'"),
        ({"sparse_mode": 3}, "argument 'attenMask'"),
        ({"head_num": 3}, "head"),
        ({"input_layout": "BSN"}, "layout|supported|BSN"),
    ],
)
def test_flash_attention_refuses(changes: dict[str, Any], message: str) -> None:
    x = random(1, 4, HEADS, DIM, seed=0, dtype=torch.float16).to("npu")
    arguments = {"head_num": HEADS, "input_layout": "BSND", **changes}
    with pytest.raises(RuntimeError, match=message):
        torch_npu.npu_fusion_attention(x, x, x, **arguments)
