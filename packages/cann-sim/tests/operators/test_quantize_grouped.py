"""Quantising rows with the scales of their groups, against float64."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch_npu

FLOATS = [torch.bfloat16, torch.float16, torch.float32]


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("index", [torch.int32, torch.int64])
@pytest.mark.parametrize("shifted", [True, False])
def test_group_quant_scales_each_group(
    conformance: Any, dtype: torch.dtype, index: torch.dtype, shifted: bool
) -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(9, 16, generator=generator).mul(20).to(dtype)
    scale = torch.randn(3, 16, generator=generator)
    ends, offset = torch.tensor([4, 4, 9]), torch.tensor([2.5])
    result = torch_npu.npu_group_quant(
        x.to("npu"),
        scale.to("npu"),
        ends.to(index).to("npu"),
        offset=offset.to("npu") if shifted else None,
        dst_dtype=torch.qint8,
    ).cpu()
    rows = torch.tensor([0] * 4 + [2] * 5)
    expected = x.double() * scale[rows].double() + (2.5 if shifted else 0)
    conformance.quantized(result, expected)


def test_group_quant_reports_groups_that_leave_rows_out() -> None:
    x, scale = torch.ones(4, 8).to("npu"), torch.ones(2, 8).to("npu")
    torch_npu.npu_group_quant(x, scale, torch.tensor([1, 3]).to("npu"), dst_dtype=torch.qint8)
    with pytest.raises(RuntimeError):
        torch_npu.npu.synchronize()
