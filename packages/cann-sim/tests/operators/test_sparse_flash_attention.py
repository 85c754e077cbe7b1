"""Sparse flash attention over selected latent keys, against float64."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import torch_npu

from operators.drawn_tensors import random
from operators.operator_call import call_operator
from operators.selected_keys import chosen_keys, drawn_selection

HALVES = [torch.bfloat16, torch.float16]
LATENT, ROPE, BLOCK, COLUMNS, HEADS, CHOSEN = 512, 64, 16, 3, 4, 5
SCALE = 1 / math.sqrt(LATENT + ROPE)
QUERIES, KEYS = [1, 3], [40, 17]


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
        self.selection = drawn_selection(QUERIES, KEYS, size=size, most=CHOSEN, seed=6)

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

    def scores(self, *, causal: bool) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """Return the scores of each query, and the values that they weigh, in float64."""
        found, token = [], 0
        for index, (own, keys) in enumerate(zip(QUERIES, KEYS, strict=True)):
            pages = self.table[index].long()
            latent = self.key[pages].reshape(-1, LATENT)[:keys].double()
            rope = self.key_rope[pages].reshape(-1, ROPE)[:keys].double()
            for position in range(own):
                seen = keys - own + position + 1 if causal else keys
                chosen = chosen_keys(self.selection[token, 0], size=self.size, keys=keys, seen=seen)
                query = torch.cat([self.query[token], self.query_rope[token]], -1).double()
                products = query @ torch.cat([latent, rope], -1)[chosen].T * SCALE
                found.append((products, latent[chosen]))
                token += 1
        return found

    def reference(self, *, causal: bool) -> torch.Tensor:
        return torch.stack([s.softmax(-1) @ values for s, values in self.scores(causal=causal)])

    def plain(self, cache: torch.Tensor, layout: str) -> torch.Tensor:
        """Return a cache without pages: packed, or in a batch with rows that are not valid."""
        parts = [cache[self.table[n].long()].flatten(0, 1)[:keys] for n, keys in enumerate(KEYS)]
        if layout == "TND":
            return torch.cat(parts)
        out = torch.full((len(KEYS), max(KEYS) + 2, *cache.shape[2:]), 9.0).to(cache.dtype)
        for index, part in enumerate(parts):
            out[index, : len(part)] = part
        return out


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


def batched(packed: torch.Tensor, fill: float) -> torch.Tensor:
    out = torch.full((len(QUERIES), max(QUERIES), *packed.shape[1:]), fill, dtype=packed.dtype)
    for index, part in enumerate(torch.split(packed, QUERIES)):
        out[index, : len(part)] = part
    return out.to("npu")


@pytest.mark.parametrize("layout", ["TND", "BSND"])
@pytest.mark.parametrize("size", [1, 4])
def test_keys_without_pages_give_statistics_as_well(
    conformance: Any, layout: str, size: int
) -> None:
    batch = Batch(torch.bfloat16, size)
    caches = {
        "key": batch.plain(batch.key, layout).to("npu"),
        "key_rope": batch.plain(batch.key_rope, layout).to("npu"),
    }
    changes: dict[str, Any] = {**caches, "value": caches["key"], "block_table": None}
    lengths = torch.tensor(KEYS).int()
    if layout == "BSND":
        changes |= {
            "query": batched(batch.query, 0),
            "query_rope": batched(batch.query_rope, 0),
            "sparse_indices": batched(batch.selection, -1),
            "actual_seq_lengths_query": torch.tensor(QUERIES).int().to("npu"),
        }
    else:
        lengths = lengths.cumsum(0).int()
    given = batch.arguments(
        **changes,
        actual_seq_lengths_kv=lengths.to("npu"),
        layout_query=layout,
        layout_kv=layout,
        return_softmax_lse=True,
    )
    output, largest, total = (t.cpu() for t in torch_npu.npu_sparse_flash_attention(**given))

    def rows(tensor: torch.Tensor) -> torch.Tensor:
        if layout == "TND":
            return tensor
        return torch.cat([tensor[index, :own] for index, own in enumerate(QUERIES)])

    close(conformance, rows(output), batch.reference(causal=True))
    scores = [products for products, _ in batch.scores(causal=True)]
    peaks = torch.stack([products.amax(-1) for products in scores])
    sums = torch.stack([(products - products.amax(-1, True)).exp().sum(-1) for products in scores])
    squeezed = 0 if layout == "TND" else 1
    for result, reference in ((largest, peaks), (total, sums)):
        close(conformance, rows(result.squeeze(squeezed)), reference)


def test_second_version_without_sinks_equals_the_first() -> None:
    batch = Batch(torch.bfloat16)
    given = batch.arguments()
    expected, _, _ = torch_npu.npu_sparse_flash_attention(**given)
    output, nothing = torch.empty_like(expected), torch.empty(0, device="npu")
    names = ["query", "key", "value", "sparse_indices", "block_table", "actual_seq_lengths_query"]
    names += ["actual_seq_lengths_kv", "query_rope", "key_rope"]
    far = 2**63 - 1
    call_operator(
        "aclnnSparseFlashAttentionV2",
        *(given[name] for name in names),
        *(None, SCALE, 1, b"TND", b"PA_BSND", 3, far, far, 2, False),
        *(output, nothing, nothing),
    )
    assert torch.equal(output.cpu(), expected.cpu())


def test_batch_layout_takes_lengths_of_each_sequence(conformance: Any) -> None:
    batch = Batch(torch.float16)
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
        ({"return_softmax_lse": True}, "returnSoftmaxLse.*found true"),
        pytest.param(
            {"sinks": torch.ones(HEADS)},
            "sinks.*none on this device",
            marks=pytest.mark.absent_in_torch_npu("2.10", reason="the operator has no sinks"),
        ),
        ({"pre_tokens": 7}, "preTokens.*found 7"),
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
    moved = {k: v.to("npu") if isinstance(v, torch.Tensor) else v for k, v in changes.items()}
    given = Batch(torch.float16).arguments(**moved)
    with pytest.raises(RuntimeError, match=f"(?s){reason}"):
        torch_npu.npu_sparse_flash_attention(**given)
