"""Queries, keys and values normalised, rotated and stored in one operator, against float64."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch_npu

from operators.drawn_tensors import random

HALVES = [torch.bfloat16, torch.float16]
BATCH, LENGTH, DIM, BLOCK, BLOCKS = 2, 3, 64, 16, 3
HEADS = [4, 2, 1]
SLOTS = [3, 17, -1, 40, 5, 31]


class Call:
    """Inputs on the CPU, caches on the device, and the reference."""

    def __init__(
        self, dtype: torch.dtype, *, quantised: bool, angles: int = BATCH * LENGTH
    ) -> None:
        rows, self.dtype, self.quantised = BATCH * LENGTH, dtype, quantised
        self.qkv = random(rows, sum(HEADS) * DIM, seed=1, dtype=dtype)
        self.gammas = [random(DIM, seed=seed, dtype=dtype) for seed in (2, 3)]
        self.angles = [random(angles, DIM, seed=seed, dtype=dtype) for seed in (4, 5)]
        self.scales = [random(heads, DIM, seed=6).abs() / 20 + 0.01 for heads in HEADS[1:]]
        self.offsets = [random(heads, DIM, seed=7) * 3 for heads in HEADS[1:]]
        self.index = torch.tensor(SLOTS)
        own = torch.int8 if quantised else dtype
        unit = 32 if quantised else 16
        self.caches = [
            torch.full((BLOCKS, heads * DIM // unit, BLOCK, unit), 9).to(own).to("npu")
            for heads in HEADS[1:]
        ]
        self.query = torch.full((rows, HEADS[0] * DIM), 9).to(dtype).to("npu")

    def run(self, **changes: Any) -> tuple[torch.Tensor, ...]:
        given: dict[str, Any] = {
            "qkv": self.qkv,
            "q_gamma": self.gammas[0],
            "k_gamma": self.gammas[1],
            "cos": self.angles[0],
            "sin": self.angles[1],
            "index": self.index,
            "q_out": self.query,
            "k_cache": self.caches[0],
            "v_cache": self.caches[1],
            "qkv_size": [BATCH, LENGTH, sum(HEADS), DIM],
            "head_nums": HEADS,
            "epsilon": 1e-5,
            "cache_mode": "PA_NZ",
            "is_output_qkv": True,
        }
        if self.quantised:
            given |= {"k_scale": self.scales[0], "v_scale": self.scales[1]}
            given |= {"k_offset": self.offsets[0], "v_offset": self.offsets[1]}
        given |= changes
        moved = {k: v.to("npu") if isinstance(v, torch.Tensor) else v for k, v in given.items()}
        results: tuple[torch.Tensor, ...] = torch_npu.npu_qkv_rms_norm_rope_cache(**moved)
        return results

    def parts(self) -> list[torch.Tensor]:
        wide = self.qkv.double().view(BATCH, LENGTH, -1, DIM)
        cos, sin = (angles.double().view(BATCH, -1, 1, DIM) for angles in self.angles)
        query, key, value = torch.split(wide, HEADS, 2)

        def turned(x: torch.Tensor, gamma: torch.Tensor) -> torch.Tensor:
            x = x / (x.square().mean(-1, keepdim=True) + 1e-5).sqrt() * gamma.double()
            half = DIM // 2
            return x * cos + torch.cat([-x[..., half:], x[..., :half]], -1) * sin

        found = [turned(query, self.gammas[0]), turned(key, self.gammas[1]), value]
        return [part.flatten(0, 1) for part in found]


def rows_of(cache: torch.Tensor, heads: int) -> torch.Tensor:
    """Return the slots of a cache in NZ order as [slots, heads, dim]."""
    blocks, _, size, unit = cache.shape
    rows = cache.cpu().view(blocks, heads, DIM // unit, size, unit).permute(0, 3, 1, 2, 4)
    return rows.reshape(blocks * size, heads, DIM)


def close(conformance: Any, result: torch.Tensor, reference: torch.Tensor) -> None:
    # Two products of values below 5, rotated, whose sum may be small.
    conformance.close(
        result.cpu().view(reference.shape), reference, magnitude=torch.tensor(25.0).double()
    )


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("quantised", [False, True])
@pytest.mark.parametrize("angles", [BATCH * LENGTH, BATCH])
def test_parts_are_normalised_rotated_and_stored(
    conformance: Any, dtype: torch.dtype, quantised: bool, angles: int
) -> None:
    call = Call(dtype, quantised=quantised, angles=angles)
    plain = call.run()
    query, key, value = call.parts()
    close(conformance, call.query, query)
    for result, part in zip(plain, (query, key, value), strict=True):
        close(conformance, result, part)
    kept = [row for row, slot in enumerate(SLOTS) if slot >= 0]
    others = torch.ones(BLOCKS * BLOCK, dtype=torch.bool)
    others[[SLOTS[row] for row in kept]] = False
    for number, part in enumerate((key, value)):
        rows = rows_of(call.caches[number], HEADS[number + 1])
        assert (rows[others] == 9).all()
        stored = rows[[SLOTS[row] for row in kept]]
        if quantised:
            scaled = part[kept] / call.scales[number].double() + call.offsets[number].double()
            conformance.quantized(stored, scaled, slack=2e-3)
        else:
            close(conformance, stored, part[kept])


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"cache_mode": "PA_BSND"}, "cacheMode.*found PA_BSND"),
        ({"index": torch.zeros(6).int()}, "'index'.*int64"),
        ({"head_nums": [4, 1, 1]}, "qkvSize"),
        ({"k_cache": torch.zeros(BLOCKS, 4, BLOCK, 32).half()}, "'kCacheRef'"),
        ({"q_gamma": torch.zeros(DIM)}, "'qGamma'.*float16"),
        ({"k_offset": torch.zeros(2, DIM)}, "'kOffset'.*scale"),
    ],
)
def test_what_does_not_fit_is_refused(changes: Any, reason: str, capfd: Any) -> None:
    del capfd
    with pytest.raises(RuntimeError, match=f"(?s){reason}"):
        Call(torch.float16, quantised=False).run(**changes)
