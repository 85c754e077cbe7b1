"""The lightning indexer, plain and of int8, against float64."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import torch_npu

from operators.drawn_tensors import integers, random

HEADS, DIM, BLOCK, COUNT = 8, 128, 16, 12
QUERIES, KEYS = [1, 3], [40, 17]
LAYOUTS = [("TND", "PA_BSND"), ("BSND", "PA_BSND"), ("BSND", "BSND"), ("TND", "TND")]


def padded(packed: torch.Tensor, lengths: list[int]) -> torch.Tensor:
    out = torch.zeros(len(lengths), max(lengths) + 1, *packed.shape[1:], dtype=packed.dtype)
    for index, part in enumerate(torch.split(packed, lengths)):
        out[index, : len(part)] = part
    return out


def paged(packed: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
    out = torch.full((table.numel(), BLOCK, *packed.shape[1:]), 9, dtype=packed.dtype)
    for index, part in enumerate(torch.split(packed, KEYS)):
        for start in range(0, len(part), BLOCK):
            rows = part[start : start + BLOCK]
            out[table[index, start // BLOCK], : len(rows)] = rows
    return out


class Batch:
    """Two sequences of queries and keys, in any layout."""

    def __init__(self, dtype: torch.dtype, weights: torch.dtype | None = None) -> None:
        self.quantised = dtype == torch.int8
        make = integers if self.quantised else lambda *s, seed: random(*s, seed=seed, dtype=dtype)
        self.query = make(sum(QUERIES), HEADS, DIM, seed=1)
        self.key = make(sum(KEYS), 1, DIM, seed=2)
        half = torch.float16 if self.quantised else dtype
        self.weights = random(sum(QUERIES), HEADS, seed=3, dtype=weights or half)
        self.query_scale = random(sum(QUERIES), HEADS, seed=4, dtype=half).abs() / 16
        self.key_scale = random(sum(KEYS), 1, seed=5, dtype=half).abs() / 16
        columns = math.ceil(max(KEYS) / BLOCK)
        order = torch.randperm(len(KEYS) * columns, generator=torch.Generator().manual_seed(6))
        self.table = order.view(-1, columns).int()

    def arguments(self, query_layout: str, key_layout: str) -> dict[str, Any]:
        def queries(tensor: torch.Tensor) -> torch.Tensor:
            return tensor if query_layout == "TND" else padded(tensor, QUERIES)

        def keys(tensor: torch.Tensor) -> torch.Tensor:
            if key_layout == "PA_BSND":
                return paged(tensor, self.table)
            return tensor if key_layout == "TND" else padded(tensor, KEYS)

        def lengths(values: list[int], layout: str) -> torch.Tensor:
            given = torch.tensor(values)
            return (given.cumsum(0) if layout == "TND" else given).int()

        tensors = {
            "query": queries(self.query),
            "key": keys(self.key),
            "weights": queries(self.weights),
            "actual_seq_lengths_query": lengths(QUERIES, query_layout),
            "actual_seq_lengths_key": lengths(KEYS, key_layout),
        }
        if self.quantised:
            tensors["query_dequant_scale"] = queries(self.query_scale)
            tensors["key_dequant_scale"] = keys(self.key_scale)
        if key_layout == "PA_BSND":
            tensors["block_table"] = self.table
        modes = {"query_quant_mode": 0, "key_quant_mode": 0} if self.quantised else {}
        return {
            **{name: tensor.to("npu") for name, tensor in tensors.items()},
            **modes,
            "layout_query": query_layout,
            "layout_key": key_layout,
            "sparse_count": COUNT,
        }

    def run(self, query_layout: str, key_layout: str, **changes: Any) -> torch.Tensor:
        given = {**self.arguments(query_layout, key_layout), **changes}
        if self.quantised:
            chosen: torch.Tensor = torch_npu.npu_quant_lightning_indexer(**given)
        else:
            chosen, _ = torch_npu.npu_lightning_indexer(**given)
        return chosen.cpu()

    def scores(self) -> list[torch.Tensor]:
        """Return the scores of each sequence, [queries, keys] in float64."""
        found = []
        parts = zip(
            *(torch.split(t, QUERIES) for t in (self.query, self.weights, self.query_scale)),
            *(torch.split(t, KEYS) for t in (self.key, self.key_scale)),
            strict=True,
        )
        for query, weights, query_scale, key, key_scale in parts:
            products = query.double() @ key.squeeze(1).double().T
            if self.quantised:
                products = products * query_scale.double().unsqueeze(-1)
                products = products * key_scale.squeeze(1).double()
            found.append((products.relu() * weights.double().unsqueeze(-1)).sum(1))
        return found


def compare(scores: torch.Tensor, chosen: torch.Tensor, visible: int) -> None:
    """The largest scores are chosen in falling order, as far as float32 distinguishes them."""
    count = max(0, min(visible, COUNT))
    assert (chosen[count:] == -1).all()
    order = chosen[:count].long()
    assert len(set(order.tolist())) == count
    assert count == 0 or (order.min() >= 0 and order.max() < visible)
    largest = scores[:visible].sort(descending=True).values[:count]
    # Sums of so many products of float32 are off by less than these units of the largest one.
    slack = DIM * HEADS * torch.finfo(torch.float32).eps * scores.abs().max()
    assert ((scores[order] - largest).abs() <= slack).all()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.int8])
@pytest.mark.parametrize("layouts", LAYOUTS)
@pytest.mark.parametrize("mode", [0, 3])
def test_the_largest_scores_are_chosen(
    dtype: torch.dtype, layouts: tuple[str, str], mode: int
) -> None:
    batch = Batch(dtype)
    chosen = batch.run(*layouts, sparse_mode=mode)
    start = 0
    for index, (own, seen, scores) in enumerate(zip(QUERIES, KEYS, batch.scores(), strict=True)):
        rows = chosen[start : start + own] if layouts[0] == "TND" else chosen[index, :own]
        for row in range(own):
            compare(scores[row], rows[row, 0], seen if mode == 0 else seen - own + row + 1)
        start += own
        if layouts[0] == "BSND":
            assert (chosen[index, own:] == -1).all()


def test_weights_may_be_in_float32_and_scores_be_returned(conformance: Any) -> None:
    batch = Batch(torch.bfloat16, torch.float32)
    given = batch.arguments("TND", "TND")
    chosen, values = torch_npu.npu_lightning_indexer(**given, return_value=True)
    assert values.dtype == torch.bfloat16
    scores = batch.scores()[0][0]
    reference = scores[chosen[0, 0].cpu().long()]
    conformance.close(values[0, 0].cpu(), reference, ulps=DIM * HEADS, magnitude=scores.abs().max())


def test_queries_that_see_no_key_choose_none() -> None:
    batch = Batch(torch.float16)
    lengths = torch.tensor([0, 2], dtype=torch.int32).to("npu")
    chosen = batch.run("TND", "PA_BSND", actual_seq_lengths_key=lengths)
    assert (chosen[:2] == -1).all()
    assert chosen[2, 0].tolist() == [0] + [-1] * (COUNT - 1)
    assert sorted(chosen[3, 0, :2].tolist()) == [0, 1]


def test_captured_launch_follows_lengths_of_the_device() -> None:
    batch = Batch(torch.float16)
    given = batch.arguments("TND", "PA_BSND")
    lengths = given["actual_seq_lengths_key"]
    lengths.copy_(torch.tensor([1, 3], dtype=torch.int32))
    graph = torch_npu.npu.NPUGraph()
    with torch_npu.npu.graph(graph):
        chosen, _ = torch_npu.npu_lightning_indexer(**given)
    lengths.copy_(torch.tensor(KEYS, dtype=torch.int32))
    graph.replay()
    compare(batch.scores()[0][0], chosen[0, 0].cpu(), KEYS[0])


@pytest.mark.parametrize(
    ("dtype", "changes", "reason"),
    [
        (torch.float16, {"sparse_mode": 4}, "sparseMode.*found 4"),
        (torch.float16, {"sparse_count": 2049}, "sparseCount.*found 2049"),
        (torch.int8, {"sparse_count": 3072}, "sparseCount.*found 3072"),
        (torch.float16, {"layout_key": "TND"}, "'layoutKey'.*found TND"),
        (torch.float16, {"pre_tokens": 5}, "preTokens.*found 5"),
        (torch.float16, {"block_table": None}, "'blockTable'.*found none"),
        (torch.float16, {"actual_seq_lengths_key": None}, "actualSeqLengthsKey.*found none"),
        (torch.float16, {"return_value": True}, "returnValue.*found true"),
        (torch.int8, {"query_quant_mode": 1}, "queryQuantMode.*found 1"),
        (torch.bfloat16, {"weights": torch.zeros(2, 4, HEADS).half()}, "'weights'"),
    ],
)
def test_what_the_device_refuses_is_refused(
    dtype: torch.dtype, changes: dict[str, Any], reason: str, capfd: Any
) -> None:
    del capfd
    moved = {k: v.to("npu") if isinstance(v, torch.Tensor) else v for k, v in changes.items()}
    with pytest.raises(RuntimeError, match=f"(?s){reason}"):
        Batch(dtype).run("BSND", "PA_BSND", **moved)
