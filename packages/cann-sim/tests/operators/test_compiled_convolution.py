"""Convolutions, normalisation, slices and fills of the older interface, against float64."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
import torch_npu
from torch.nn import functional

from operators.drawn_tensors import random

if TYPE_CHECKING:
    from collections.abc import Callable

FLOATS = [torch.float16, torch.float32]
Geometry = tuple[list[int], list[int], list[int], int]


def compare(
    conformance: Any,
    device: Callable[..., torch.Tensor],
    reference: Callable[..., torch.Tensor],
    *inputs: torch.Tensor | None,
) -> None:
    result = device(*(None if t is None else t.to("npu") for t in inputs)).cpu()
    expected = reference(*(None if t is None else t.double() for t in inputs))
    assert result.shape == expected.shape
    conformance.close(result, expected, ulps=128, magnitude=torch.tensor(16.0).double())


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize(
    "geometry",
    [([1, 1], [0, 0], [1, 1], 1), ([2, 1], [1, 2], [1, 2], 1), ([1, 2], [0, 1], [1, 1], 2)],
)
def test_convolution_of_images(
    conformance: Any, dtype: torch.dtype, biased: bool, geometry: Geometry
) -> None:
    strides, paddings, dilations, groups = geometry
    x = random(2, 4, 7, 8, seed=0, dtype=dtype)
    weight = random(6, 4 // groups, 3, 2, seed=1, dtype=dtype)
    bias = random(6, seed=2, dtype=dtype) if biased else None
    compare(
        conformance,
        lambda x, w, b: torch_npu.npu_conv2d(x, w, b, strides, paddings, dilations, groups),
        lambda x, w, b: functional.conv2d(x, w, b, strides, paddings, dilations, groups),
        x,
        weight,
        bias,
    )


@pytest.mark.parametrize("dtype", FLOATS)
def test_convolution_of_volumes(conformance: Any, dtype: torch.dtype) -> None:
    x, weight = (
        random(1, 3, 4, 5, 6, seed=0, dtype=dtype),
        random(4, 3, 2, 2, 3, seed=1, dtype=dtype),
    )
    strides, paddings, dilations = [1, 2, 1], [1, 0, 1], [1, 1, 1]
    compare(
        conformance,
        lambda x, w, b: torch_npu.npu_conv3d(x, w, b, strides, paddings, dilations, 1),
        lambda x, w, b: functional.conv3d(x, w, b, strides, paddings, dilations, 1),
        x,
        weight,
        random(4, seed=2, dtype=dtype),
    )


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("dims", [2, 3])
def test_transposed_convolution(conformance: Any, dtype: torch.dtype, dims: int) -> None:
    x = random(2, 3, *[4] * dims, seed=0, dtype=dtype)
    weight = random(3, 5, *[3] * dims, seed=1, dtype=dtype)
    paddings, output_paddings, strides = [1] * dims, [1] * dims, [2] * dims
    reference = functional.conv_transpose2d if dims == 2 else functional.conv_transpose3d
    compare(
        conformance,
        lambda x, w, b: torch_npu.npu_convolution_transpose(
            x, w, b, paddings, output_paddings, strides, [1] * dims, 1
        ),
        lambda x, w, b: reference(x, w, b, strides, paddings, output_paddings),
        x,
        weight,
        random(5, seed=2, dtype=dtype),
    )


@pytest.mark.parametrize("dtype", FLOATS)
def test_evaluated_layer_norm(conformance: Any, dtype: torch.dtype) -> None:
    x = random(3, 4, 6, seed=0, dtype=dtype)
    gamma, beta = (random(6, seed=seed, dtype=dtype) for seed in (1, 2))
    compare(
        conformance,
        lambda x, g, b: torch_npu.npu_layer_norm_eval(x, [6], g, b, 1e-5),
        lambda x, g, b: functional.layer_norm(x, [6], g, b, 1e-5),
        x,
        gamma,
        beta,
    )


@pytest.mark.parametrize("dtype", [torch.float16, torch.int32, torch.int64])
def test_strided_slices(dtype: torch.dtype) -> None:
    values = torch.arange(60).view(3, 4, 5).to(dtype)
    part = torch_npu.npu_indexing(values.to("npu"), [1, 0, 1], [3, 4, 5], [1, 2, 2]).cpu()
    assert torch.equal(part, values[1:3, 0:4:2, 1:5:2])


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_one_hot_fills_with_the_values_it_is_given(dtype: torch.dtype) -> None:
    chosen = torch.tensor([2, 0, 3], dtype=torch.int32)
    found = torch_npu.npu_one_hot(chosen.to("npu"), depth=4, on_value=3, off_value=-1).cpu()
    expected = torch.where(functional.one_hot(chosen.long(), 4).bool(), 3.0, -1.0)
    assert torch.equal(found.to(dtype), expected.to(dtype))
