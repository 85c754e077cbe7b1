"""MlaProlog: what it stores of the keys."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from npu_graph_check.probes.operators.agreement import drawn, expect_close, expect_equal, run

if TYPE_CHECKING:
    from npu_graph_check.probe import Look

_TOKENS, _HIDDEN, _HEADS, _DIM, _RANK, _LATENT, _ROPE = 3, 1024, 2, 128, 1536, 512, 64
_TILE, _BLOCKS, _BLOCK, _NZ = 128, 2, 16, 29
_HALF = torch.bfloat16


class _Prolog:
    """One call over three tokens, the second of which has no slot."""

    def __init__(self, look: Look) -> None:
        self._look, self._on = look, look.on
        npu: Any = vars(torch)["npu"]
        npu.config.allow_internal_format = True
        self.x = drawn(_TOKENS, _HIDDEN, seed=1, dtype=_HALF)
        self.key_down = (drawn(_HIDDEN, _LATENT + _ROPE, seed=4) / _HIDDEN**0.5).to(_HALF)
        self.gamma = (drawn(_LATENT, seed=7) / 4 + 1).to(_HALF)
        self.cos, self.sin = (drawn(_TOKENS, _ROPE, seed=seed).to(_HALF) for seed in (8, 9))

    def run(self, caches: list[torch.Tensor], up: torch.Tensor, **more: Any) -> list[torch.Tensor]:
        """Store into caches of the device, and return them on the CPU."""
        down = (drawn(_HIDDEN, _RANK, seed=2) / _HIDDEN**0.5).to(_HALF)
        absorb = (drawn(_HEADS, _DIM, _LATENT, seed=5) / _DIM**0.5).to(_HALF)
        run(
            self._look,
            "npu_mla_prolog_v3",
            token_x=self.x,
            weight_dq=self._blocks(down),
            weight_uq_qr=self._blocks(up),
            weight_uk=absorb,
            weight_dkv_kr=self._blocks(self.key_down),
            rmsnorm_gamma_cq=torch.ones(_RANK, dtype=_HALF),
            rmsnorm_gamma_ckv=self.gamma,
            rope_sin=self.sin,
            rope_cos=self.cos,
            kv_cache=caches[0],
            kr_cache=caches[1],
            cache_index=torch.tensor([3, -1, 17]),
            cache_mode="PA_BSND",
            **more,
        )
        return [cache.cpu() for cache in caches]

    def _blocks(self, weight: torch.Tensor) -> torch.Tensor:
        cast: torch.Tensor = run(self._look, "npu_format_cast", weight, _NZ)
        return cast

    def caches(self, width: int, dtype: torch.dtype) -> list[torch.Tensor]:
        """Return caches full of 9."""
        return [
            torch.full((_BLOCKS, _BLOCK, 1, size), 9).to(kind).to(self._on)
            for size, kind in ((width, dtype), (_ROPE, _HALF))
        ]

    def stored_rows(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the normalised keys and their rotated parts, in float64."""
        rows = self.x.double() @ self.key_down.double()
        latent, own = rows[:, :_LATENT], rows[:, _LATENT:]
        norm = latent * (latent.square().mean(-1, keepdim=True) + 1e-5).rsqrt()
        halves = torch.cat([own[:, ::2], own[:, 1::2]], -1)
        turned = torch.cat([-halves[:, 32:], halves[:, :32]], -1)
        rotated = halves * self.cos.double() + turned * self.sin.double()
        return norm * self.gamma.double(), rotated


def plain(look: Look) -> None:
    """Store keys as they are."""
    call = _Prolog(look)
    up = (drawn(_RANK, _HEADS * (_DIM + _ROPE), seed=3) / _RANK**0.5).to(_HALF)
    caches = call.run(call.caches(_LATENT, _HALF), up)
    for name, cache, own in zip(("latent", "rotary"), caches, call.stored_rows(), strict=True):
        rows = cache.view(_BLOCKS * _BLOCK, -1)
        expect_close(look, f"{name} rows of the slots", rows[[3, 17]], own[[0, 2]], 1e-2)
        others = [slot for slot in range(len(rows)) if slot not in {3, 17}]
        nines = torch.full_like(rows[others], 9)
        expect_equal(look, f"{name} rows of all others", rows[others], nines)


def by_tile(look: Look) -> None:
    """Store keys in int8 with a scale for each 128, clipped to half of what they would need."""
    call, clip = _Prolog(look), 0.5
    generator = torch.Generator().manual_seed(3)
    up = torch.randint(-127, 128, (_RANK, _HEADS * (_DIM + _ROPE)), generator=generator)
    width = up.shape[1]
    cache = call.run(
        call.caches(_LATENT + 2 * _ROPE + 4 * _LATENT // _TILE, torch.int8),
        up.to(torch.int8),
        dequant_scale_w_uq_qr=torch.full((1, width), 5e-4),
        smooth_scales_cq=torch.ones(1, _RANK),
        k_nope_clip_alpha=torch.tensor([clip]),
        weight_quant_mode=1,
        kv_cache_quant_mode=3,
        query_quant_mode=0,
        ckvkr_repo_mode=1,
        quant_scale_repo_mode=1,
    )[0]
    rows = cache.view(_BLOCKS * _BLOCK, -1)[[3, 17]].contiguous()
    key, rotated = (value[[0, 2]] for value in call.stored_rows())
    tiles = key.view(2, -1, _TILE)
    sizes = tiles.abs().amax(-1) / 127 * clip
    seen = rows[:, _LATENT + 2 * _ROPE :].contiguous().view(torch.float32)
    expect_close(look, "scales, halved", seen, sizes, 1e-2)
    part = rows[:, _LATENT : _LATENT + 2 * _ROPE].contiguous().view(_HALF)
    expect_close(look, "rotary part behind the keys", part, rotated, 1e-2)
    values = (tiles / sizes.unsqueeze(-1)).round().clamp(-128, 127).view(2, -1)
    expect_close(look, "values, cut", rows[:, :_LATENT], values, 2 / 127)
