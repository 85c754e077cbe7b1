"""Padding, pooling, convolution and resizing of images."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional

from operators.operator_case import FLOATS, SINGLE, Case, Values, fixed

ATEN: Any = torch.ops.aten
LINES = fixed(((2, 3, 5),), ((1, 1, 4),))
PLANES = fixed(((2, 3, 5, 6),), ((1, 1, 4, 4),))
VOLUMES = fixed(((1, 2, 4, 5, 4),), ((1, 1, 4, 4, 4),))
BY_DIMENSIONS = {1: LINES, 2: PLANES, 3: VOLUMES}
Image = Callable[[torch.Tensor], torch.Tensor]


def gradient_of(function: Image) -> Image:
    """Return the gradient of a linear function of an image, for a fixed weight of its results."""

    def gradient(image: torch.Tensor) -> torch.Tensor:
        image = image.detach().requires_grad_()
        result = function(image)
        weight = torch.arange(result.numel()).remainder(5).sub(2).view(result.shape)
        return torch.autograd.grad(result, image, weight.to(result))[0]

    return gradient


def pads() -> list[Case]:
    cases = []
    for kind, mode in (("Reflection", "reflect"), ("Replication", "replicate")):
        for dims, shapes in BY_DIMENSIONS.items():
            size = [1, 2] * dims

            def pad(image: torch.Tensor, mode: str = mode, size: list[int] = size) -> torch.Tensor:
                return functional.pad(image, size, mode=mode)

            name = f"aclnn{kind}Pad{dims}d"
            cases += [
                Case(operator=name, call=pad, shapes=shapes),
                Case(
                    operator=f"{name}Backward", call=gradient_of(pad), shapes=shapes, magnitude=64
                ),
            ]
    return cases


def resizing(operator: str, backward: str, mode: str, dims: int, **options: Any) -> list[Case]:
    size = [7, 3, 6][:dims]

    def resize(image: torch.Tensor) -> torch.Tensor:
        return functional.interpolate(image, size=size, mode=mode, **options)

    shapes = BY_DIMENSIONS[dims]
    return [
        Case(operator=operator, call=resize, shapes=shapes, dtypes=SINGLE, ulps=64, magnitude=8),
        Case(
            operator=backward,
            call=gradient_of(resize),
            shapes=shapes,
            dtypes=SINGLE,
            ulps=64,
            magnitude=32,
        ),
    ]


def both(operator: str, function: Image, shapes: Any, backward: str | None = None) -> list[Case]:
    return [
        Case(operator=operator, call=function, shapes=shapes, dtypes=SINGLE, magnitude=8),
        Case(
            operator=backward or f"{operator}Backward",
            call=gradient_of(function),
            shapes=shapes,
            dtypes=SINGLE,
            magnitude=16,
        ),
    ]


def unpooled(image: torch.Tensor) -> Any:
    places = (
        torch.arange(image[0, 0].numel()).view(image.shape[2:]).expand(image.shape).contiguous()
    )
    size = [length * 2 for length in image.shape[2:]]
    if image.dim() == 4:
        return ATEN.max_unpool2d(image, places.to(image.device), size)
    return ATEN.max_unpool3d(image, places.to(image.device), size, [2, 2, 2], [0, 0, 0])


def convolution_gradients(
    image: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor
) -> tuple[torch.Tensor, ...]:
    inputs = [values.detach().requires_grad_() for values in (image, weight, bias)]
    result = functional.conv2d(inputs[0], inputs[1], inputs[2], padding=1)
    upstream = torch.arange(result.numel()).remainder(5).sub(2).view(result.shape)
    return torch.autograd.grad(result, inputs, upstream.to(result))


def tbc_gradients(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> Any:
    grad = torch.arange(bias.numel()).sub(1).expand(x.shape[0] + 1, x.shape[1], -1).contiguous()
    return ATEN.conv_tbc_backward(grad.to(x), x, weight, bias, 1)


def sampled(image: torch.Tensor, grid: torch.Tensor) -> Any:
    return functional.grid_sample(image, grid, mode="bilinear", align_corners=False)


def sampled_gradients(image: torch.Tensor, grid: torch.Tensor) -> Any:
    backward = ATEN.grid_sampler_2d_backward if image.dim() == 4 else ATEN.grid_sampler_3d_backward
    grad = torch.ones_like(functional.grid_sample(image, grid, align_corners=True))
    return backward(grad, image, grid, 0, 2, True, [True, True])


THREE = (Values(), Values(), Values())
PLACES = (Values(), Values(low=-1.5, high=1.5))
CONVOLVED = fixed(((2, 3, 5, 6), (4, 3, 3, 2), (4,)), ((1, 1, 4, 4), (1, 1, 1, 1), (1,)))

CASES = (
    *pads(),
    *both("aclnnAdaptiveAvgPool2d", lambda x: functional.adaptive_avg_pool2d(x, (3, 2)), PLANES),
    *both(
        "aclnnAdaptiveAvgPool3d", lambda x: functional.adaptive_avg_pool3d(x, (3, 2, 2)), VOLUMES
    ),
    *both("aclnnAdaptiveMaxPool2d", lambda x: functional.adaptive_max_pool2d(x, (3, 2)), PLANES),
    *both(
        "aclnnAdaptiveMaxPool3d", lambda x: functional.adaptive_max_pool3d(x, (3, 2, 2)), VOLUMES
    ),
    *both("aclnnAvgPool2d", lambda x: functional.avg_pool2d(x, 2, padding=1), PLANES),
    *both("aclnnAvgPool3d", lambda x: functional.avg_pool3d(x, 2, padding=1), VOLUMES),
    *both("aclnnMaxPool2dWithMask", lambda x: functional.max_pool2d(x, 2, padding=1), PLANES),
    *both("aclnnMaxPool3dWithArgmax", lambda x: functional.max_pool3d(x, 2), VOLUMES),
    Case(operator="aclnnMaxUnpool2d", call=unpooled, shapes=PLANES, dtypes=SINGLE),
    Case(operator="aclnnMaxUnpool3d", call=unpooled, shapes=VOLUMES, dtypes=SINGLE),
    Case(
        operator="aclnnConvolution",
        call=lambda x, w, b: functional.conv2d(x, w, b, stride=2, padding=1),
        inputs=THREE,
        shapes=CONVOLVED,
        magnitude=128,
    ),
    Case(
        operator="aclnnConvolutionBackward",
        call=convolution_gradients,
        inputs=THREE,
        shapes=CONVOLVED,
        dtypes=SINGLE,
        magnitude=512,
    ),
    Case(
        operator="aclnnConvDepthwise2d",
        call=lambda x, w, b: ATEN._conv_depthwise2d(
            x, w, list(w.shape[2:]), b, [2, 1], [1, 0], [1, 1]
        ),
        reference=lambda x, w, b: functional.conv2d(
            x, w, b, stride=(2, 1), padding=(1, 0), groups=x.shape[1]
        ),
        inputs=THREE,
        shapes=fixed(((2, 3, 5, 6), (6, 1, 3, 2), (6,)), ((1, 1, 4, 4), (1, 1, 1, 1), (1,))),
        magnitude=32,
    ),
    Case(
        operator="aclnnConvolution",
        call=lambda x, w, b: torch._nnpack_spatial_convolution(x, w, b, [1, 2]),
        reference=lambda x, w, b: functional.conv2d(x, w, b, padding=(1, 2)),
        inputs=THREE,
        shapes=fixed(((2, 3, 5, 6), (4, 3, 3, 2), (4,))),
        dtypes=SINGLE,
        magnitude=64,
    ),
    Case(
        operator="aclnnConvTbc",
        call=lambda x, w, b: torch.conv_tbc(x, w, b, 1),
        inputs=THREE,
        shapes=fixed(((5, 2, 3), (2, 3, 4), (4,))),
        magnitude=64,
    ),
    Case(
        operator="aclnnConvTbcBackward",
        call=tbc_gradients,
        inputs=THREE,
        shapes=fixed(((5, 2, 3), (2, 3, 4), (4,))),
        magnitude=256,
    ),
    Case(
        operator="aclnnAffineGrid",
        call=lambda theta: functional.affine_grid(theta, [2, 1, 3, 5], align_corners=False),
        shapes=fixed(((2, 2, 3),)),
        magnitude=8,
    ),
    *(
        Case(
            operator=f"aclnnGridSampler{image}D{kind}",
            call=call,
            inputs=PLACES,
            shapes=fixed(shapes),
            dtypes=dtypes,
            ulps=64,
            magnitude=64,
        )
        for image, shapes in (
            (2, ((2, 3, 5, 4), (2, 3, 2, 2))),
            (3, ((1, 2, 3, 4, 5), (1, 2, 3, 2, 3))),
        )
        for kind, call, dtypes in (
            ("", sampled, FLOATS),
            ("Backward", sampled_gradients, (torch.float16, torch.float32)),
        )
    ),
    *resizing("aclnnUpsampleNearest1dV2", "aclnnUpsampleNearest1dBackward", "nearest", 1),
    *resizing("aclnnUpsampleNearest2dV2", "aclnnUpsampleNearest2dBackward", "nearest", 2),
    *resizing("aclnnUpsampleNearest3d", "aclnnUpsampleNearest3dBackward", "nearest", 3),
    *resizing(
        "aclnnUpsampleNearestExact1d", "aclnnUpsampleNearestExact1dBackward", "nearest-exact", 1
    ),
    *resizing(
        "aclnnUpsampleNearestExact2d", "aclnnUpsampleNearestExact2dBackward", "nearest-exact", 2
    ),
    *resizing(
        "aclnnUpsampleNearestExact3d", "aclnnUpsampleNearestExact3dBackward", "nearest-exact", 3
    ),
    *resizing("aclnnUpsampleLinear1d", "aclnnUpsampleLinear1dBackward", "linear", 1),
    *resizing("aclnnUpsampleBilinear2d", "aclnnUpsampleBilinear2dBackwardV2", "bilinear", 2),
    *resizing("aclnnUpsampleBicubic2d", "aclnnUpsampleBicubic2dBackward", "bicubic", 2),
    *resizing(
        "aclnnUpsampleBilinear2dAA",
        "aclnnUpsampleBilinear2dAABackward",
        "bilinear",
        2,
        antialias=True,
    ),
    *resizing(
        "aclnnUpsampleBicubic2dAA", "aclnnUpsampleBicubic2dAAGrad", "bicubic", 2, antialias=True
    ),
    *resizing("aclnnUpsampleTrilinear3d", "aclnnUpsampleTrilinear3dBackward", "trilinear", 3),
)
