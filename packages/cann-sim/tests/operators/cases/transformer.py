"""Operators fused for transformers, and their gradients."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.nn import functional

from operators.operator_case import Case, Values, fixed

if TYPE_CHECKING:
    from collections.abc import Callable

NPU: Any = torch.ops.npu
EPSILON = 1e-5
FOUR = (Values(), Values(), Values(), Values())
# Rows, rows, and the parameters of a row.
VECTORS = (((4, 6), (4, 6), (6,), (6,)), ((2, 3, 5), (2, 3, 5), (5,), (5,)))
ROWS = fixed(*VECTORS, ((1, 2, 4), (1, 2, 4), (2, 4), (2, 4)))
GROUPED = fixed(((2, 4, 5), (4,), (4,)), ((3, 2, 2, 2), (2,), (2,)))
SPREAD: Any = {"ulps": 256.0, "magnitude": 32.0}
Tensors = tuple[torch.Tensor, ...]


def of_rows(values: torch.Tensor, gamma: torch.Tensor) -> tuple[int, ...]:
    return tuple(range(values.dim() - gamma.dim(), values.dim()))


def statistics(values: torch.Tensor, gamma: torch.Tensor) -> Tensors:
    dims = of_rows(values, gamma)
    scale = (values.var(dims, correction=0, keepdim=True) + EPSILON).rsqrt()
    return values.mean(dims, keepdim=True), scale


def fixed_statistics(values: torch.Tensor, gamma: torch.Tensor) -> Tensors:
    """Statistics in float32 that do not depend on the dtype of the rest."""
    shape = [*values.shape[: values.dim() - gamma.dim()], *[1] * gamma.dim()]
    count = torch.tensor(shape).prod().item()
    mean = torch.linspace(-0.5, 0.5, int(count)).view(shape)
    return mean.to(values.device), (mean.abs() + 0.75).to(values.device)


def layer_norm(values: torch.Tensor, gamma: torch.Tensor, beta: torch.Tensor) -> torch.Tensor:
    return functional.layer_norm(values, gamma.shape, gamma, beta, EPSILON)


def add_layer_norm(
    x1: torch.Tensor, x2: torch.Tensor, gamma: torch.Tensor, beta: torch.Tensor
) -> Tensors:
    total = x1 + x2
    mean, scale = statistics(total, gamma)
    return layer_norm(total, gamma, beta), mean, scale, total


def deep_norm(
    x: torch.Tensor, gx: torch.Tensor, beta: torch.Tensor, gamma: torch.Tensor
) -> Tensors:
    total = 0.3 * x + gx
    return *statistics(total, gamma), layer_norm(total, gamma, beta)


def layer_norm_gradient(total: torch.Tensor, gamma: torch.Tensor, dy: torch.Tensor) -> Tensors:
    """Gradients of the sum, gamma and beta by the fixed statistics."""
    mean, scale = (part.double() for part in fixed_statistics(total, gamma))
    dims = of_rows(total, gamma)
    ahead = tuple(range(total.dim() - gamma.dim()))
    normalized = (total - mean) * scale
    scaled = dy * gamma
    along = (scaled * normalized).mean(dims, keepdim=True)
    gradient = scale * (scaled - scaled.mean(dims, keepdim=True) - normalized * along)
    return gradient, (dy * normalized).sum(ahead), dy.sum(ahead)


def add_layer_norm_gradients(
    x1: torch.Tensor, x2: torch.Tensor, gamma: torch.Tensor, _: torch.Tensor
) -> Any:
    mean, scale = fixed_statistics(x1, gamma)
    return NPU.npu_add_layer_norm_backward(x1 * 0.5, x1, x2, scale, mean, gamma, x2)


def add_layer_norm_reference(
    x1: torch.Tensor, x2: torch.Tensor, gamma: torch.Tensor, _: torch.Tensor
) -> Tensors:
    gradient, of_gamma, of_beta = layer_norm_gradient(x1 + x2, gamma, x1 * 0.5)
    return gradient + x2, gradient + x2, of_gamma, of_beta


def deep_norm_gradients(
    x: torch.Tensor, gx: torch.Tensor, gamma: torch.Tensor, _: torch.Tensor
) -> Any:
    return NPU.npu_deep_norm_backward(x * 0.5, x, gx, gamma, *fixed_statistics(x, gamma), 0.25)


def deep_norm_reference(
    x: torch.Tensor, gx: torch.Tensor, gamma: torch.Tensor, _: torch.Tensor
) -> Tensors:
    gradient, of_gamma, of_beta = layer_norm_gradient(0.25 * x + gx, gamma, x * 0.5)
    return 0.25 * gradient, gradient, of_beta, of_gamma


def rms_norm_gradients(
    dy: torch.Tensor, x: torch.Tensor, gamma: torch.Tensor, _: torch.Tensor
) -> Any:
    return NPU.npu_rms_norm_backward(dy, x, gamma, fixed_statistics(x, gamma)[1])


def rms_norm_reference(
    dy: torch.Tensor, x: torch.Tensor, gamma: torch.Tensor, _: torch.Tensor
) -> Tensors:
    scale, dims = fixed_statistics(x, gamma)[1].double(), of_rows(x, gamma)
    normalized, scaled = x * scale, dy * gamma
    along = (scaled * normalized).mean(dims, keepdim=True)
    of_gamma = (dy * normalized).sum(tuple(range(x.dim() - gamma.dim())))
    return scale * (scaled - normalized * along), of_gamma


def group_norm_swish(x: torch.Tensor, gamma: torch.Tensor, beta: torch.Tensor) -> Tensors:
    grouped = x.reshape(x.shape[0], 2, -1)
    scale = (grouped.var(-1, correction=0) + EPSILON).rsqrt()
    result = functional.group_norm(x, 2, gamma, beta, EPSILON)
    return result * torch.sigmoid(1.5 * result), grouped.mean(-1), scale


def gradients_of(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the gradients of the first result of a function for the weights 0.5 * first input."""

    def gradients(*inputs: torch.Tensor) -> Any:
        leaves = [values.detach().clone().requires_grad_() for values in inputs]
        result = function(*leaves)
        result = result if isinstance(result, torch.Tensor) else result[0]
        return torch.autograd.grad(result, leaves, inputs[0].detach().view(result.shape) * 0.5)

    return gradients


def swish_of_the_device(x: torch.Tensor, gamma: torch.Tensor, beta: torch.Tensor) -> Any:
    return NPU.npu_group_norm_swish(x, 2, gamma, beta, EPSILON, 1.5)


def window_softmax(x: torch.Tensor, mask: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    windows, heads, rows, columns = mask.shape[0], *x.shape[-3:]
    scores = x.reshape(-1, windows, heads, rows, columns) * 0.7
    return (scores + mask[None, :, None] + bias[None, None]).softmax(-1).view(x.shape)


def turned(values: torch.Tensor, *, interleave: bool) -> torch.Tensor:
    if interleave:
        return torch.stack([-values[..., 1::2], values[..., ::2]], -1).flatten(-2)
    first, second = values.chunk(2, -1)
    return torch.cat([-second, first], -1)


def rotary_gradients(mode: str) -> Callable[..., Any]:
    def gradients(
        x: torch.Tensor, dy: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor
    ) -> Tensors:
        interleave = mode == "interleave"
        of_x = dy * cos - turned(dy * sin, interleave=interleave)
        of_cos = (dy * x).sum_to_size(cos.shape)
        return of_x, of_cos, (dy * turned(x, interleave=interleave)).sum_to_size(sin.shape)

    return gradients


def swiglu(x: torch.Tensor) -> torch.Tensor:
    left, right = x.chunk(2, -1)
    return functional.silu(left) * right


def swiglu_gradients(dy: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    leaf = x.detach().requires_grad_()
    (gradient,) = torch.autograd.grad(swiglu(leaf), leaf, dy)
    return gradient


CASES = (
    Case(
        operator="aclnnAddLayerNorm",
        call=lambda x1, x2, g, b: NPU.npu_add_layer_norm(x1, x2, g, b, EPSILON, True),
        inputs=FOUR,
        shapes=fixed(*VECTORS),
        reference=add_layer_norm,
        **SPREAD,
    ),
    Case(
        operator="aclnnAddLayerNormGrad",
        call=add_layer_norm_gradients,
        inputs=FOUR,
        shapes=ROWS,
        reference=add_layer_norm_reference,
        **SPREAD,
    ),
    Case(
        operator="aclnnDeepNorm",
        call=lambda x, gx, b, g: NPU.npu_deep_norm(x, gx, b, g, 0.3, EPSILON),
        inputs=FOUR,
        shapes=ROWS,
        reference=deep_norm,
        **SPREAD,
    ),
    Case(
        operator="aclnnDeepNormGrad",
        call=deep_norm_gradients,
        inputs=FOUR,
        shapes=ROWS,
        reference=deep_norm_reference,
        **SPREAD,
    ),
    Case(
        operator="aclnnRmsNormGrad",
        call=rms_norm_gradients,
        inputs=FOUR,
        shapes=ROWS,
        reference=rms_norm_reference,
        **SPREAD,
    ),
    Case(
        operator="aclnnGroupNormSwish",
        call=swish_of_the_device,
        inputs=(Values(), Values(), Values()),
        shapes=GROUPED,
        reference=group_norm_swish,
        **SPREAD,
    ),
    Case(
        operator="aclnnGroupNormSwishGrad",
        call=gradients_of(swish_of_the_device),
        inputs=(Values(), Values(), Values()),
        shapes=GROUPED,
        reference=gradients_of(group_norm_swish),
        dtypes=(torch.float32,),
        ulps=512,
        magnitude=512,
    ),
    Case(
        operator="aclnnMaskedSoftmaxWithRelPosBias",
        call=lambda x, m, b: NPU.npu_masked_softmax_with_rel_pos_bias(
            x,
            m.unsqueeze(1) if x.dim() == 4 else m[None, :, None],
            b.unsqueeze(0) if x.dim() == 4 else b[None, None],
            0.7,
            0,
        ),
        inputs=(Values(), Values(), Values()),
        shapes=fixed(((4, 3, 5, 6), (2, 5, 6), (3, 5, 6)), ((2, 2, 3, 5, 6), (2, 5, 6), (3, 5, 6))),
        reference=window_softmax,
    ),
    *(
        Case(
            operator="aclnnRotaryPositionEmbeddingGrad",
            # torch_npu requests the gradients of the angles if they have one.
            call=lambda x, g, c, s, mode=mode: NPU.npu_rotary_mul_backward(
                g, x, c.detach().requires_grad_(), s, mode
            ),
            inputs=FOUR,
            shapes=fixed(
                ((2, 3, 4, 64), (2, 3, 4, 64), (1, 3, 1, 64), (1, 3, 1, 64)),
                ((1, 2, 2, 128), (1, 2, 2, 128), (1, 2, 1, 128), (1, 2, 1, 128)),
            ),
            reference=rotary_gradients(mode),
            magnitude=64,
        )
        for mode in ("half", "interleave")
    ),
    Case(
        operator="aclnnSwiGluGrad",
        call=lambda g, x: NPU.npu_swiglu_backward(g, x, -1),
        inputs=(Values(), Values()),
        shapes=fixed(((3, 4), (3, 8)), ((2, 1, 3), (2, 1, 6)), ((0, 2), (0, 4))),
        reference=swiglu_gradients,
        magnitude=8,
    ),
)
