"""Batch and group normalisation and gradients of normalisations."""

from __future__ import annotations

from typing import Any

import torch
import torch_npu

from operators.operator_case import SINGLE, Case, Values, fixed

ATEN: Any = torch.ops.aten
POSITIVE = Values(low=0.5, high=2.0)
AFFINE = fixed(((4, 6), (6,), (6,)), ((3, 4, 5), (4,), (4,)), ((2, 2, 3, 3), (2,), (2,)))
INPUTS = (Values(), Values(), Values())
GROUPED = fixed(((2, 4, 5), (4,), (4,)), ((3, 2, 2, 2), (2,), (2,)))
SPREAD: Any = {"ulps": 128.0, "magnitude": 8.0}


def moments(values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    dims = [d for d in range(values.dim()) if d != 1]
    variance = values.var(dims, correction=0)
    return values.mean(dims), (variance + 1e-5).rsqrt()


def over(values: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    return values.view(1, -1, *[1] * (like.dim() - 2))


def elementary(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    mean, scale = bias * 0.5, weight.abs() + 0.5
    return (x - over(mean, x)) * over(scale, x) * over(weight, x) + over(bias, x)


def group_silu(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.silu(torch.nn.functional.group_norm(x, 2, weight, bias, 1e-5))


def batch_gradients(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> Any:
    mean, scale = (part.to(x.device) for part in moments(x.cpu()))
    arguments = (None, None, mean, scale, True, 1e-5, [True, True, True])
    return ATEN.native_batch_norm_backward(x * 0.5 + over(bias, x), x, weight, *arguments)


def layer_gradients(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> Any:
    wide = x.cpu()
    mean = wide.mean(-1, True).to(x.device)
    scale = (wide.var(-1, correction=0, keepdim=True) + 1e-5).rsqrt().to(x.device)
    wanted = [True, True, True]
    return ATEN.native_layer_norm_backward(
        x * 0.5 + bias, x, [x.size(-1)], mean, scale, weight, bias, wanted
    )


def group_gradients(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> Any:
    batch, channels = x.shape[:2]
    parts = x.cpu().reshape(batch, 2, -1)
    mean = parts.mean(-1).to(x.device)
    scale = (parts.var(-1, correction=0) + 1e-5).rsqrt().to(x.device)
    positions = x.numel() // (batch * channels)
    arguments = (batch, channels, positions, 2, [True, True, True])
    return ATEN.native_group_norm_backward(
        x * 0.5 + over(bias, x), x, mean, scale, weight, *arguments
    )


def sums(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return x.sum([0, *range(2, x.dim())]), x.square().sum([0, *range(2, x.dim())])


def gathered(means: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    counts = torch.tensor([3.0, 5.0], device=means.device, dtype=means.dtype)
    x = means.new_zeros((2, means.size(1), 4))
    invstd = means * 0 + 0.5
    return torch.batch_norm_gather_stats_with_counts(
        x, means, invstd, None, None, 0.1, 1e-5, counts
    )


def gathered_reference(means: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    counts = torch.tensor([3.0, 5.0], dtype=means.dtype).view(2, 1)
    mean = (means * counts).sum(0) / 8
    variance = ((4 - 1e-5 + (means - mean) ** 2) * counts).sum(0) / 8
    return mean, (variance + 1e-5).rsqrt()


def gathered_sums(x: torch.Tensor) -> list[torch.Tensor]:
    """Return the statistics of a batch from the sums of its halves, and the running ones."""
    sum_, squares = zip(*[sums(half) for half in x.chunk(2)], strict=True)
    mean, variance = x.new_ones(x.shape[1]), x.new_zeros(x.shape[1])
    counts = torch.full((2,), x.numel() // x.shape[1] // 2, dtype=torch.int32, device=x.device)
    statistics = torch.ops.npu.batch_norm_gather_stats_update(
        x, torch.stack(sum_), torch.stack(squares), mean, variance, 0.25, 1e-5, counts
    )
    return [*statistics, mean, variance]


def gathered_sums_reference(x: torch.Tensor) -> list[torch.Tensor]:
    channels = x.transpose(0, 1).flatten(1)
    mean, variance = channels.mean(1), channels.var(1, correction=0)
    running = 0.75 + 0.25 * mean, 0.25 * channels.var(1)
    return [mean, (variance + 1e-5).rsqrt(), *running]


def reduced_gradients(grad: torch.Tensor, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    mean, scale = x[0, :, 0] * 0.5, x[0, :, 0].abs() + 0.5
    product = (grad * (x - over(mean, x))).sum([0, 2])
    return grad.sum([0, 2]), product, product * scale, grad.sum([0, 2])


def elementary_gradient(grad: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    mean, scale = x[0, :, 0] * 0.5, x[0, :, 0].abs() + 0.5
    shifted = grad - over(x[0, :, 0] * 2 / 9, x)
    slope = scale**2 * x[0, :, 0] * 3 / 9
    return (shifted - (x - over(mean, x)) * over(slope, x)) * over(scale, x)


CASES = (
    Case(
        operator="aclnnBatchNorm",
        call=lambda x, w, b: torch.nn.functional.batch_norm(x, None, None, w, b, training=True),
        inputs=INPUTS,
        shapes=AFFINE,
        dtypes=SINGLE,
        **SPREAD,
    ),
    Case(
        operator="aclnnBatchNormBackward",
        call=batch_gradients,
        inputs=INPUTS,
        shapes=AFFINE,
        dtypes=SINGLE,
        ulps=1024,
        magnitude=64,
    ),
    Case(
        operator="aclnnBatchNormStats",
        call=lambda x: torch.batch_norm_stats(x, 1e-5),
        reference=moments,
        shapes=fixed(((4, 6),), ((3, 4, 5),)),
        dtypes=SINGLE,
        **SPREAD,
    ),
    Case(
        operator="aclnnBatchNormReduce",
        call=lambda x: torch.ops.npu.batch_norm_reduce(x, 1e-5),
        reference=sums,
        shapes=fixed(((4, 6),), ((3, 4, 5),)),
        dtypes=SINGLE,
        magnitude=64,
    ),
    Case(
        operator="aclnnBatchNormElemt",
        call=lambda x, w, b: torch.batch_norm_elemt(x, w, b, b * 0.5, w.abs() + 0.5, 1e-5),
        reference=elementary,
        inputs=INPUTS,
        shapes=AFFINE,
        dtypes=SINGLE,
        magnitude=32,
    ),
    Case(
        operator="aclnnBatchNormGatherStatsWithCounts",
        call=gathered,
        reference=gathered_reference,
        shapes=fixed(((2, 4),), ((2, 1),)),
        dtypes=SINGLE,
        **SPREAD,
    ),
    Case(
        operator="aclnnSyncBatchNormGatherStats",
        call=gathered_sums,
        reference=gathered_sums_reference,
        shapes=fixed(((4, 3, 5),), ((2, 1, 20),)),
        dtypes=SINGLE,
        **SPREAD,
    ),
    Case(
        operator="aclnnGroupNorm",
        call=lambda x, w, b: torch.nn.functional.group_norm(x, 2, w, b),
        inputs=INPUTS,
        shapes=GROUPED,
        **SPREAD,
    ),
    Case(
        operator="aclnnGroupNormSilu",
        call=lambda x, w, b: torch_npu.npu_group_norm_silu(x, w, b, 2)[0],
        reference=group_silu,
        inputs=INPUTS,
        shapes=GROUPED,
        **SPREAD,
    ),
    Case(
        operator="aclnnGroupNormBackward",
        call=group_gradients,
        inputs=INPUTS,
        shapes=GROUPED,
        dtypes=SINGLE,
        ulps=1024,
        magnitude=64,
    ),
    Case(
        operator="aclnnLayerNormBackward",
        call=layer_gradients,
        inputs=INPUTS,
        shapes=fixed(((4, 6), (6,), (6,)), ((2, 3, 5), (5,), (5,))),
        dtypes=SINGLE,
        ulps=1024,
        magnitude=64,
    ),
    Case(
        operator="aclnnBatchNormReduceBackward",
        call=lambda g, x: torch.batch_norm_backward_reduce(
            g, x, x[0, :, 0] * 0.5, x[0, :, 0].abs() + 0.5, None, True, True, True
        ),
        reference=reduced_gradients,
        inputs=(Values(), Values()),
        shapes=fixed(((3, 4, 5), (3, 4, 5)), ((1, 1, 1), (1, 1, 1))),
        dtypes=SINGLE,
        magnitude=128,
    ),
    Case(
        operator="aclnnBatchNormElemtBackward",
        call=lambda g, x: torch.batch_norm_backward_elemt(
            g,
            x,
            x[0, :, 0] * 0.5,
            x[0, :, 0].abs() + 0.5,
            None,
            x[0, :, 0] * 2,
            x[0, :, 0] * 3,
            torch.tensor([4, 5], dtype=torch.int32, device=x.device),
        ),
        reference=elementary_gradient,
        inputs=(Values(), Values()),
        shapes=fixed(((3, 4, 5), (3, 4, 5)), ((1, 1, 1), (1, 1, 1))),
        dtypes=SINGLE,
        magnitude=128,
    ),
)
