"""Gradients of activations and softmax."""

from __future__ import annotations

from typing import Any

import torch

from operators.operator_case import Case, Values, fixed

ATEN: Any = torch.ops.aten
TWO = (Values(), Values())
# Slopes jump at these bounds; values of half precision are never so close to them.
BETWEEN = (Values(), Values(low=-1.99, high=1.99))


def fast_gelu_gradient(grad: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    x = x.detach().requires_grad_()
    return torch.autograd.grad(x * torch.sigmoid(1.702 * x), x, grad)[0]


def geglu_gradient(grad: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    x = x.detach().requires_grad_()
    first, second = x.chunk(2, -1)
    return torch.autograd.grad(torch.nn.functional.gelu(first) * second, x, grad)[0]


def softmax_gradient(grad: torch.Tensor, output: torch.Tensor) -> torch.Tensor:
    return output * grad - output * (output * grad).sum(-1, True)


def log_softmax_gradient(grad: torch.Tensor, output: torch.Tensor) -> torch.Tensor:
    return grad - output.exp() * grad.sum(-1, True)


def prelu_gradients(
    grad: torch.Tensor, x: torch.Tensor, weight: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    share = torch.where(x > 0, 0, grad * x)
    return torch.where(x > 0, grad, grad * weight), share.sum_to_size(weight.shape)


CASES = (
    Case(
        operator="aclnnGeluBackward",
        call=ATEN.gelu_backward,
        reference=lambda g, x: ATEN.gelu_backward(g, x, approximate="tanh"),
        inputs=TWO,
        magnitude=4,
    ),
    Case(
        operator="aclnnGeluBackwardV2",
        call=lambda g, x: torch.ops.npu.npu_gelu_backward(g, x, approximate="tanh"),
        reference=lambda g, x: ATEN.gelu_backward(g, x, approximate="tanh"),
        inputs=TWO,
        magnitude=4,
    ),
    Case(
        operator="aclnnFastGeluBackward",
        call=torch.ops.npu.npu_fast_gelu_backward,
        reference=fast_gelu_gradient,
        inputs=TWO,
        magnitude=4,
    ),
    Case(
        operator="aclnnHardsigmoidBackward",
        call=ATEN.hardsigmoid_backward,
        inputs=BETWEEN,
    ),
    Case(
        operator="aclnnHardswishBackwardV2",
        call=ATEN.hardswish_backward,
        inputs=BETWEEN,
        magnitude=4,
    ),
    Case(
        operator="aclnnMishBackward",
        call=ATEN.mish_backward,
        inputs=TWO,
        magnitude=4,
    ),
    Case(
        operator="aclnnSigmoidBackward",
        call=ATEN.sigmoid_backward,
        inputs=TWO,
        magnitude=12,
    ),
    Case(
        operator="aclnnSiluBackward",
        call=ATEN.silu_backward,
        inputs=TWO,
        magnitude=4,
    ),
    Case(
        operator="aclnnTanhBackward",
        call=ATEN.tanh_backward,
        inputs=TWO,
        magnitude=8,
    ),
    Case(
        operator="aclnnHardshrinkBackward",
        call=lambda g, x: ATEN.hardshrink_backward(g, x, 0.5),
        inputs=BETWEEN,
    ),
    Case(
        operator="aclnnSoftshrinkBackward",
        call=lambda g, x: ATEN.softshrink_backward(g, x, 0.5),
        inputs=BETWEEN,
    ),
    Case(
        operator="aclnnThresholdBackward",
        call=lambda g, x: ATEN.threshold_backward(g, x, 0.5),
        inputs=BETWEEN,
    ),
    Case(
        operator="aclnnHardtanhBackward",
        call=lambda g, x: ATEN.hardtanh_backward(g, x, -1.0, 1.0),
        inputs=BETWEEN,
    ),
    Case(
        operator="aclnnLeakyReluBackward",
        call=lambda g, x: ATEN.leaky_relu_backward(g, x, 0.1, False),
        inputs=TWO,
    ),
    Case(
        operator="aclnnEluBackward",
        call=lambda g, x: ATEN.elu_backward(g, 1.5, 1.0, 1.0, False, x),
        inputs=TWO,
        magnitude=4,
    ),
    Case(
        operator="aclnnSoftplusBackward",
        call=lambda g, x: ATEN.softplus_backward(g, x, 2.0, 20.0),
        inputs=TWO,
        magnitude=2,
    ),
    Case(
        operator="aclnnLogSigmoidBackward",
        call=lambda g, x: ATEN.log_sigmoid_backward(
            g, x, torch.empty(0, device=g.device, dtype=g.dtype)
        ),
        reference=lambda g, x: g * torch.sigmoid(-x),
        inputs=TWO,
        magnitude=2,
    ),
    Case(
        operator="aclnnLogitGrad",
        call=lambda g, x: ATEN.logit_backward(g, x, None),
        inputs=(Values(), Values(low=0.1, high=0.9)),
        magnitude=40,
    ),
    Case(
        operator="aclnnGluBackward",
        call=lambda g, x: ATEN.glu_backward(g, x, -1),
        inputs=TWO,
        shapes=fixed(((3, 2), (3, 4)), ((0, 2), (0, 4)), ((2, 1, 1), (2, 1, 2))),
        magnitude=4,
    ),
    Case(
        operator="aclnnGeGluV3Backward",
        call=lambda g, x: torch.ops.npu.npu_geglu_grad(
            g, x, torch.ops.npu.npu_gelu(x.chunk(2, -1)[0].contiguous()), -1, 0, True
        ),
        reference=geglu_gradient,
        inputs=TWO,
        shapes=fixed(((3, 2), (3, 4)), ((2, 1, 1), (2, 1, 2))),
        dtypes=(torch.float32,),
        magnitude=8,
    ),
    Case(
        operator="aclnnPreluBackward",
        call=ATEN._prelu_kernel_backward,
        inputs=(Values(), Values(), Values()),
        shapes=fixed(((3, 4), (3, 4), (1, 4)), ((2, 4, 5), (2, 4, 5), (1, 4, 1))),
        reference=prelu_gradients,
        dtypes=(torch.float32,),
        magnitude=8,
    ),
    Case(
        operator="aclnnSoftmaxBackward",
        call=lambda g, y: ATEN._softmax_backward_data(g, y, -1, g.dtype),
        reference=softmax_gradient,
        inputs=(Values(), Values(low=0.0, high=1.0)),
        shapes=fixed(((3, 5), (3, 5)), ((2, 1, 7), (2, 1, 7)), ((0, 4), (0, 4)), ((1,), (1,))),
        magnitude=16,
    ),
    Case(
        operator="aclnnLogSoftmaxBackward",
        call=lambda g, y: ATEN._log_softmax_backward_data(g, y, -1, g.dtype),
        reference=log_softmax_gradient,
        inputs=(Values(), Values(low=-3.0, high=0.0)),
        shapes=fixed(((3, 5), (3, 5)), ((2, 1, 7), (2, 1, 7)), ((0, 4), (0, 4)), ((1,), (1,))),
        magnitude=16,
    ),
)
