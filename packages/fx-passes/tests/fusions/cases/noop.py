"""No-ops that are removed, and look-alikes that stay."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from fusions.fusion_case import FusionCase, NearMissCase
from fx_passes.testing import random_tensors

if TYPE_CHECKING:
    from collections.abc import Callable

    from fx_passes.testing.capture import GraphLevel

__all__ = ["NOOP_CASES"]

_ONLY_DYNAMO: tuple[GraphLevel, ...] = ("dynamo",)
_BOTH: tuple[GraphLevel, ...] = ("dynamo", "aten")


def _rows(dtype: torch.dtype, device: str, tokens: int) -> list[Tensor]:
    return random_tensors((tokens, 8), dtype=dtype, device=device)


def _square(x: Tensor) -> Tensor:
    """Return a product of matrices, which takes whatever strides it is given."""
    return x @ x.t()


def _case(
    rule: str,
    function: Callable[[Tensor], Tensor],
    kept: Callable[[Tensor], Tensor],
    levels: tuple[GraphLevel, ...] = _BOTH,
) -> FusionCase:
    return FusionCase(
        name="plain",
        rule=rule,
        function=function,
        inputs=_rows,
        levels=levels,
        near_misses=(NearMissCase(name="changes_something", function=kept),),
    )


_ALWAYS = (
    _case("remove_reshape", lambda x: x.reshape(-1, 8) * 2, lambda x: x.reshape(-1, 4) * 2),
    _case("remove_expand", lambda x: x.expand(-1, 8) * 2, lambda x: x.expand(2, -1, 8) * 2),
    _case(
        "merge_reshapes",
        lambda x: x.reshape(-1, 2, 4).reshape(-1, 4) * 2,
        lambda x: x.reshape(-1, 4) * 2,
    ),
    _case(
        "remove_unsqueeze_squeeze",
        lambda x: x.unsqueeze(1).squeeze(1) * 2,
        lambda x: x.unsqueeze(1).squeeze(2) * 2,
    ),
    _case(
        "remove_double_transpose",
        lambda x: x.transpose(0, 1).transpose(0, 1) * 2,
        lambda x: x.unsqueeze(0).transpose(0, 1).transpose(0, 2) * 2,
    ),
    _case("remove_copy", lambda x: x.clone() * 2, lambda x: (x * 2).clone()),
    _case("remove_product_with_one", lambda x: (x * 1.0).relu(), lambda x: (x * 1.5).relu()),
    _case(
        "remove_double_cast",
        lambda x: x.to(torch.float32).to(x.dtype) * 2,
        lambda x: x.to(torch.float32).to(torch.float64) * 2,
    ),
)
_IN_ATEN = FusionCase(
    name="rows",
    rule="merge_copy_and_reshape",
    function=lambda x: _square(x.t().reshape(-1, 2) * 2),
    inputs=_rows,
    levels=("aten",),
    near_misses=(NearMissCase(name="result", function=lambda x: x[:, :4].clone().view(-1, 2, 2)),),
)
_WRITTEN_OUT = FusionCase(
    name="contiguous",
    rule="merge_copy_and_reshape",
    function=lambda x: _square(x.t().contiguous().view(-1, 2) * 2),
    inputs=_rows,
    near_misses=(
        NearMissCase(name="result", function=lambda x: x[:, :4].contiguous().view(-1, 2, 2)),
        NearMissCase(name="strides", function=lambda x: x.t().contiguous().view(8, -1).exp()),
    ),
)
# AOTAutograd drops what already is as requested.
_BEFORE_ATEN = (
    _case(
        "remove_cast", lambda x: x.to(x.dtype) * 2, lambda x: x.to(torch.float32) * 2, _ONLY_DYNAMO
    ),
    _case("remove_slice", lambda x: x[:, 0:] * 2, lambda x: x[:, 1:] * 2, _ONLY_DYNAMO),
    _case(
        "remove_contiguous",
        lambda x: x.contiguous() * 2,
        lambda x: x.t().contiguous() * 2,
        _ONLY_DYNAMO,
    ),
)
_RECIPROCAL = FusionCase(
    name="plain",
    rule="remove_double_reciprocal",
    function=lambda x: 1.0 / (1.0 / x) * 2,
    inputs=_rows,
    # AOTAutograd multiplies each by one besides.
    levels=_ONLY_DYNAMO,
    # Each reciprocal is rounded.
    roundings=2,
    near_misses=(NearMissCase(name="once", function=lambda x: 1.0 / (2.0 / x) * 2),),
)

NOOP_CASES = (*_ALWAYS, _IN_ATEN, _WRITTEN_OUT, *_BEFORE_ATEN, _RECIPROCAL)
