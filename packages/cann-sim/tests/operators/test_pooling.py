"""Pooling that torch_npu calls only if it is configured to be compatible with torch."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from operators.operator_call import call_operator

WINDOW = ((3, 2), (2, 1), (1, 0), (1, 2))


@pytest.fixture
def images() -> torch.Tensor:
    return torch.randn(2, 3, 7, 6, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_largest_values_and_their_places(images: torch.Tensor, dtype: torch.dtype) -> None:
    images = images.to(dtype)
    expected, places = torch.nn.functional.max_pool2d_with_indices(images.double(), *WINDOW)
    out = torch.empty(expected.shape, dtype=dtype, device="npu")
    indices = torch.empty(expected.shape, dtype=torch.int32, device="npu")
    call_operator("aclnnMaxPool2dWithIndices", images.to("npu"), *WINDOW, False, out, indices)
    assert torch.equal(out.cpu().double(), expected)
    assert torch.equal(indices.cpu().long(), places)


def test_gradient_goes_to_the_largest_values(conformance: Any, images: torch.Tensor) -> None:
    expected, places = torch.nn.functional.max_pool2d_with_indices(images, *WINDOW)
    above = torch.randn(expected.shape, generator=torch.Generator().manual_seed(1))
    gradient = torch.empty_like(images, device="npu")
    inputs = (above.to("npu"), images.to("npu"), places.int().to("npu"))
    call_operator("aclnnMaxPool2dWithIndicesBackward", *inputs, *WINDOW, False, gradient)
    slope = torch.ops.aten.max_pool2d_with_indices_backward(
        above.double(), images.double(), *WINDOW, False, places
    )
    conformance.close(gradient.cpu(), slope, magnitude=torch.tensor(8.0).double())
