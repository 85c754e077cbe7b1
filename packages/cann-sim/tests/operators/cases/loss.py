"""Loss functions and their gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional

from operators.operator_case import SINGLE, Case, Indices, Values, elementwise, fixed

ATEN: Any = torch.ops.aten
TWO = (Values(), Values())
THREE = (Values(), Values(), Values())
CHANCES = (Values(low=0.05, high=0.95), Values(low=0.0, high=1.0))
LOGS = (Values(low=-3.0, high=-0.1), Values(low=0.05, high=1.0))
FULL = elementwise(2, least_rank=1)
NONE = 0
Loss = Callable[[torch.Tensor, torch.Tensor], Any]
CLASSES = fixed(((4, 5), (4,)), ((1, 5), (1,)), ((7, 5), (7,)))
PIXELS = fixed(((2, 5, 3, 4), (2, 3, 4)), ((1, 5, 1, 1), (1, 1, 1)))


def ctc(values: torch.Tensor) -> torch.Tensor:
    targets = torch.tensor([[1, 2, 1], [2, 2, 3]], device=values.device)
    inputs, outputs = torch.tensor([6, 5]), torch.tensor([3, 2])
    return functional.ctc_loss(values.log_softmax(-1), targets, inputs, outputs, reduction="none")


def gradients_of(function: Loss) -> Loss:
    """Return the gradients of a loss without reduction, for both operands, of weights below 3."""

    def gradients(x: torch.Tensor, y: torch.Tensor) -> Any:
        inputs = [values.detach().clone().requires_grad_() for values in (x, y)]
        loss = function(*inputs)
        weight = torch.arange(loss.numel()).remainder(5).sub(2).view(loss.shape)
        return torch.autograd.grad(loss, inputs, weight.to(loss), allow_unused=True)

    return gradients


def first(function: Loss) -> Loss:
    return lambda x, y: function(x, y)[0]


def logits_gradient(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return functional.binary_cross_entropy_with_logits(x, y.detach(), reduction="none")


def ctc_gradient(values: torch.Tensor) -> torch.Tensor:
    values = values.detach().requires_grad_()
    return torch.autograd.grad(ctc(values).sum(), values)[0]


CASES = (
    Case(
        operator="aclnnL1Loss",
        call=lambda x, y: functional.l1_loss(x, y, reduction="none"),
        inputs=TWO,
        shapes=FULL,
        magnitude=4,
    ),
    Case(
        operator="aclnnMseLoss",
        call=lambda x, y: functional.mse_loss(x, y, reduction="sum"),
        inputs=TWO,
        shapes=FULL,
        magnitude=4096,
    ),
    Case(
        operator="aclnnSoftMarginLoss",
        call=lambda x, y: ATEN.soft_margin_loss(x, y, NONE),
        inputs=TWO,
        shapes=FULL,
        magnitude=8,
    ),
    Case(
        operator="aclnnSmoothL1Loss",
        call=lambda x, y: functional.smooth_l1_loss(x, y, reduction="none", beta=0.5),
        inputs=TWO,
        shapes=FULL,
        magnitude=4,
    ),
    Case(
        operator="aclnnKlDiv",
        call=lambda x, y: functional.kl_div(x, y, reduction="none"),
        inputs=LOGS,
        shapes=FULL,
        magnitude=8,
    ),
    Case(
        operator="aclnnBinaryCrossEntropy",
        call=lambda x, y: functional.binary_cross_entropy(x, y, reduction="none"),
        inputs=CHANCES,
        shapes=FULL,
        magnitude=8,
    ),
    Case(
        operator="aclnnBinaryCrossEntropyWithLogits",
        call=lambda x, y: functional.binary_cross_entropy_with_logits(x, y, reduction="none"),
        inputs=(Values(), Values(low=0.0, high=1.0)),
        shapes=FULL,
        magnitude=8,
    ),
    Case(
        operator="aclnnMseLossBackward",
        call=lambda g, x, y: ATEN.mse_loss_backward(g, x, y, NONE),
        inputs=THREE,
        magnitude=16,
    ),
    Case(
        operator="aclnnSoftMarginLossBackward",
        call=lambda g, x, y: ATEN.soft_margin_loss_backward(g, x, y, NONE),
        inputs=THREE,
        magnitude=8,
    ),
    Case(
        operator="aclnnSmoothL1LossBackward",
        call=lambda g, x, y: ATEN.smooth_l1_loss_backward(g, x, y, NONE, 1.0),
        inputs=THREE,
        magnitude=8,
    ),
    Case(
        operator="aclnnBinaryCrossEntropyBackward",
        call=lambda g, x, y: ATEN.binary_cross_entropy_backward(g, x, y, None, NONE),
        inputs=(Values(), *CHANCES),
        magnitude=200,
    ),
    Case(
        operator="aclnnNLLLoss",
        call=lambda x, t: functional.nll_loss(x, t, reduction="none"),
        inputs=(Values(), Indices(below=5)),
        shapes=CLASSES,
    ),
    Case(
        operator="aclnnNLLLoss2d",
        call=lambda x, t: functional.nll_loss(x, t, reduction="none"),
        inputs=(Values(), Indices(below=5)),
        shapes=PIXELS,
    ),
    Case(
        operator="aclnnNLLLossBackward",
        call=lambda x, t: ATEN.nll_loss_backward(
            x[:, 0].contiguous(), x, t, None, NONE, -100, x.new_zeros(())
        ),
        inputs=(Values(), Indices(below=5)),
        shapes=CLASSES,
    ),
    Case(
        operator="aclnnNLLLoss2dBackward",
        call=lambda x, t: ATEN.nll_loss2d_backward(
            x[:, 0].contiguous(), x, t, None, NONE, -100, x.new_zeros(())
        ),
        inputs=(Values(), Indices(below=5)),
        shapes=PIXELS,
    ),
    Case(
        operator="aclnnMultilabelMarginLoss",
        call=lambda x, t: functional.multilabel_margin_loss(x, t, reduction="none"),
        inputs=(Values(), Indices(below=4)),
        shapes=fixed(((3, 4), (3, 4)), ((1, 4), (1, 4))),
        magnitude=16,
    ),
    Case(
        operator="aclnnCtcLoss", call=ctc, shapes=fixed(((6, 2, 4),)), dtypes=SINGLE, magnitude=64
    ),
    Case(
        operator="aclnnCtcLossBackward",
        call=ctc_gradient,
        shapes=fixed(((6, 2, 4),)),
        dtypes=SINGLE,
        ulps=64,
        magnitude=64,
    ),
    Case(
        operator="aclnnL1LossBackward",
        call=gradients_of(lambda x, y: functional.l1_loss(x, y, reduction="none")),
        inputs=TWO,
        shapes=FULL,
    ),
    Case(
        operator="aclnnKlDivBackward",
        call=first(gradients_of(lambda x, y: functional.kl_div(x, y, reduction="none"))),
        inputs=LOGS,
        shapes=FULL,
        dtypes=SINGLE,
        magnitude=8,
    ),
    Case(
        operator="aclnnKlDivTargetBackward",
        call=gradients_of(lambda x, y: functional.kl_div(x, y, reduction="none")),
        inputs=LOGS,
        shapes=FULL,
        dtypes=SINGLE,
        magnitude=16,
    ),
    Case(
        operator="aclnnBinaryCrossEntropyWithLogitsBackward",
        call=first(gradients_of(logits_gradient)),
        inputs=(Values(), Values(low=0.0, high=1.0)),
        shapes=FULL,
        dtypes=SINGLE,
        magnitude=8,
    ),
)
