"""Pooling that torch_npu calls only where it is told to be compatible with torch."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from operators.operator_call import call_operator

WINDOW = ((3, 2), (2, 1), (1, 0), (1, 2))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_largest_values_their_places_and_gradient(conformance: Any, dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(0)
    images = torch.randn(2, 3, 7, 6, generator=generator).to(dtype)
    expected, places = torch.nn.functional.max_pool2d_with_indices(images.double(), *WINDOW)
    device, out = images.to("npu"), torch.empty(expected.shape, dtype=dtype, device="npu")
    indices = torch.empty(expected.shape, dtype=torch.int32, device="npu")
    call_operator("aclnnMaxPool2dWithIndices", device, *WINDOW, False, out, indices)
    assert torch.equal(out.cpu().double(), expected)
    assert torch.equal(indices.cpu().long(), places)
    above = torch.randn(expected.shape, generator=generator).to(dtype)
    gradient = torch.empty_like(device)
    inputs = (above.to("npu"), device, indices)
    call_operator("aclnnMaxPool2dWithIndicesBackward", *inputs, *WINDOW, False, gradient)
    slope = torch.ops.aten.max_pool2d_with_indices_backward(
        above.double(), images.double(), *WINDOW, False, places
    )
    conformance.close(gradient.cpu(), slope, magnitude=torch.tensor(8.0).double())
