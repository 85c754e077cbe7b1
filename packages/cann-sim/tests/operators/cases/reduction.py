"""Reductions that reduction tests of their own do not cover."""

from __future__ import annotations

import math
from typing import Any

import torch

from operators.operator_case import Case, elementwise, fixed

ATEN: Any = torch.ops.aten
FILLED = fixed(((3, 4),), ((1,),), ((2, 3, 5),), ((),), ((1, 1, 1),))
MATRICES = fixed(((3, 4),), ((2, 3, 5),), ((1, 1),))
ALONG = elementwise(1, least_rank=1)


def with_nan(values: torch.Tensor) -> torch.Tensor:
    """Return the values with those above 1 replaced by NaN."""
    return torch.where(values > 1, torch.full_like(values, float("nan")), values)


CASES = (
    Case(operator="aclnnAminmaxAll", call=torch._aminmax, shapes=FILLED),
    Case(operator="aclnnAminmaxDim", call=lambda x: torch._aminmax(x, 0, True), shapes=MATRICES),
    Case(
        operator="aclnnStdMeanCorrection",
        call=lambda x: torch.std_mean(x, dim=-1, correction=1, keepdim=True),
        shapes=fixed(((3, 4),), ((2, 3, 5),), ((1, 2),)),
        ulps=64,
    ),
    Case(
        operator="aclnnReduceNansum",
        call=lambda x: torch.nansum(with_nan(x), dim=0),
        shapes=ALONG,
        magnitude=16,
    ),
    Case(operator="aclnnMedian", call=torch.median, shapes=FILLED),
    Case(
        operator="aclnnMedianDim",
        call=lambda x: torch.median(x, -1, keepdim=True)[0],
        shapes=MATRICES,
    ),
    Case(operator="aclnnNanMedian", call=lambda x: torch.nanmedian(with_nan(x)), shapes=FILLED),
    Case(
        operator="aclnnNanMedianDim",
        call=lambda x: torch.nanmedian(with_nan(x), 0)[0],
        shapes=MATRICES,
    ),
    Case(
        operator="aclnnNorm",
        call=lambda x: [ATEN.norm(x, order, [-1], True) for order in (0, 1, 2, 3, math.inf)],
        shapes=MATRICES,
        ulps=64,
        magnitude=8,
    ),
    Case(
        operator="aclnnRenorm",
        call=lambda x: torch.renorm(x, 2, 0, 1.5),
        shapes=MATRICES,
        magnitude=8,
    ),
    Case(
        operator="aclnnRenorm",
        call=lambda x: torch.renorm(x, 0, 1, 2),
        reference=lambda x: x * 2 / (x != 0).sum(0, keepdim=True).clamp_min(2),
        shapes=fixed(((4, 3),), ((1, 2),), ((5, 1),)),
        ulps=64,
    ),
    Case(
        operator="aclnnInplaceRenorm",
        call=lambda x: x.clone().renorm_(1, 1, 1.5),
        shapes=MATRICES,
        magnitude=8,
    ),
)
