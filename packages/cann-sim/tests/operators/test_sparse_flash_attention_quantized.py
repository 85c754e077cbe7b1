"""Latent attention over selected keys of int8, against float64."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import torch_npu

from operators.drawn_tensors import integers, random
from operators.selected_keys import chosen_keys, drawn_selection

LATENT, ROPE, BLOCK, COLUMNS, HEADS, CHOSEN, TILE = 512, 64, 16, 3, 4, 5, 128
SCALE = 1 / math.sqrt(LATENT + ROPE)
QUERIES, KEYS = [1, 3], [40, 17]
LAYOUTS = [("TND", "PA_BSND"), ("BSND", "PA_BSND"), ("BSND", "BSND"), ("TND", "TND")]


def padded(packed: torch.Tensor, lengths: list[int], fill: int = 0) -> torch.Tensor:
    out = torch.full((len(lengths), max(lengths) + 1, *packed.shape[1:]), fill, dtype=packed.dtype)
    for index, part in enumerate(torch.split(packed, lengths)):
        out[index, : len(part)] = part
    return out


class Batch:
    """Two sequences of queries; rows of latent key, rotary part and scales; selected keys."""

    def __init__(self, dtype: torch.dtype, size: int = 1) -> None:
        tokens, keys = sum(QUERIES), sum(KEYS)
        self.dtype, self.size = dtype, size
        self.query = random(tokens, HEADS, LATENT + ROPE, seed=1).to(dtype)
        self.latent = integers(keys, LATENT, seed=2)
        self.rope = random(keys, ROPE, seed=3).to(dtype)
        self.sizes = random(keys, LATENT // TILE, seed=4).abs() / 64
        parts = [self.latent, self.rope.view(torch.int8), self.sizes.view(torch.int8)]
        self.rows = torch.cat(parts, -1).unsqueeze(1)
        order = torch.randperm(len(KEYS) * COLUMNS, generator=torch.Generator().manual_seed(5))
        self.table = order.view(-1, COLUMNS).int()
        self.selection = drawn_selection(QUERIES, KEYS, size=size, most=CHOSEN, seed=6)

    def paged(self) -> torch.Tensor:
        out = torch.zeros(self.table.numel(), BLOCK, *self.rows.shape[1:], dtype=torch.int8)
        for index, part in enumerate(torch.split(self.rows, KEYS)):
            for start in range(0, len(part), BLOCK):
                page = part[start : start + BLOCK]
                out[self.table[index, start // BLOCK], : len(page)] = page
        return out

    def run(self, query_layout: str, key_layout: str, **changes: Any) -> torch.Tensor:
        packed = query_layout == "TND"
        if key_layout == "PA_BSND":
            rows = self.paged()
        else:
            rows = self.rows if packed else padded(self.rows, KEYS)

        def lengths(values: list[int], *, totals: bool) -> torch.Tensor:
            given = torch.tensor(values)
            return (given.cumsum(0) if totals else given).int()

        given = {
            "query": self.query if packed else padded(self.query, QUERIES),
            "key": rows,
            "value": rows,
            "sparse_indices": self.selection if packed else padded(self.selection, QUERIES, -1),
            "scale_value": SCALE,
            "key_quant_mode": 2,
            "value_quant_mode": 2,
            "block_table": self.table if key_layout == "PA_BSND" else None,
            "actual_seq_lengths_query": lengths(QUERIES, totals=packed),
            "actual_seq_lengths_kv": lengths(KEYS, totals=key_layout == "TND"),
            "sparse_block_size": self.size,
            "layout_query": query_layout,
            "layout_kv": key_layout,
            "attention_mode": 2,
            **changes,
        }
        moved = {k: v.to("npu") if isinstance(v, torch.Tensor) else v for k, v in given.items()}
        output: torch.Tensor = torch_npu.npu_kv_quant_sparse_flash_attention(**moved)
        return output.cpu()

    def reference(self, *, causal: bool) -> torch.Tensor:
        # The device's matrix unit takes keys of the dtype of the queries.
        factors = self.sizes.repeat_interleave(TILE, -1)
        latent = (self.latent.float() * factors).to(self.dtype).double()
        keys = torch.cat([latent, self.rope.double()], -1)
        outputs, token, start = [], 0, 0
        for own, length in zip(QUERIES, KEYS, strict=True):
            for position in range(own):
                seen = length - own + position + 1 if causal else length
                own_keys = chosen_keys(
                    self.selection[token, 0], size=self.size, keys=length, seen=seen
                )
                chosen = [start + key for key in own_keys]
                scores = self.query[token].double() @ keys[chosen].T * SCALE
                outputs.append(scores.softmax(-1) @ latent[chosen])
                token += 1
            start += length
        return torch.stack(outputs)


def close(conformance: Any, result: torch.Tensor, reference: torch.Tensor) -> None:
    conformance.close(result, reference, ulps=128, magnitude=torch.tensor(8.0).double())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("layouts", LAYOUTS)
@pytest.mark.parametrize(("causal", "size"), [(False, 1), (True, 1), (True, 4)])
def test_queries_attend_to_the_selected_rows(
    conformance: Any, dtype: torch.dtype, layouts: tuple[str, str], causal: bool, size: int
) -> None:
    batch = Batch(dtype, size)
    output = batch.run(*layouts, sparse_mode=3 if causal else 0)
    if layouts[0] == "BSND":
        assert not output[0, QUERIES[0] :].any()
        output = torch.cat([output[index, :own] for index, own in enumerate(QUERIES)])
    close(conformance, output, batch.reference(causal=causal))


@pytest.mark.parametrize("width", [LATENT, LATENT + 2 * ROPE + 16])
def test_values_are_those_of_the_keys_whatever_the_tensor_of_values_holds(width: int) -> None:
    batch = Batch(torch.bfloat16)
    values = integers(*batch.paged().shape[:-1], width, seed=7)
    expected = batch.run("BSND", "PA_BSND")
    assert torch.equal(batch.run("BSND", "PA_BSND", value=values), expected)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"attention_mode": 0}, "attentionMode.*found 0"),
        ({"key_quant_mode": 0}, "keyQuantMode.*found 0"),
        ({"tile_size": 64}, "tileSize.*found 64"),
        ({"sparse_block_size": 32}, "sparseBlockSize.*found 32"),
        ({"sparse_mode": 4}, "sparseMode.*found 4"),
        ({"layout_kv": "TND"}, "layoutKv.*found TND"),
        ({"key_dequant_scale": torch.ones(4)}, "keyDequantScale"),
        ({"actual_seq_lengths_kv": None}, "actualSeqLengthsKv.*found none"),
        ({"value": torch.zeros(6, BLOCK, 1, 656)}, "'value'.*int8"),
        ({"value": integers(5, BLOCK, 1, 656, seed=7)}, "'value'.*found \\[5, 16, 1, 656\\]"),
    ],
)
def test_what_the_device_refuses_is_refused(changes: Any, reason: str, capfd: Any) -> None:
    del capfd
    with pytest.raises(RuntimeError, match=f"(?s){reason}"):
        Batch(torch.float16).run("BSND", "PA_BSND", **changes)
