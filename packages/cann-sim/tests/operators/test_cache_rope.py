"""Normalising, rotating and storing latent keys, against float64."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch_npu

from operators.drawn_tensors import random

HALVES = [torch.bfloat16, torch.float16]
BATCH, LENGTH, BLOCK, BLOCKS = 2, 5, 16, 4


def rotated(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    halves = x.view(*x.shape[:-1], -1, 2).transpose(-1, -2).flatten(-2)
    turned = torch.cat([-halves[..., 32:], halves[..., :32]], -1)
    result: torch.Tensor = halves * cos.double() + turned * sin.double()
    return result


def slots_of(mode: str) -> torch.Tensor:
    if "BLK" in mode:
        return torch.tensor([BLOCK, 3 * BLOCK])
    return torch.tensor([3, 17, -1, 40, 5, 63, 62, 30, 31, 32])


def places(mode: str) -> list[int]:
    if "BLK" in mode:
        return [BLOCK + i for i in range(LENGTH)] + [3 * BLOCK + i for i in range(LENGTH)]
    return slots_of(mode).tolist()


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("mode", ["PA", "PA_BNSD", "PA_NZ", "PA_BLK_BNSD", "PA_BLK_NZ"])
@pytest.mark.parametrize("quantised", [False, True])
@pytest.mark.parametrize("latent", [True, False])
def test_rows_are_normalised_rotated_and_stored(
    conformance: Any, dtype: torch.dtype, mode: str, quantised: bool, latent: bool
) -> None:
    kv = random(BATCH, 1, LENGTH, 576 if latent else 192, seed=0, dtype=dtype)
    value = random(BATCH, 1, LENGTH, 128, seed=1, dtype=dtype)
    gamma = random(512 if latent else 192, seed=2, dtype=dtype)
    cos, sin = (random(BATCH, 1, LENGTH, 64, seed=s, dtype=dtype) for s in (3, 4))
    widths = (64, 512) if latent else (192, 128)
    own = torch.int8 if quantised else dtype
    caches = [torch.ones(BLOCKS, BLOCK, 1, w).mul(9).to(own) for w in widths]
    scales = [random(w, seed=5, dtype=torch.float32).mul(10) for w in widths]
    device = [cache.to("npu") for cache in caches]
    _, _, rope, plain = torch_npu.npu_kv_rmsnorm_rope_cache(
        kv.to("npu"),
        gamma.to("npu"),
        cos.to("npu"),
        sin.to("npu"),
        slots_of(mode).to("npu"),
        *device,
        k_rope_scale=scales[0].to("npu") if quantised else None,
        c_kv_scale=scales[1].to("npu") if quantised else None,
        v=None if latent else value.to("npu"),
        cache_mode=mode,
        is_output_kv=True,
    )
    wide = kv.double()
    normal = wide[..., :512] if latent else wide
    normal = normal * (normal.pow(2).mean(-1, keepdim=True) + 1e-5).rsqrt() * gamma.double()
    if latent:
        expected = [rotated(wide[..., 512:], cos, sin), normal]
    else:
        turned = rotated(normal[..., :64], cos, sin)
        expected = [torch.cat([turned, normal[..., 64:]], -1), value.double()]
    bound = torch.tensor(16.0).double()
    last = 32 if quantised else 16
    for cache, result, rows, scale, width, output in zip(
        caches, device, expected, scales, widths, (rope, plain), strict=True
    ):
        conformance.close(output.cpu(), rows, ulps=32, magnitude=bound)
        stored = result.cpu()
        if mode.endswith("NZ"):
            pieces = stored.view(BLOCKS, width // last, BLOCK, last)
            stored = pieces.permute(0, 2, 1, 3).reshape(BLOCKS, BLOCK, 1, width)
        flat, untouched = stored.view(-1, width), torch.ones(BLOCKS * BLOCK, dtype=torch.bool)
        for slot, row in zip(places(mode), rows.view(-1, width), strict=True):
            if slot < 0:
                continue
            untouched[slot] = False
            if quantised:
                conformance.quantized(flat[slot], row * scale.double(), slack=1e-2)
            else:
                conformance.close(flat[slot], row, ulps=32, magnitude=bound)
        assert torch.equal(flat[untouched], cache.view(-1, width)[untouched])


def test_rows_at_offsets_of_their_sequence() -> None:
    kv = random(BATCH, 1, 2, 576, seed=0, dtype=torch.float16)
    gamma, cos = torch.ones(512).half(), torch.ones(BATCH, 1, 2, 64).half()
    sin = torch.zeros(BATCH, 1, 2, 64).half()
    caches = [torch.zeros(BATCH, 1, 8, w).half().to("npu") for w in (64, 512)]
    index = torch.tensor([[0, 7], [3, -1]])
    torch_npu.npu_kv_rmsnorm_rope_cache(
        kv.to("npu"),
        gamma.to("npu"),
        cos.to("npu"),
        sin.to("npu"),
        index.to("npu"),
        *caches,
        cache_mode="Norm",
    )
    written = caches[1].cpu().ne(0).any(-1)[:, 0]
    assert written.nonzero().tolist() == [[0, 0], [0, 7], [1, 3]]


def test_unknown_mode_is_refused() -> None:
    kv, gamma = torch.ones(1, 1, 1, 576).half().to("npu"), torch.ones(512).half().to("npu")
    angles = torch.ones(1, 1, 1, 64).half().to("npu")
    caches = [torch.zeros(1, 16, 1, w).half().to("npu") for w in (64, 512)]
    with pytest.raises(RuntimeError, match="expected one of Norm, PA"):
        torch_npu.npu_kv_rmsnorm_rope_cache(
            kv, gamma, angles, angles, torch.zeros(1).long().to("npu"), *caches, cache_mode="PB"
        )
