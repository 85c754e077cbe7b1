"""Caches of keys and values, and tensors in the NZ format."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from npu_graph_check.probes.operators.agreement import drawn, expect_close, expect_equal, run

if TYPE_CHECKING:
    from npu_graph_check.probe import Look

_BLOCKS, _BLOCK, _HEADS, _DIM = 3, 16, 2, 32
_ND, _NZ = 2, 29


def scatter(look: Look) -> None:
    """Write rows into both kinds of caches, one of them at a negative slot."""
    half = torch.float16
    rows = [drawn(3, _HEADS, _DIM, seed=seed, dtype=half) for seed in (0, 1)]
    slots = torch.tensor([3, -1, 40])
    plain = [drawn(_BLOCKS, _BLOCK, _HEADS, _DIM, seed=seed, dtype=half) for seed in (2, 3)]
    for mode in ("Norm", "PA_NZ"):

        def stored(cache: torch.Tensor, mode: str = mode) -> torch.Tensor:
            if mode == "Norm":
                return cache.clone()
            pieces = cache.reshape(_BLOCKS, _BLOCK, _HEADS * _DIM // 16, 16)
            return pieces.permute(0, 2, 1, 3).contiguous()

        caches = [stored(cache).to(look.on) for cache in plain]
        run(look, "npu_scatter_pa_kv_cache", *rows, *caches, slots, cache_mode=mode)
        for name, cache, own, seen in zip(("keys", "values"), plain, rows, caches, strict=True):
            expected = cache.clone()
            expected.view(-1, _HEADS, _DIM)[[3, 40]] = own[[0, 2]]
            expect_equal(look, f"{mode}: {name}", seen, stored(expected))


def gather(look: Look) -> None:
    """Read pages through a table, one of them not in the cache."""
    half = torch.float16
    caches = [drawn(_BLOCKS, _BLOCK, _HEADS, _DIM, seed=seed, dtype=half) for seed in (0, 1)]
    table = torch.tensor([[2, 1], [0, _BLOCKS]], dtype=torch.int32)
    lengths = torch.tensor([20, 18], dtype=torch.int32)
    outputs = [torch.full((38, _HEADS, _DIM), 7.0, dtype=half).to(look.on) for _ in caches]
    run(look, "npu_gather_pa_kv_cache", *caches, table, lengths, *outputs)
    for name, cache, seen in zip(("keys", "values"), caches, outputs, strict=True):
        expected = torch.cat(
            [cache[2], cache[1, :4], cache[0], torch.zeros(2, _HEADS, _DIM).half()]
        )
        expect_equal(look, name, seen, expected)


def nz_format(look: Look) -> None:
    """Cast to NZ and back, and multiply with it, and add in it."""
    _allow_internal_formats(look)
    x = torch.arange(40 * 48).view(40, 48).remainder(97).half()
    blocks = run(look, "npu_format_cast", x, _NZ)
    look.expect("the format", _format(blocks), _NZ)
    expect_equal(look, "cast and cast back", run(look, "npu_format_cast", blocks, _ND), x)
    expect_equal(look, "copied to the host", blocks, x)
    product = run(look, torch.mm, torch.eye(4, 40).half(), blocks)
    expect_equal(look, "a product with it", product, x[:4])
    half = torch.full_like(x, 0.5)
    expect_equal(look, "a sum with it", run(look, torch.add, blocks, half), x + half)


def plain_format(look: Look) -> None:
    """Cast to NZ where internal formats are not allowed, which is the default."""
    _allow_internal_formats(look, allowed=False)
    x = drawn(16, 32, seed=0).half()
    seen = run(look, "npu_format_cast", x, _NZ)
    look.expect("the format", _format(seen), _ND)
    expect_equal(look, "values", seen, x)


def image_formats(look: Look) -> None:
    """Cast images and volumes to the formats of their channels, and back."""
    _allow_internal_formats(look)
    for name, number, plain, shape in (
        ("NC1HWC0", 3, 0, (2, 18, 3, 5)),
        ("FRACTAL_Z", 4, 0, (4, 18, 3, 5)),
        ("NDC1HWC0", 32, 30, (2, 18, 2, 3, 4)),
    ):
        x = torch.arange(torch.Size(shape).numel()).remainder(97).view(shape).half()
        cast = run(look, "npu_format_cast", x, number)
        look.expect(f"{name}: the format", _format(cast), number)
        expect_equal(look, f"{name}: cast back", run(look, "npu_format_cast", cast, plain), x)


def normalised_rows(look: Look) -> None:
    """Normalise, rotate and store latent rows, one of them at a negative slot."""
    half = torch.float16
    rows, gamma = drawn(2, 1, 2, 576, seed=0, dtype=half), drawn(512, seed=1, dtype=half)
    angles = drawn(2, 1, 2, 64, seed=2)
    cos, sin = angles.cos().half(), angles.sin().half()
    slots = torch.tensor([3, -1, 40, 17])
    caches = [
        torch.full((_BLOCKS, _BLOCK, 1, width), 9.0, dtype=half).to(look.on) for width in (64, 512)
    ]
    given = (rows, gamma, cos, sin, slots, *caches)
    run(look, "npu_kv_rmsnorm_rope_cache", *given, cache_mode="PA")
    wide = rows.double()
    latent = wide[..., :512]
    norm = latent * (latent.square().mean(-1, keepdim=True) + 1e-5).rsqrt() * gamma.double()
    halves = torch.cat([wide[..., 512::2], wide[..., 513::2]], -1)
    turned = torch.cat([-halves[..., 32:], halves[..., :32]], -1)
    rotated = halves * cos.double() + turned * sin.double()
    for name, cache, own in (("rotary", caches[0], rotated), ("latent", caches[1], norm)):
        seen = cache.cpu().view(_BLOCKS * _BLOCK, -1)
        expected = torch.full_like(seen, 9.0).double()
        expected[[3, 40, 17]] = own.reshape(4, -1)[[0, 2, 3]]
        expect_close(look, name, seen, expected, 1e-3)


def _format(tensor: torch.Tensor) -> int:
    return int(torch.ops.npu.get_npu_format(tensor))


def _allow_internal_formats(look: Look, *, allowed: bool = True) -> None:
    look.opened.synchronize()
    npu: Any = vars(torch)["npu"]
    npu.config.allow_internal_format = allowed
