"""Quantisation with a scale for each piece of a row, against float64."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
import torch_npu

from operators import drawn_tensors
from operators.operator_call import call_operator

HALVES = [torch.bfloat16, torch.float16]
random = partial(drawn_tensors.random, seed=1)


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("shape", [(4, 256), (3, 5, 130), (1, 1), (2, 127)])
@pytest.mark.parametrize("columns", [1, 128])
@pytest.mark.parametrize("least", [0.0, 80.0])
def test_pieces_of_rows_have_scales_of_their_own(
    conformance: Any, dtype: torch.dtype, shape: tuple[int, ...], columns: int, least: float
) -> None:
    x = random(*shape, dtype=dtype)
    result, scale = torch_npu.npu_dynamic_block_quant(
        x.to("npu"), min_scale=least, col_block_size=columns
    )
    pieces = torch.split(x.double(), columns, -1)
    sizes = [piece.abs().amax(-1) / 127 for piece in pieces]
    sizes = [size.clamp(max=1 / least) if least else size for size in sizes]
    conformance.close(scale.cpu(), torch.stack(sizes, -1))
    scaled = [piece / size.unsqueeze(-1) for piece, size in zip(pieces, sizes, strict=True)]
    conformance.quantized(result.cpu(), torch.cat(scaled, -1))


def test_strided_rows_are_read_where_they_lie() -> None:
    x = random(200, 6, dtype=torch.float16)
    result, scale = torch_npu.npu_dynamic_block_quant(x.to("npu").t())
    expected = torch_npu.npu_dynamic_block_quant(x.t().contiguous().to("npu"))
    assert torch.equal(result.cpu(), expected[0].cpu())
    assert torch.equal(scale.cpu(), expected[1].cpu())


def test_zeros_stay_zeros() -> None:
    result, scale = torch_npu.npu_dynamic_block_quant(torch.zeros(2, 128).half().to("npu"))
    assert not result.any()
    assert not scale.any()


def test_first_version_equals_the_second() -> None:
    x = random(4, 200, dtype=torch.bfloat16).to("npu")
    expected = torch_npu.npu_dynamic_block_quant(x)
    results = [torch.empty_like(tensor) for tensor in expected]
    call_operator("aclnnDynamicBlockQuant", x, 0.0, b"rint", 2, 1, 128, *results)
    for result, reference in zip(results, expected, strict=True):
        assert torch.equal(result.cpu(), reference.cpu())


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"round_mode": "round"}, "roundMode.*found round"),
        ({"row_block_size": 128}, "rowBlockSize"),
        ({"col_block_size": 64}, "colBlockSize"),
        ({"min_scale": -1.0}, "minScale"),
        ({"dst_type": torch.float8_e4m3fn}, "yOut.*int8, found Float8_e4m3fn"),
        ({"dst_type_max": 15.0}, "dstTypeMax"),
    ],
)
def test_what_the_device_refuses_is_refused(
    changes: dict[str, Any], reason: str, capfd: Any
) -> None:
    del capfd
    x = random(4, 256, dtype=torch.float16).to("npu")
    with pytest.raises(RuntimeError, match=f"(?s){reason}"):
        torch_npu.npu_dynamic_block_quant(x, **changes)
