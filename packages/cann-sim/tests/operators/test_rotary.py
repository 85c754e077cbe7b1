"""Rotary position embeddings against float64."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch_npu

from operators.drawn_tensors import random

FLOATS = [torch.bfloat16, torch.float16, torch.float32]
# [tokens, heads, dim] broadcasts differently in each order of the axes.
LAYOUTS = {
    "BNSD": ((2, 4, 5, 32), (1, 1, 5, 32)),
    "BSND": ((2, 5, 4, 32), (1, 5, 1, 32)),
    "SBND": ((5, 2, 4, 32), (5, 1, 1, 32)),
    "whole": ((2, 4, 5, 32), (2, 4, 5, 32)),
    "one token": ((1, 1, 1, 128), (1, 1, 1, 128)),
}


def angles(shape: tuple[int, ...], dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    values = random(*shape, seed=9, dtype=torch.float32)
    return values.cos().to(dtype), values.sin().to(dtype)


def reference(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, mode: str) -> torch.Tensor:
    x, cos, sin = x.double(), cos.double(), sin.double()
    turned = torch.empty_like(x)
    half = x.shape[-1] // 2
    if mode == "half":
        turned[..., :half], turned[..., half:] = -x[..., half:], x[..., :half]
    else:
        turned[..., ::2], turned[..., 1::2] = -x[..., 1::2], x[..., ::2]
    return x * cos + turned * sin


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("mode", ["half", "interleave"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_rotary_mul_is_rounded_once(
    conformance: Any, layout: str, mode: str, dtype: torch.dtype
) -> None:
    shape, angle_shape = LAYOUTS[layout]
    x = random(*shape, dtype=dtype)
    cos, sin = angles(angle_shape, dtype)
    result = torch_npu.npu_rotary_mul(x.to("npu"), cos.to("npu"), sin.to("npu"), mode).cpu()
    conformance.close(result, reference(x, cos, sin, mode), magnitude=torch.tensor(8.0).double())


@pytest.mark.parametrize("dtype", FLOATS)
def test_apply_rotary_pos_emb_turns_query_and_key(conformance: Any, dtype: torch.dtype) -> None:
    query, key = random(2, 3, 4, 128, dtype=dtype), random(2, 3, 1, 128, seed=1, dtype=dtype)
    cos, sin = angles((2, 3, 1, 128), dtype)
    results = torch_npu.npu_apply_rotary_pos_emb(
        query.to("npu"), key.to("npu"), cos.to("npu"), sin.to("npu"), "BSND"
    )
    magnitude = torch.tensor(8.0).double()
    for result, x in zip(results, (query, key), strict=True):
        conformance.close(result.cpu(), reference(x, cos, sin, "half"), magnitude=magnitude)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("mode", ["half", "interleave"])
def test_mrope_reads_the_cache_at_the_positions(
    conformance: Any, mode: str, dtype: torch.dtype
) -> None:
    tokens, head, rotary = 6, 64, 32
    query, key = (
        random(tokens, 4 * head, dtype=dtype),
        random(tokens, 2 * head, seed=1, dtype=dtype),
    )
    cache = torch.cat(angles((50, rotary // 2), dtype), -1)
    positions = torch.tensor([0, 3, 49, 3, 7, 1])
    results = torch_npu.npu_mrope(
        positions.to("npu"),
        query.to("npu"),
        key.to("npu"),
        cache.to("npu"),
        head,
        mrope_section=[0, 0, 0],
        rotary_mode=mode,
    )
    chosen = cache.double()[positions]
    cos, sin = chosen.chunk(2, -1)
    spread = (
        (lambda t: torch.cat([t, t], -1))
        if mode == "half"
        else (lambda t: t.repeat_interleave(2, -1))
    )
    for result, x in zip(results, (query, key), strict=True):
        heads = x.view(tokens, -1, head)
        turned = reference(
            heads[..., :rotary], spread(cos).unsqueeze(1), spread(sin).unsqueeze(1), mode
        )
        expected = torch.cat([turned, heads[..., rotary:].double()], -1).view_as(x)
        conformance.close(result.cpu(), expected, magnitude=torch.tensor(8.0).double())


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("mode", ["half", "interleave"])
@pytest.mark.parametrize(
    ("sections", "cache_mode"),
    [([16, 8, 8], "default"), ([12, 10, 10], "interleave"), ([8, 8, 8, 8], "default")],
)
def test_mrope_mixes_the_rows_of_positions(
    conformance: Any, dtype: torch.dtype, mode: str, sections: list[int], cache_mode: str
) -> None:
    tokens, head, rotary = 5, 96, 64
    query = random(tokens, 4 * head, dtype=dtype)
    key = random(tokens, head, seed=1, dtype=dtype)
    cache = torch.cat(angles((50, rotary // 2), dtype), -1)
    generator = torch.Generator().manual_seed(3)
    positions = torch.randint(0, 50, (len(sections), tokens), generator=generator)
    results = torch_npu.npu_mrope(
        positions.to("npu"),
        query.to("npu"),
        key.to("npu"),
        cache.to("npu"),
        head,
        mrope_section=sections,
        rotary_mode=mode,
        cache_mode=cache_mode,
    )
    # The row of positions that serves each element of half the rotary dimension.
    if cache_mode == "default":
        rows = torch.arange(len(sections)).repeat_interleave(torch.tensor(sections))
    else:
        index = torch.arange(rotary // 2)
        rows = torch.where(index < 3 * sections[1], index % 3, 0)
    chosen = torch.stack(
        [cache.double()[positions[row]].view(tokens, 2, -1)[:, :, i] for i, row in enumerate(rows)],
        -1,
    )
    cos, sin = (
        torch.cat([t, t], -1) if mode == "half" else t.repeat_interleave(2, -1)
        for t in chosen.unbind(1)
    )
    for result, x in zip(results, (query, key), strict=True):
        heads = x.view(tokens, -1, head)
        turned = reference(heads[..., :rotary], cos.unsqueeze(1), sin.unsqueeze(1), mode)
        expected = torch.cat([turned, heads[..., rotary:].double()], -1).view_as(x)
        conformance.close(result.cpu(), expected, magnitude=torch.tensor(8.0).double())


def test_mrope_refuses_what_the_device_refuses() -> None:
    x, cache = torch.ones(4, 64).to("npu"), torch.ones(8, 64).to("npu")
    one, three = torch.zeros(4).long().to("npu"), torch.zeros(3, 4).long().to("npu")
    four = torch.zeros(4, 4).long().to("npu")
    with pytest.raises(RuntimeError, match=r"argument 'positions': expected three rows"):
        torch_npu.npu_mrope(
            four, x, x, cache, 64, mrope_section=[8, 8, 8, 8], cache_mode="interleave"
        )
    with pytest.raises(RuntimeError, match=r"argument 'mropeSection': expected one section"):
        torch_npu.npu_mrope(three, x, x, cache, 64, mrope_section=[8, 8, 8])
    with pytest.raises(RuntimeError, match=r"argument 'positions': expected one of the dtypes"):
        torch_npu.npu_mrope(one.float(), x, x, cache, 64)


def test_mrope_of_one_row_of_positions_has_no_cache_mode() -> None:
    x, cache = (random(4, 64, dtype=torch.float16).to("npu") for _ in range(2))
    rows = torch.arange(4).to("npu")
    plain, interleaved = (
        torch_npu.npu_mrope(rows, x, x, cache, 64, cache_mode=mode)[0].cpu()
        for mode in ("default", "interleave")
    )
    assert torch.equal(plain, interleaved)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("length", [1, 5])
def test_interleave_rope_sorts_neighbours_into_halves(
    conformance: Any, dtype: torch.dtype, length: int
) -> None:
    x = random(2, 3, 5, 64, dtype=dtype)
    cos, sin = angles((2, 1, length, 64), dtype)
    result = torch_npu.npu_interleave_rope(x.to("npu"), cos.to("npu"), sin.to("npu"))
    sorted_x = torch.cat([x[..., ::2], x[..., 1::2]], -1)
    conformance.close(
        result.cpu(), reference(sorted_x, cos, sin, "half"), magnitude=torch.tensor(8.0).double()
    )


def test_interleave_rope_takes_a_view_which_the_operator_makes_contiguous() -> None:
    # As an engine calls it: the rotary part of a query, after a part that is not rotated.
    cos, sin = angles((6, 1, 1, 64), torch.bfloat16)
    part = random(6, 4, 192, dtype=torch.bfloat16).to("npu")[..., 128:].view(6, 4, 1, 64)
    assert not part.is_contiguous()
    given = cos.to("npu"), sin.to("npu")
    found = torch_npu.npu_interleave_rope(part, *given)
    assert torch.equal(found, torch_npu.npu_interleave_rope(part.contiguous(), *given))


def test_interleave_rope_refuses_what_the_device_refuses() -> None:
    x, cos = torch.ones(1, 2, 3, 64).half().to("npu"), torch.ones(1, 1, 3, 64).half().to("npu")
    with pytest.raises(RuntimeError, match=r"argument 'x': expected one of the dtypes"):
        torch_npu.npu_interleave_rope(x.float(), cos.float(), cos.float())
    with pytest.raises(RuntimeError, match=r"argument 'cos': expected one of the dtypes"):
        torch_npu.npu_interleave_rope(x, cos.float(), cos.float())
    with pytest.raises(RuntimeError, match=r"argument 'cos': expected shape \[batch, 1"):
        torch_npu.npu_interleave_rope(x[..., :32].contiguous(), *[cos[..., :32].contiguous()] * 2)


def test_odd_dimension_is_refused() -> None:
    x, cos = torch.ones(1, 1, 2, 5).to("npu"), torch.ones(1, 1, 2, 5).to("npu")
    with pytest.raises(RuntimeError, match=r"even last dimension|RotaryPositionEmbedding"):
        torch_npu.npu_rotary_mul(x, cos, cos)
