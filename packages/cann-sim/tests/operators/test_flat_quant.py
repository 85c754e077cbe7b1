"""Quantisation of rows turned by a Kronecker product, against float64."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch_npu

from operators.drawn_tensors import random
from operators.int4 import unpacked


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("shape", [(5, 7, 16), (1, 1, 8), (3, 64, 128)])
@pytest.mark.parametrize("clip", [None, 1.0, 0.5])
@pytest.mark.parametrize("strided", [False, True])
def test_rows_are_rotated_and_quantised(
    conformance: Any,
    dtype: torch.dtype,
    shape: tuple[int, int, int],
    clip: float | None,
    strided: bool,
) -> None:
    x = random(shape[0], shape[2], shape[1], seed=0, dtype=dtype).transpose(1, 2)
    x = x if strided else x.contiguous()
    left, right = (random(n, n, seed=n, dtype=dtype) for n in shape[1:])
    out, scale = torch_npu.npu_kronecker_quant(
        x.to("npu"), left.to("npu"), right.to("npu"), clip_ratio=clip
    )
    # The device's matrix unit takes the first product in the dtype of its factors.
    inner = (x.double() @ right.double()).to(dtype).double()
    turned = left.double() @ inner
    expected = turned.abs().amax((1, 2)) * (clip or 1.0) / 7
    # A value that rounds differently in float32 changes a sum by a unit of the dtype.
    slack = torch.finfo(dtype).eps / torch.finfo(torch.float32).eps
    conformance.close(scale.cpu(), expected, ulps=slack)
    quotients = turned / expected.view(-1, 1, 1)
    conformance.quantized(
        unpacked(out.cpu()), quotients, least=-8, most=7, slack=8 * torch.finfo(dtype).eps * 7
    )


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"x": torch.zeros(2, 3, 264).half(), "right": torch.zeros(264, 264).half()}, "'x'"),
        ({"left": torch.zeros(3, 3)}, "'kroneckerP1'.*float16"),
        ({"right": torch.zeros(8, 8).half()}, "'kroneckerP2'"),
        ({"clip": 0.0}, "clipRatio.*found 0"),
        ({"x": torch.zeros(2, 3, 16)}, "'x'.*found float32"),
    ],
)
def test_what_the_device_refuses_is_refused(changes: Any, reason: str, capfd: Any) -> None:
    del capfd
    given = {
        "x": torch.ones(2, 3, 16).half(),
        "left": torch.ones(3, 3).half(),
        "right": torch.ones(16, 16).half(),
        "clip": 1.0,
        **changes,
    }
    x, left, right = (given[name].to("npu") for name in ("x", "left", "right"))
    with pytest.raises(RuntimeError, match=f"(?s){reason}"):
        torch_npu.npu_kronecker_quant(x, left, right, clip_ratio=given["clip"])
