"""Grouped products, SwiGLU and quantisation in one: int4 rows and weights, weights in blocks."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch_npu

from operators.drawn_tensors import integers
from operators.int4 import packed

ROWS, INNER, COLUMNS, GROUPS = 7, 64, 128, 2
ENDS = [3, 7]


def positive(*shape: int, seed: int, scale: float) -> torch.Tensor:
    return (torch.rand(shape, generator=torch.Generator().manual_seed(seed)) + 0.1) * scale


def blocks(values: torch.Tensor, columns: int) -> torch.Tensor:
    """[E, K, N] as [E, N / columns, K / 16, 16, columns]."""
    experts, inner, width = values.shape
    split = values.reshape(experts, inner // 16, 16, width // columns, columns)
    return split.permute(0, 3, 1, 2, 4).contiguous()


def scale_words(scale: torch.Tensor) -> torch.Tensor:
    """float32 in the lower half of int64."""
    return scale.contiguous().view(torch.int32).long() & 0xFFFFFFFF


def check(
    conformance: Any, results: tuple[torch.Tensor, ...], product: torch.Tensor, smooth: torch.Tensor
) -> None:
    left, right = product.chunk(2, -1)
    values = torch.nn.functional.silu(left) * right * smooth
    step = values.abs().amax(-1) / 127
    conformance.close(results[1].cpu(), step, ulps=2048)
    conformance.quantized(results[0].cpu(), values / step[:, None], slack=2e-2)


def products(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    parts = torch.split(x.double(), [ENDS[0], ENDS[1] - ENDS[0]])
    return torch.cat([part @ own.double() for part, own in zip(parts, weight, strict=True)])


def by_row(values: torch.Tensor) -> torch.Tensor:
    return values.double().repeat_interleave(torch.tensor([ENDS[0], ENDS[1] - ENDS[0]]), 0)


@pytest.mark.parametrize("second", [False, True])
def test_int8_weights_in_blocks_equal_those_in_rows(conformance: Any, second: bool) -> None:
    x = integers(ROWS, INNER, seed=0)
    weight = integers(GROUPS, INNER, COLUMNS, seed=1)
    scale, own = positive(GROUPS, COLUMNS, seed=2, scale=1e-4), positive(ROWS, seed=3, scale=1.0)
    stored, ends = blocks(weight, 32).to("npu"), torch.tensor(ENDS).to("npu")
    if second:
        results = torch_npu.npu_grouped_matmul_swiglu_quant_v2(
            x.to("npu"), [stored], [scale.to("npu")], own.to("npu"), ends
        )
    else:
        results = torch_npu.npu_grouped_matmul_swiglu_quant(
            x.to("npu"), stored, ends, scale.to("npu"), own.to("npu")
        )
    product = products(x, weight) * by_row(scale) * own.double()[:, None]
    check(conformance, results, product, torch.ones(1))


@pytest.mark.parametrize("pieces", [1, 2])
@pytest.mark.parametrize("in_blocks", [False, True])
def test_int4_weights_with_the_assist_matrix(
    conformance: Any, pieces: int, in_blocks: bool
) -> None:
    x = integers(ROWS, INNER, seed=0)
    weight = integers(GROUPS, INNER, COLUMNS, seed=1, least=-8, most=7)
    scale = positive(GROUPS, pieces, COLUMNS, seed=2, scale=1e-3)
    spread = scale.double().repeat_interleave(INNER // pieces, 1)
    # What the operator's split of the rows leaves out: 8 in each.
    assist = (8.0 * weight.double() * spread).sum(1).float()
    own = positive(ROWS, seed=3, scale=1.0)
    stored = packed(blocks(weight, 64) if in_blocks else weight)
    results = torch_npu.npu_grouped_matmul_swiglu_quant_v2(
        x.to("npu"),
        [stored.to("npu")],
        [scale_words(scale if pieces > 1 else scale[:, 0]).to("npu")],
        own.to("npu"),
        torch.tensor(ENDS).to("npu"),
        weight_assist_matrix=[assist.to("npu")],
        dequant_mode=int(pieces > 1),
    )
    product = products(x, weight.double() * spread) * own.double()[:, None]
    check(conformance, results, product, torch.ones(1))


@pytest.mark.parametrize("wide", [False, True])
def test_int4_rows_are_smoothed_before_they_are_quantised(conformance: Any, wide: bool) -> None:
    x = integers(ROWS, INNER, seed=0, least=-8, most=7)
    weight = integers(GROUPS, INNER, COLUMNS, seed=1, least=-8, most=7)
    scale, own = positive(GROUPS, COLUMNS, seed=2, scale=1e-2), positive(ROWS, seed=3, scale=1.0)
    smooth = positive(GROUPS, *[COLUMNS // 2] * wide, seed=4, scale=1.0)
    results = torch_npu.npu_grouped_matmul_swiglu_quant_v2(
        packed(x).to("npu"),
        [packed(weight).to("npu")],
        [scale_words(scale).to("npu")],
        own.to("npu"),
        torch.tensor(ENDS).to("npu"),
        smooth_scale=smooth.to("npu"),
    )
    product = products(x, weight) * by_row(scale) * own.double()[:, None]
    check(conformance, results, product, by_row(smooth).view(ROWS, -1))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"dequant_mode": 1}, "argument 'dequantMode'"),
        ({"smooth_scale": torch.ones(GROUPS)}, "argument 'smoothScale'"),
    ],
)
def test_int8_refuses_what_belongs_to_int4(changes: dict[str, Any], message: str) -> None:
    changes = {k: v.to("npu") if isinstance(v, torch.Tensor) else v for k, v in changes.items()}
    with pytest.raises(RuntimeError, match=message):
        torch_npu.npu_grouped_matmul_swiglu_quant_v2(
            integers(ROWS, INNER, seed=0, least=-8, most=7).to("npu"),
            [integers(GROUPS, INNER, COLUMNS, seed=1, least=-8, most=7).to("npu")],
            [torch.ones(GROUPS, COLUMNS).to("npu")],
            torch.ones(ROWS).to("npu"),
            torch.tensor(ENDS).to("npu"),
            **changes,
        )
