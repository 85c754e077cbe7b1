"""Calls of MlaProlog in all quantisations, and their expected results in float64."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch_npu

from operators.drawn_tensors import random

LATENT, ROPE, HEADS, DIM, RANK = 512, 64, 2, 128, 1536
HIDDEN = {2: 6144, 3: 1024}
BATCH, STEPS, BLOCK, BLOCKS = 2, 2, 16, 3
CACHE_SCALE = 30.0
NZ = 29
BFLOAT16, INT8 = torch.bfloat16, torch.int8
PLAIN, BY_TENSOR, BY_CHANNEL, BY_TILE = range(4)


def eighths(*shape: int, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(-127, 128, shape, generator=generator, dtype=INT8)


def scale(width: int, seed: int, size: float) -> torch.Tensor:
    return (random(1, width, seed=seed).abs() + 0.5) * size


def half(values: torch.Tensor) -> torch.Tensor:
    return values.bfloat16().double()


def rotated(values: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    first, second = values[..., ::2], values[..., 1::2]
    turned = torch.cat([-second, first], -1)
    result: torch.Tensor = torch.cat([first, second], -1) * cos.double() + turned * sin.double()
    return result


def rows_scaled(values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    size = values.abs().amax(-1, keepdim=True) / 127
    return values / size, size


class PrologCall:
    """One call of MlaProlog with its reference, which rounds where the device's products end."""

    def __init__(
        self,
        version: int,
        weights: int,
        caches: int,
        *,
        packed: bool = False,
        tokens: int = BATCH * STEPS,
        blocks: tuple[int, int] = (BLOCKS, BLOCK),
    ) -> None:
        self.version, self.weights, self.caches, self.packed = version, weights, caches, packed
        self.blocks = blocks
        hidden = HIDDEN[version]
        self.tokens = tokens
        full, up = weights == 2, weights >= 1
        up_width, key_width = HEADS * (DIM + ROPE), LATENT + ROPE

        def weight(rows: int, columns: int, seed: int, *, quantised: bool) -> torch.Tensor:
            if quantised:
                return eighths(rows, columns, seed=seed)
            return (random(rows, columns, seed=seed) / math.sqrt(rows)).bfloat16()

        self.x = (
            eighths(self.tokens, hidden, seed=1)
            if full
            else random(self.tokens, hidden, seed=1).bfloat16()
        )
        self.down = weight(hidden, RANK, 2, quantised=full)
        self.up = weight(RANK, up_width, 3, quantised=up)
        self.key_down = weight(hidden, key_width, 4, quantised=full)
        self.absorb = (random(HEADS, DIM, LATENT, seed=5) / math.sqrt(DIM)).bfloat16()
        self.query_gamma, self.key_gamma = (
            (random(width, seed=seed) / 4 + 1).bfloat16()
            for width, seed in ((RANK, 6), (LATENT, 7))
        )
        self.cos, self.sin = (random(self.tokens, ROPE, seed=s).bfloat16() for s in (8, 9))
        self.factors = {"qc_qr_scale": 1.5, "kc_scale": 0.75} if version == 3 else {}
        self.scales: dict[str, torch.Tensor] = {}
        if full:
            self.scales["dequant_scale_x"] = scale(self.tokens, 10, 0.01).t().contiguous()
            self.scales["dequant_scale_w_dq"] = scale(RANK, 11, 0.0005)
            self.scales["dequant_scale_w_dkv_kr"] = scale(key_width, 12, 0.0005)
        if up:
            self.scales["dequant_scale_w_uq_qr"] = scale(up_width, 13, 0.0005)
            self.scales["smooth_scales_cq"] = scale(RANK, 14, 1.0)
        if caches == BY_CHANNEL:
            self.scales["quant_scale_ckv"] = scale(LATENT, 15, 30.0)
            self.scales["quant_scale_ckr"] = scale(ROPE, 16, 30.0)
        if caches == BY_TENSOR:
            shape = (1,) if version == 3 else (1, LATENT)
            self.scales["quant_scale_ckv"] = torch.full(shape, CACHE_SCALE)

    def shaped(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor if self.packed else tensor.view(BATCH, STEPS, *tensor.shape[1:])

    def cache_tensors(self, mode: str) -> list[torch.Tensor]:
        widths = (656, ROPE) if self.caches == BY_TILE else (LATENT, ROPE)
        dtypes = (
            INT8 if self.caches != PLAIN else BFLOAT16,
            INT8 if self.caches == BY_CHANNEL else BFLOAT16,
        )
        if mode in {"TND", "BSND"}:
            shape = (*self.shaped(self.x).shape[:-1], 1)
        else:
            shape = (*self.blocks, 1)
        return [
            torch.full((*shape, width), 9).to(dtype).to("npu")
            for width, dtype in zip(widths, dtypes, strict=True)
        ]

    def run(self, mode: str, index: torch.Tensor | None, **changes: Any) -> list[torch.Tensor]:
        """Return query, its rotary part, both caches, and further results."""
        caches = self.cache_tensors(mode)
        weights = [self.down, self.up, self.key_down]
        down, up, key_down = (torch_npu.npu_format_cast(w.to("npu"), NZ) for w in weights)
        plain = [self.shaped(self.x), self.absorb, self.query_gamma, self.key_gamma]
        x, absorb, query_gamma, key_gamma = (tensor.to("npu") for tensor in plain)
        sin, cos = (self.shaped(tensor).to("npu") for tensor in (self.sin, self.cos))
        given: dict[str, Any] = {
            "token_x": x,
            "weight_dq": down,
            "weight_uq_qr": up,
            "weight_uk": absorb,
            "weight_dkv_kr": key_down,
            "rmsnorm_gamma_cq": query_gamma,
            "rmsnorm_gamma_ckv": key_gamma,
            "rope_sin": sin,
            "rope_cos": cos,
            "kv_cache": caches[0],
            "kr_cache": caches[1],
            "cache_index": None if index is None else index.to("npu"),
            "cache_mode": mode,
            **{name: tensor.to("npu") for name, tensor in self.scales.items()},
        }
        if self.version == 2:
            results = torch_npu.npu_mla_prolog_v2(**{**given, **changes})
            return [results[0], results[1], *caches, results[4]]
        modes = {
            "weight_quant_mode": self.weights,
            "kv_cache_quant_mode": self.caches,
            "query_quant_mode": 1 if self.caches == BY_TENSOR else 0,
            "ckvkr_repo_mode": 1 if self.caches == BY_TILE else 0,
            "quant_scale_repo_mode": 1 if self.caches == BY_TILE else 0,
            "query_norm_flag": True,
        }
        results = torch_npu.npu_mla_prolog_v3(**{**given, **modes, **self.factors, **changes})
        return [results[0], results[1], *caches, *results[2:]]

    def projected(self, weight: torch.Tensor, name: str) -> torch.Tensor:
        product = self.x.double() @ weight.double()
        if self.weights == 2:
            product = product * self.scales["dequant_scale_x"].double() * self.scales[name].double()
        return product

    def normalised(self, x: torch.Tensor, gamma: torch.Tensor, factor: str) -> torch.Tensor:
        rms = (x.square().mean(-1, keepdim=True) + 1e-5).sqrt()
        return x / rms * gamma.double() * self.factors.get(factor, 1.0)

    def queries(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return latent and rotary queries, the normalised rows, and the scales of those."""
        compressed = self.projected(self.down, "dequant_scale_w_dq")
        compressed = compressed if self.weights == 2 else half(compressed)
        rows = self.normalised(compressed, self.query_gamma, "qc_qr_scale")
        size = torch.ones(self.tokens, 1).double()
        if self.weights == 0:
            rows = half(rows)
            raised = half(rows @ self.up.double())
        else:
            rows, size = rows_scaled(rows * self.scales["smooth_scales_cq"].double())
            raised = (rows.round() @ self.up.double()) * size
            raised = raised * self.scales["dequant_scale_w_uq_qr"].double()
        raised = raised.view(self.tokens, HEADS, DIM + ROPE)
        latent = half(torch.einsum("tnd,ndl->tnl", half(raised[..., :DIM]), self.absorb.double()))
        cos, sin = self.cos.unsqueeze(1), self.sin.unsqueeze(1)
        return latent, half(rotated(raised[..., DIM:], cos, sin)), rows, size

    def keys(self) -> tuple[torch.Tensor, torch.Tensor]:
        rows = self.projected(self.key_down, "dequant_scale_w_dkv_kr")
        latent = self.normalised(rows[:, :LATENT], self.key_gamma, "kc_scale")
        return latent, rotated(rows[:, LATENT:], self.cos, self.sin)
