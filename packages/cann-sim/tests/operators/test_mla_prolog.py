"""The part of a decode step before latent attention, in one operator, against float64."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
import torch_npu

from operators.mla_prolog_call import (
    BATCH,
    BFLOAT16,
    BLOCK,
    BLOCKS,
    BY_CHANNEL,
    BY_TENSOR,
    BY_TILE,
    CACHE_SCALE,
    DIM,
    HEADS,
    HIDDEN,
    INT8,
    LATENT,
    PLAIN,
    RANK,
    ROPE,
    STEPS,
    PrologCall,
    rows_scaled,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

SLOTS = [3, 17, 47, 30]
MODES = [(0, PLAIN), (1, PLAIN), (1, BY_CHANNEL), (2, PLAIN), (2, BY_TENSOR)]


@pytest.fixture(autouse=True)
def _internal_formats() -> Iterator[None]:
    torch_npu.npu.config.allow_internal_format = True
    yield
    torch_npu.npu.config.allow_internal_format = False


def close(conformance: Any, result: torch.Tensor, reference: torch.Tensor) -> None:
    """Compare the results of products of rounded values.

    If float32 and float64 round an intermediate value differently, sums change by less than one
    unit of
    bfloat16 of their usual size.
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
    conformance: Any, call: PrologCall, results: list[torch.Tensor], mode: str, slots: list[int]
) -> None:
    latent, rope, _, _ = call.queries()
    key, key_rope = call.keys()
    if call.caches == BY_TENSOR:
        values, size = rows_scaled(latent)
        conformance.quantized(results[0].cpu().view(latent.shape), values, slack=0.3)
        close(conformance, results[4], size)
        rope = rope * CACHE_SCALE / size
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
    call = PrologCall(version, weights, caches)
    results = call.run(mode, torch.tensor(SLOTS).view(BATCH, STEPS))
    check(conformance, call, results, mode, SLOTS)


@pytest.mark.parametrize("weights", [0, 1])
def test_third_version_returns_the_normalised_queries(conformance: Any, weights: int) -> None:
    call = PrologCall(3, weights, PLAIN, packed=True)
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
    call = PrologCall(3, 0, PLAIN, packed=packed)
    index = torch.tensor([2, 0]) if packed else torch.tensor([[2], [0]])
    ends = torch.tensor([STEPS, 2 * STEPS]).int().to("npu") if packed else None
    results = call.run(mode, index, actual_seq_len=ends)
    check(conformance, call, results, mode, [2 * BLOCK, 2 * BLOCK + 1, 0, 1])


@pytest.mark.parametrize("packed", [True, False])
def test_caches_may_hold_the_tokens_of_the_call(conformance: Any, packed: bool) -> None:
    call, mode = PrologCall(3, 0, PLAIN, packed=packed), "TND" if packed else "BSND"
    check(conformance, call, call.run(mode, None), mode, list(range(BATCH * STEPS)))


@pytest.mark.parametrize("weights", [1, 2])
@pytest.mark.parametrize("clip", [None, 0.5])
def test_a_row_may_hold_keys_rotary_part_and_scales(
    conformance: Any, weights: int, clip: float | None
) -> None:
    call = PrologCall(3, weights, BY_TILE)
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
    call = PrologCall(3, 0, PLAIN, packed=True)
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
        PrologCall(3, 0, PLAIN).run("PA_BSND", torch.tensor(SLOTS).view(BATCH, STEPS), **moved)
