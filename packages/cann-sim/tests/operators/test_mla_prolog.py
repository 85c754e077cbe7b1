"""What stands before latent attention in a decode step, in one operator, against float64."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pytest
import torch
import torch_npu

if TYPE_CHECKING:
    from collections.abc import Iterator

LATENT, ROPE, HEADS, DIM, RANK = 512, 64, 2, 128, 1536
HIDDEN = {2: 6144, 3: 1024}
BATCH, STEPS, BLOCK, BLOCKS = 2, 2, 16, 3
SLOTS = [3, 17, 47, 30]
NZ = 29
BFLOAT16, INT8 = torch.bfloat16, torch.int8
PLAIN, BY_TENSOR, BY_CHANNEL, BY_TILE = range(4)
MODES = [(0, PLAIN), (1, PLAIN), (1, BY_CHANNEL), (2, PLAIN), (2, BY_TENSOR)]


@pytest.fixture(autouse=True)
def _internal_formats() -> Iterator[None]:
    torch_npu.npu.config.allow_internal_format = True
    yield
    torch_npu.npu.config.allow_internal_format = False


def random(*shape: int, seed: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


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


class Call:
    """One call with its reference; the reference rounds where the device's products end."""

    def __init__(self, version: int, weights: int, caches: int, *, packed: bool = False) -> None:
        self.version, self.weights, self.caches, self.packed = version, weights, caches, packed
        hidden = HIDDEN[version]
        self.tokens = BATCH * STEPS
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
            self.scales["quant_scale_ckv"] = torch.full(shape, 30.0)

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
            shape = (BLOCKS, BLOCK, 1)
        return [
            torch.full((*shape, width), 9).to(dtype).to("npu")
            for width, dtype in zip(widths, dtypes, strict=True)
        ]

    def run(self, mode: str, index: torch.Tensor | None, **changes: Any) -> list[torch.Tensor]:
        """Return query, its rotary part, both caches, and what else there is."""
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


def close(conformance: Any, result: torch.Tensor, reference: torch.Tensor) -> None:
    """Compare what products of rounded values made.

    Where float32 and float64 round an intermediate value differently, sums change by less than one
    unit of bfloat16 of their usual size.
    """
    usual = reference.square().mean().sqrt()
    ulps = torch.finfo(BFLOAT16).eps / torch.finfo(torch.float32).eps
    conformance.close(result.cpu().view(reference.shape), reference, ulps=ulps, magnitude=usual)


def stored(cache: torch.Tensor, mode: str, slots: list[int]) -> torch.Tensor:
    """Return the rows at these slots, and check that no other was written."""
    width, last = cache.shape[-1], 32 if cache.dtype == INT8 else 16
    rows = cache.cpu()
    if mode.endswith("NZ"):
        rows = rows.view(BLOCKS, width // last, BLOCK, last).transpose(1, 2)
    rows = rows.reshape(-1, width)
    others = torch.ones(len(rows), dtype=torch.bool)
    others[slots] = False
    assert (rows[others] == 9).all()
    return rows[slots]


def check(
    conformance: Any, call: Call, results: list[torch.Tensor], mode: str, slots: list[int]
) -> None:
    latent, rope, _, _ = call.queries()
    key, key_rope = call.keys()
    if call.caches == BY_TENSOR:
        values, size = rows_scaled(latent)
        conformance.quantized(results[0].cpu().view(latent.shape), values, slack=0.3)
        close(conformance, results[4], size)
        rope = rope * 30.0 / size
    else:
        close(conformance, results[0], latent)
    close(conformance, results[1], rope)
    for cache, rows, name in ((results[2], key, "ckv"), (results[3], key_rope, "ckr")):
        written = stored(cache, mode, slots)
        if cache.dtype == INT8:
            by = call.scales[f"quant_scale_{name}"].double()
            conformance.quantized(written, rows * by, slack=0.01)
        else:
            close(conformance, written, rows)


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize(("weights", "caches"), MODES)
@pytest.mark.parametrize("mode", ["PA_BSND", "PA_NZ"])
def test_all_quantisations_give_queries_and_fill_the_caches(
    conformance: Any, version: int, weights: int, caches: int, mode: str
) -> None:
    call = Call(version, weights, caches)
    results = call.run(mode, torch.tensor(SLOTS).view(BATCH, STEPS))
    check(conformance, call, results, mode, SLOTS)


@pytest.mark.parametrize("weights", [0, 1])
def test_third_version_returns_the_normalised_queries(conformance: Any, weights: int) -> None:
    call = Call(3, weights, PLAIN, packed=True)
    results = call.run("PA_BSND", torch.tensor(SLOTS))
    check(conformance, call, results, "PA_BSND", SLOTS)
    _, _, rows, size = call.queries()
    if weights == 0:
        close(conformance, results[5], rows)
    else:
        conformance.quantized(results[5].cpu(), rows, slack=0.3)
        close(conformance, results[6], size)


@pytest.mark.parametrize("mode", ["PA_BLK_BSND", "PA_BLK_NZ"])
@pytest.mark.parametrize("packed", [True, False])
def test_index_may_name_blocks(conformance: Any, mode: str, packed: bool) -> None:
    call = Call(3, 0, PLAIN, packed=packed)
    index = torch.tensor([2, 0]) if packed else torch.tensor([[2], [0]])
    ends = torch.tensor([STEPS, 2 * STEPS]).int().to("npu") if packed else None
    results = call.run(mode, index, actual_seq_len=ends)
    check(conformance, call, results, mode, [2 * BLOCK, 2 * BLOCK + 1, 0, 1])


@pytest.mark.parametrize("packed", [True, False])
def test_caches_may_hold_the_tokens_of_the_call(conformance: Any, packed: bool) -> None:
    call, mode = Call(3, 0, PLAIN, packed=packed), "TND" if packed else "BSND"
    check(conformance, call, call.run(mode, None), mode, list(range(BATCH * STEPS)))


@pytest.mark.parametrize("weights", [1, 2])
@pytest.mark.parametrize("clip", [None, 0.5])
def test_a_row_may_hold_keys_rotary_part_and_scales(
    conformance: Any, weights: int, clip: float | None
) -> None:
    call = Call(3, weights, BY_TILE)
    alpha = None if clip is None else torch.tensor([clip]).to("npu")
    results = call.run("PA_BSND", torch.tensor(SLOTS).view(BATCH, STEPS), k_nope_clip_alpha=alpha)
    rows = stored(results[2], "PA_BSND", SLOTS).contiguous()
    key, key_rope = call.keys()
    values, size = rows_scaled(key.view(call.tokens, -1, 128))
    factor = clip or 1.0
    expected = (values / factor).view(call.tokens, LATENT)
    conformance.quantized(rows[:, :LATENT], expected, slack=0.3)
    close(conformance, rows[:, LATENT : LATENT + 128].contiguous().view(BFLOAT16), key_rope)
    sizes = rows[:, LATENT + 128 :].contiguous().view(torch.float32)
    close(conformance, sizes, size.squeeze(-1) * factor)


def test_no_token_changes_nothing() -> None:
    call = Call(3, 0, PLAIN, packed=True)
    call.tokens, call.x, call.cos, call.sin = 0, call.x[:0], call.cos[:0], call.sin[:0]
    results = call.run("PA_BSND", torch.zeros(0, dtype=torch.int64))
    assert results[0].shape == (0, HEADS, LATENT)
    assert (results[2].cpu() == 9).all()


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"cache_mode": "BNSD"}, "cacheMode.*PA_BSND, PA_NZ.*found BNSD"),
        ({"cache_index": None}, "cacheIndex.*found none"),
        ({"weight_quant_mode": 1}, "'weightUqQr'|'dequantScaleWUqQr'"),
        ({"query_quant_mode": 1}, "queryQuantMode.*found"),
        ({"smooth_scales_cq": torch.ones(1, RANK)}, "smoothScalesCq.*none"),
        ({"weight_dq": torch.zeros(HIDDEN[3], RANK, dtype=BFLOAT16)}, "weightDq.*FRACTAL_NZ"),
        ({"weight_uk": torch.zeros(3, DIM, LATENT, dtype=BFLOAT16)}, "weightUk"),
        ({"rope_sin": torch.zeros(BATCH, STEPS, ROPE)}, "ropeSin.*bfloat16"),
    ],
)
def test_what_the_device_refuses_is_refused(changes: Any, reason: str, capfd: Any) -> None:
    del capfd
    moved = {k: v.to("npu") if isinstance(v, torch.Tensor) else v for k, v in changes.items()}
    with pytest.raises(RuntimeError, match=f"(?s){reason}"):
        Call(3, 0, PLAIN).run("PA_BSND", torch.tensor(SLOTS).view(BATCH, STEPS), **moved)
