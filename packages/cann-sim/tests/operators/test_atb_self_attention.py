"""Self attention of ATB over packed sequences: against float64, and refused."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pytest
import torch
import torch_npu

from operators.drawn_tensors import random
from operators.paged_batch import PagedBatch, attend, causal, close, pieces

if TYPE_CHECKING:
    from collections.abc import Callable

HALVES = [torch.bfloat16, torch.float16]
LENGTHS = [5, 17, 1]


class Packed:
    """Packed queries, keys and values of whole sequences."""

    def __init__(self, dtype: torch.dtype, heads: int = 4, kv_heads: int = 2) -> None:
        tokens = sum(LENGTHS)
        self.query = random(tokens, heads, 32, seed=1, dtype=dtype)
        self.key = random(tokens, kv_heads, 32, seed=2, dtype=dtype)
        self.value = random(tokens, kv_heads, 16, seed=3, dtype=dtype)
        self.scale, self.heads, self.kv_heads = 0.2, heads, kv_heads

    def device(self) -> tuple[torch.Tensor, ...]:
        return tuple(t.to("npu") for t in (self.query, self.key, self.value))

    def out(self) -> torch.Tensor:
        return torch.full((len(self.query), self.heads, 16), 77.0, dtype=self.query.dtype).to("npu")

    def reference(self, biases: list[torch.Tensor] | None = None) -> torch.Tensor:
        parts = zip(*(pieces(t, LENGTHS) for t in (self.query, self.key, self.value)), strict=True)
        outputs = []
        for index, (query, key, value) in enumerate(parts):
            bias = None if biases is None else biases[index]
            outputs.append(attend(query, key, value, self.scale, bias)[0])
        return torch.cat(outputs)


def lens(*values: int) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int32)


@pytest.mark.parametrize("dtype", HALVES)
def test_encoder_without_mask_sees_every_key(conformance: Any, dtype: torch.dtype) -> None:
    packed = Packed(dtype)
    out = packed.out()
    torch_npu._npu_flash_attention_unpad(
        *packed.device(), lens(*LENGTHS), packed.scale, packed.heads, packed.kv_heads, out
    )
    close(conformance, out, packed.reference(), 17)


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("by_sequence", [False, True])
def test_mask_is_added_in_float16_and_boolean_in_bfloat16(
    conformance: Any, dtype: torch.dtype, by_sequence: bool
) -> None:
    packed = Packed(dtype)
    hidden = torch.triu(torch.ones(17, 17), 1)
    if by_sequence:
        hidden = torch.stack([hidden, torch.triu(torch.ones(17, 17), 2), hidden])
    mask = (hidden if dtype == torch.bfloat16 else hidden * -10000).to(dtype)
    out = packed.out()
    torch_npu._npu_flash_attention(
        *packed.device(),
        mask.to("npu"),
        lens(*LENGTHS),
        packed.scale,
        packed.heads,
        packed.kv_heads,
        out,
    )
    own = hidden if by_sequence else hidden.expand(3, -1, -1)
    biases = [
        torch.zeros(n, n).masked_fill(own[i, :n, :n].bool(), -math.inf)
        for i, n in enumerate(LENGTHS)
    ]
    close(conformance, out, packed.reference(biases), 17)


def alibi(distances: torch.Tensor, slopes: torch.Tensor) -> torch.Tensor:
    return slopes.double().view(-1, 1, 1) * distances.double()


# The distance of query and key, its root, the position of the key.
PATTERNS: dict[int, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    4: lambda query, key: query - key,
    5: lambda query, key: (query - key).clamp_min(0).sqrt(),
    6: lambda query, key: key + query * 0,
}


def positions(queries: int, keys: int) -> tuple[torch.Tensor, torch.Tensor]:
    return (torch.arange(queries).double() + keys - queries).unsqueeze(1), torch.arange(
        keys
    ).double()


def small_mask(mask_type: int) -> torch.Tensor:
    pattern = PATTERNS[mask_type](*positions(256, 256))
    return pattern.masked_fill(torch.triu(torch.ones(256, 256), 1).bool(), math.inf)


@pytest.mark.parametrize("mask_type", [4, 5, 6])
def test_small_alibi_mask_applies_to_any_length(conformance: Any, mask_type: int) -> None:
    packed = Packed(torch.bfloat16)
    slopes = torch.tensor([-0.5, -0.25, 0.125, 0.0])
    out = torch_npu.atb._npu_flash_attention_v2(
        *packed.device(),
        LENGTHS,
        mask=small_mask(mask_type).bfloat16().to("npu"),
        slopes=slopes.to("npu"),
        mask_type=mask_type,
        scale_value=packed.scale,
        num_heads=packed.heads,
        num_kv_heads=packed.kv_heads,
        out=packed.out(),
    )
    biases = [alibi(PATTERNS[mask_type](*positions(n, n)), slopes) + causal(n, n) for n in LENGTHS]
    close(conformance, out, packed.reference(biases), 17)


def test_alibi_mask_by_head_is_added(conformance: Any) -> None:
    packed = Packed(torch.bfloat16)
    mask = random(4, 17, 17, seed=8, dtype=torch.bfloat16)
    out = torch_npu.atb._npu_flash_attention_v2(
        *packed.device(),
        LENGTHS,
        mask=mask.to("npu"),
        mask_type=2,
        scale_value=packed.scale,
        num_heads=packed.heads,
        num_kv_heads=packed.kv_heads,
        out=packed.out(),
    )
    close(conformance, out, packed.reference([mask[:, :n, :n].double() for n in LENGTHS]), 17)


@pytest.mark.parametrize("way", ["qlens", "prefix_v2", "encoder", "encoder with a mask"])
@pytest.mark.parametrize("dtype", HALVES)
def test_queries_after_a_prefix_are_causal_at_their_end(
    conformance: Any, way: str, dtype: torch.dtype
) -> None:
    batch = PagedBatch([40, 7, 33], [5, 7, 1], dtype=dtype)
    query, key, value, table = (
        t.to("npu") for t in (batch.query, batch.key, batch.value, batch.table)
    )
    mask = (torch.triu(torch.ones(128, 128), 1) * -10000).to(dtype).to("npu")
    lengths, out = (lens(*batch.queries), lens(*batch.key_lengths)), batch.out()
    if way == "qlens":
        torch_npu._npu_flash_attention_qlens(
            query, key, value, table, mask, *lengths, 2, 4, batch.scale, out
        )
    elif way == "prefix_v2":
        torch_npu.atb._npu_flash_attention_prefix_v2(
            query,
            key,
            value,
            table,
            mask,
            *lengths,
            num_kv_heads=2,
            num_heads=4,
            scale_value=batch.scale,
            out=out,
        )
    else:
        masked = {"mask": mask, "mask_type": "mask_type_norm_compress"} if "mask" in way else {}
        out = torch_npu.atb.npu_self_attention_prefix_encoder(
            query, key, value, table, *lengths, 4, batch.scale, 2, **masked
        )
    biases = [causal(q, k) for q, k in zip(batch.queries, batch.key_lengths, strict=True)]
    close(conformance, out, batch.reference(biases=biases)[0], 40)


@pytest.mark.parametrize("mask_type", [4, 5])
def test_alibi_after_a_prefix_counts_from_the_first_key(conformance: Any, mask_type: int) -> None:
    batch = PagedBatch([40, 7], [5, 7])
    slopes = torch.tensor([-0.5, -0.25, 0.125, 0.0])
    out = torch_npu.atb._npu_flash_attention_prefix_v2(
        *(t.to("npu") for t in (batch.query, batch.key, batch.value, batch.table)),
        small_mask(mask_type).bfloat16().to("npu"),
        batch.queries,
        batch.key_lengths,
        slopes=slopes.to("npu"),
        mask_type=mask_type,
        num_kv_heads=2,
        num_heads=4,
        scale_value=batch.scale,
        out=batch.out(),
    )
    biases = [
        alibi(PATTERNS[mask_type](*positions(q, k)), slopes) + causal(q, k)
        for q, k in zip(batch.queries, batch.key_lengths, strict=True)
    ]
    close(conformance, out, batch.reference(biases=biases)[0], 40)


def test_small_mask_of_another_pattern_fails_when_it_runs(npu: Any) -> None:
    packed = Packed(torch.bfloat16)
    torch_npu.atb._npu_flash_attention_v2(
        *packed.device(),
        LENGTHS,
        mask=torch.zeros(256, 256, dtype=torch.bfloat16).to("npu"),
        slopes=torch.ones(4).to("npu"),
        mask_type=4,
        scale_value=1.0,
        num_heads=4,
        num_kv_heads=2,
        out=packed.out(),
    )
    with pytest.raises(RuntimeError, match=r"(?s)'mask': expected the pattern"):
        npu.synchronize()


@pytest.mark.parametrize(
    ("lengths", "heads", "message"),
    [
        (lens(5, 17, 2), 4, "'seq_len': expected at most 23 in sum"),
        (lens(5, -1), 4, "'seq_len': expected lengths of at least 0"),
        (lens(5).to("npu"), 4, "'seq_len': expected a CPU tensor"),
        (lens(5), 3, "'num_kv_heads': expected a divisor"),
    ],
)
def test_encoder_with_wrong_arguments_is_refused(
    npu: Any, lengths: torch.Tensor, heads: int, message: str
) -> None:
    packed = Packed(torch.float16)
    with (
        npu.stream(npu.SyncLaunchStream()),
        pytest.raises(RuntimeError, match=f"(?s)SelfAttentionOperation.*{message}"),
    ):
        torch_npu._npu_flash_attention_unpad(
            *packed.device(), lengths, packed.scale, heads, 2, packed.out()
        )
