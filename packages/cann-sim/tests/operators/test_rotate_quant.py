"""Rows turned by a matrix, rounded to their dtype and quantised."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch_npu

from operators.drawn_tensors import random
from operators.int4 import unpacked

WIDTH, SIDE = 128, 32


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("rows", [1, 7])
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("strided", [False, True])
def test_rows_are_rotated_and_quantised(
    conformance: Any, dtype: torch.dtype, rows: int, packed: bool, strided: bool
) -> None:
    x = (
        random(WIDTH, rows, seed=1, dtype=dtype).t()
        if strided
        else random(rows, WIDTH, seed=1, dtype=dtype)
    )
    rotation = random(SIDE, SIDE, seed=2, dtype=dtype)
    out, scale = torch_npu.npu_rotate_quant(
        x.to("npu"), rotation.to("npu"), dst_dtype=torch.quint4x2 if packed else torch.int8
    )
    pieces = x.double().reshape(-1, SIDE)
    # In float32: from float64 a value between two of the dtype might be rounded to the other.
    turned = (pieces.float() @ rotation.float()).to(dtype).double().reshape(rows, WIDTH)
    bound = (pieces.abs() @ rotation.double().abs()).reshape(rows, WIDTH)
    largest = 7 if packed else 127
    size = turned.abs().amax(1) / largest
    conformance.close(scale.cpu(), size, ulps=SIDE, magnitude=bound.amax(1) / largest)
    values = unpacked(out.cpu()) if packed else out.cpu()
    conformance.quantized(
        values, turned / size.unsqueeze(1), least=-8 if packed else -128, most=largest, slack=1e-3
    )


@pytest.mark.parametrize("mode", ["round", "floor"])
def test_modes_of_rounding_are_those_that_are_named(mode: str) -> None:
    x = torch.zeros(1, WIDTH)
    # With the largest value 127 the scale is 1; halves stay halves.
    x[0, :6] = torch.tensor([127.0, 2.5, -2.5, 3.5, -0.5, 1.25])
    rotation = torch.eye(SIDE)
    out, _ = torch_npu.npu_rotate_quant(
        x.half().to("npu"), rotation.half().to("npu"), round_mode=mode
    )
    expected = {"round": [127, 3, -3, 4, -1, 1], "floor": [127, 2, -3, 3, -1, 1]}[mode]
    assert out.cpu()[0, :6].tolist() == expected


@pytest.mark.parametrize(
    ("x", "rotation", "changes", "reason"),
    [
        ((4, 120), (SIDE, SIDE), {}, "'x'"),
        ((4, WIDTH), (8, 8), {}, "'rotation'.*square"),
        ((4, WIDTH), (SIDE, SIDE), {"axis": 0}, "axis"),
        ((4, WIDTH), (SIDE, SIDE), {"round_mode": "ceil"}, "ceil"),
        ((4, WIDTH), (SIDE, SIDE), {"scale_alg": 1}, "(?i)scale_?alg"),
    ],
)
def test_what_the_device_refuses_is_refused(
    x: tuple[int, int], rotation: tuple[int, int], changes: dict[str, Any], reason: str, capfd: Any
) -> None:
    del capfd
    with pytest.raises(RuntimeError, match=f"(?s){reason}"):
        torch_npu.npu_rotate_quant(
            torch.ones(x).half().to("npu"), torch.ones(rotation).half().to("npu"), **changes
        )
