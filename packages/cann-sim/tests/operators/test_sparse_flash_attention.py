"""Sparse flash attention over selected latent keys, against float64."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import torch_npu

HALVES = [torch.bfloat16, torch.float16]
LATENT, ROPE, BLOCK, COLUMNS, HEADS, CHOSEN = 512, 64, 16, 3, 4, 5
SCALE = 1 / math.sqrt(LATENT + ROPE)
QUERIES, KEYS = [1, 3], [40, 17]


def random(*shape: int, seed: int, dtype: torch.dtype) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


class Batch:
    """Two sequences of latent keys in pages, and for each query the keys that were chosen."""

    def __init__(self, dtype: torch.dtype, size: int = 1) -> None:
        tokens, blocks = sum(QUERIES), len(KEYS) * COLUMNS
        self.size = size
        self.query = random(tokens, HEADS, LATENT, seed=1, dtype=dtype)
        self.query_rope = random(tokens, HEADS, ROPE, seed=2, dtype=dtype)
        self.key = random(blocks, BLOCK, 1, LATENT, seed=3, dtype=dtype)
        self.key_rope = random(blocks, BLOCK, 1, ROPE, seed=4, dtype=dtype)
        self.table = torch.randperm(blocks, generator=torch.Generator().manual_seed(5))
        self.table = self.table.view(-1, COLUMNS).int()
        generator = torch.Generator().manual_seed(6)
        self.selection = torch.full((tokens, 1, CHOSEN), -1, dtype=torch.int32)
        token = 0
        for own, keys in zip(QUERIES, KEYS, strict=True):
            for _ in range(own):
                groups = math.ceil(keys / size)
                count = min(CHOSEN - token % 2, groups)
                chosen = torch.randperm(groups, generator=generator)[:count]
                self.selection[token, 0, :count] = chosen.int()
                token += 1

    def arguments(self, **changes: Any) -> dict[str, Any]:
        ends = torch.tensor(QUERIES).cumsum(0).int()
        given = {
            "query": self.query,
            "key": self.key,
            "value": self.key,
            "sparse_indices": self.selection,
            "block_table": self.table,
            "actual_seq_lengths_query": ends,
            "actual_seq_lengths_kv": torch.tensor(KEYS, dtype=torch.int32),
            "query_rope": self.query_rope,
            "key_rope": self.key_rope,
        }
        tensors = {name: tensor.to("npu") for name, tensor in given.items()}
        return {
            **tensors,
            "scale_value": SCALE,
            "sparse_block_size": self.size,
            "layout_query": "TND",
            "layout_kv": "PA_BSND",
            "attention_mode": 2,
            **changes,
        }

    def reference(self, *, causal: bool, sinks: torch.Tensor | None = None) -> torch.Tensor:
        outputs = []
        token = 0
        for index, (own, keys) in enumerate(zip(QUERIES, KEYS, strict=True)):
            pages = self.table[index].long()
            latent = self.key[pages].reshape(-1, LATENT)[:keys].double()
            rope = self.key_rope[pages].reshape(-1, ROPE)[:keys].double()
            for position in range(own):
                seen = keys - own + position + 1 if causal else keys
                chosen = [
                    key
                    for group in self.selection[token, 0].tolist()
                    if group >= 0
                    for key in range(group * self.size, min((group + 1) * self.size, keys))
                    if key < seen
                ]
                query = torch.cat([self.query[token], self.query_rope[token]], -1).double()
                scores = query @ torch.cat([latent, rope], -1)[chosen].T * SCALE
                if sinks is not None:
                    scores = torch.cat([scores, sinks.double().unsqueeze(1)], -1)
                weights = scores.softmax(-1)[:, : len(chosen)] if chosen else scores[:, :0]
                outputs.append(weights @ latent[chosen])
                token += 1
        return torch.stack(outputs)


def close(conformance: Any, result: torch.Tensor, reference: torch.Tensor) -> None:
    conformance.close(result.cpu(), reference, ulps=128, magnitude=torch.tensor(5.0).double())


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("size", [1, 4])
def test_queries_attend_to_the_selected_keys(
    conformance: Any, dtype: torch.dtype, causal: bool, size: int
) -> None:
    batch = Batch(dtype, size)
    given = batch.arguments(sparse_mode=3 if causal else 0)
    output, _, _ = torch_npu.npu_sparse_flash_attention(**given)
    close(conformance, output, batch.reference(causal=causal))


def test_sinks_take_part_in_the_normalisation_only(conformance: Any) -> None:
    batch, sinks = Batch(torch.bfloat16), torch.tensor([0.5, -1.0, 2.0, 0.0])
    output, _, _ = torch_npu.npu_sparse_flash_attention(**batch.arguments(sinks=sinks.to("npu")))
    close(conformance, output, batch.reference(causal=True, sinks=sinks))


def test_batch_layout_takes_lengths_of_each_sequence(conformance: Any) -> None:
    batch, longest = Batch(torch.float16), max(QUERIES)

    def batched(packed: torch.Tensor, fill: float) -> torch.Tensor:
        out = torch.full((len(QUERIES), longest, *packed.shape[1:]), fill, dtype=packed.dtype)
        for index, part in enumerate(torch.split(packed, QUERIES)):
            out[index, : len(part)] = part
        return out.to("npu")

    given = batch.arguments(
        query=batched(batch.query, 0),
        query_rope=batched(batch.query_rope, 0),
        sparse_indices=batched(batch.selection, -1),
        actual_seq_lengths_query=torch.tensor(QUERIES, dtype=torch.int32).to("npu"),
        layout_query="BSND",
    )
    output, _, _ = torch_npu.npu_sparse_flash_attention(**given)
    parts = [output[index, :own] for index, own in enumerate(QUERIES)]
    close(conformance, torch.cat(parts), batch.reference(causal=True))
    assert not output[0, QUERIES[0] :].any()


def test_captured_launch_follows_lengths_of_the_device(conformance: Any) -> None:
    batch = Batch(torch.float16)
    given = batch.arguments()
    lengths = given["actual_seq_lengths_kv"]
    lengths.copy_(torch.tensor([1, 3], dtype=torch.int32))
    selection = batch.selection
    given["sparse_indices"].copy_(torch.full_like(selection, -1))
    graph = torch_npu.npu.NPUGraph()
    with torch_npu.npu.graph(graph):
        output, _, _ = torch_npu.npu_sparse_flash_attention(**given)
    lengths.copy_(torch.tensor(KEYS, dtype=torch.int32))
    given["sparse_indices"].copy_(selection)
    graph.replay()
    close(conformance, output, batch.reference(causal=True))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"layout_kv": "BSND"}, "layoutKv.*PA_BSND"),
        ({"attention_mode": 0}, "attentionMode.*found 0"),
        ({"sparse_mode": 4}, "sparseMode.*found 4"),
        ({"sparse_block_size": 3}, "sparseBlockSize.*found 3"),
        ({"actual_seq_lengths_kv": None}, "actualSeqLengthsKv.*found none"),
        ({"key_rope": None}, "keyRope.*found none"),
    ],
)
def test_what_is_not_simulated_or_does_not_fit_is_refused(
    changes: dict[str, Any], reason: str, capfd: Any
) -> None:
    del capfd
    with pytest.raises(RuntimeError, match=f"(?s){reason}"):
        torch_npu.npu_sparse_flash_attention(**Batch(torch.float16).arguments(**changes))
