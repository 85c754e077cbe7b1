"""Activation functions."""

from __future__ import annotations

import torch
import torch_npu
from torch.nn import functional

from operators.operator_case import Case, Values, fixed

HALVES = fixed(((4,),), ((3, 6),), ((2, 3, 8),), ((0, 4),), ((1, 2),))


def gelu_product(values: torch.Tensor, form: str = "none") -> torch.Tensor:
    first, second = values.chunk(2, -1)
    return functional.gelu(first, approximate=form) * second


CASES = (
    Case(operator="aclnnCelu", call=lambda x: functional.celu(x, 1.5)),
    Case(operator="aclnnInplaceCelu", call=lambda x: functional.celu(x.clone(), 1.5, inplace=True)),
    Case(operator="aclnnInplaceElu", call=lambda x: functional.elu(x.clone(), 1.5, inplace=True)),
    Case(
        operator="aclnnInplaceLeakyRelu",
        call=lambda x: functional.leaky_relu(x.clone(), 0.1, inplace=True),
    ),
    Case(
        operator="aclnnInplaceHardtanh",
        call=lambda x: functional.hardtanh(x.clone(), -0.5, 1.0, inplace=True),
    ),
    Case(operator="aclnnThreshold", call=lambda x: functional.threshold(x, 0.5, -3.0)),
    Case(
        operator="aclnnInplaceThreshold",
        call=lambda x: functional.threshold(x.clone(), 0.5, -3.0, inplace=True),
    ),
    Case(operator="aclnnHardshrink", call=functional.hardshrink),
    Case(operator="aclnnSoftshrink", call=functional.softshrink),
    Case(operator="aclnnLogSigmoidForward", call=functional.logsigmoid, magnitude=4),
    Case(
        operator="aclnnPrelu",
        call=lambda x, w: torch.prelu(x, w.flatten()[:1]),
        inputs=(Values(), Values()),
        shapes=fixed(((3, 4), (1,)), ((2, 3, 5), (1,)), ((0, 2), (1,))),
        magnitude=4,
    ),
    Case(
        operator="aclnnGeGluV3",
        call=lambda x: torch_npu.npu_geglu(x, -1, 1, True),
        reference=lambda x: (
            gelu_product(x, "tanh"),
            functional.gelu(x.chunk(2, -1)[0], approximate="tanh"),
        ),
        shapes=HALVES,
        magnitude=4,
    ),
)
