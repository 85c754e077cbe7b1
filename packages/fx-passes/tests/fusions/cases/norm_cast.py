"""Residual add + RMSNorm that a gate reads in float32, as mixtures of experts write it."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from fusions.cases.norm import norm_inputs
from fusions.fusion_case import FusionCase, NearMissCase
from fx_passes.testing import random_tensors

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["NORM_CAST_CASES", "NormCast"]

_HIDDEN = 64
_BOTH = MappingProxyType({0: 0, 1: 0})


def _batched_inputs(dtype: torch.dtype, device: str, tokens: int) -> list[Tensor]:
    """Return x and residual [2, tokens, 64] and a weight [64]."""
    shapes = ((2, tokens, _HIDDEN), (2, tokens, _HIDDEN), (_HIDDEN,))
    return random_tensors(*shapes, dtype=dtype, device=device)


def _as_float32(values: Tensor) -> Tensor:
    return values.to(torch.float32)


@dataclass(frozen=True, kw_only=True)
class NormCast:
    """A norm followed by a cast.

    Attributes:
        joined: Whether it uses `npu_add_rms_norm`; otherwise an addition and `npu_rms_norm`.
        view: View between norm and cast.
        cast: The cast.
    """

    joined: bool = True
    view: Callable[[Tensor], Tensor] | None = None
    cast: Callable[[Tensor], Tensor] = _as_float32

    def __call__(self, x: Tensor, residual: Tensor, weight: Tensor) -> tuple[Tensor, ...]:
        """Return the inputs of the gate and of the experts, the norm and the sum."""
        npu = torch.ops.npu
        if self.joined:
            normed, _, total = npu.npu_add_rms_norm(x, residual, weight, 1e-5)
        else:
            total = x + residual
            normed = npu.npu_rms_norm(total, weight, 1e-5)[0]
        rows = normed if self.view is None else self.view(normed)
        return self.cast(rows) * 2, rows + 1, normed + 1, total


def _cast_only(x: Tensor, residual: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Return only the norm in float32 and its divisor."""
    normed, rstd = torch.ops.npu.npu_rms_norm(residual + x, weight)
    return normed.float(), rstd


def _views_of_three(values: Tensor) -> Tensor:
    return values.view(-1, 32)


_SPELLINGS: dict[str, Callable[[Tensor], Tensor]] = {
    "to": _as_float32,
    "float": lambda values: values.float(),
    "type": lambda values: values.type(torch.float32),
    "to_copy": lambda values: torch.ops.aten._to_copy(values, dtype=torch.float32),
    "npu_cast": lambda values: torch.ops.npu._npu_dtype_cast(values, torch.float32),
}
_VIEWS: dict[str, Callable[[Tensor], Tensor]] = {
    "view": lambda values: values.view(-1, _HIDDEN),
    "own_size": lambda values: values.view(-1, values.size(-1)),
    "reshape": lambda values: values.reshape(-1, _HIDDEN),
    "flatten": lambda values: values.flatten(0, 1),
    "split": lambda values: values.view(2, 1, -1, _HIDDEN),
}
_RULE, _VIEW_RULE = "fuse_add_rms_norm_cast", "fuse_add_rms_norm_view_cast"
# A kernel may leave out roundings: of the sum, and of what it multiplies by the weight.
_ROUNDINGS = 3
_PLAIN = (
    *(
        FusionCase(
            name=name,
            rule=_RULE,
            function=NormCast(cast=cast).__call__,
            inputs=norm_inputs,
            tokens=_BOTH,
            roundings=_ROUNDINGS,
        )
        for name, cast in _SPELLINGS.items()
    ),
    FusionCase(
        name="separate",
        rule=_RULE,
        function=NormCast(joined=False).__call__,
        inputs=norm_inputs,
        tokens=_BOTH,
        roundings=_ROUNDINGS,
        near_misses=(
            NearMissCase(
                name="wider",
                function=NormCast(cast=lambda values: values.to(torch.float64)).__call__,
                reason="a cast to torch.float64; the kernel casts to torch.float32",
            ),
            NearMissCase(
                name="float64",
                dtype=torch.float64,
                reason="`x` has dtype torch.float64; the kernel takes",
            ),
            NearMissCase(
                name="on_the_way",
                function=NormCast(cast=lambda values: (values * 2).float()).__call__,
            ),
        ),
    ),
    FusionCase(
        name="cast_only",
        rule=_RULE,
        function=_cast_only,
        inputs=norm_inputs,
        tokens=_BOTH,
        roundings=_ROUNDINGS,
    ),
)
_VIEWED = tuple(
    FusionCase(
        name=name,
        rule=_VIEW_RULE,
        function=NormCast(view=view).__call__,
        inputs=_batched_inputs,
        tokens={0: 1, 1: 1},
        roundings=_ROUNDINGS,
    )
    for name, view in _VIEWS.items()
)
_SEPARATE_VIEW = FusionCase(
    name="separate_npu_cast",
    rule=_VIEW_RULE,
    function=NormCast(joined=False, view=_VIEWS["view"], cast=_SPELLINGS["npu_cast"]).__call__,
    inputs=_batched_inputs,
    tokens={0: 1, 1: 1},
    roundings=_ROUNDINGS,
    near_misses=(
        NearMissCase(
            name="cut_rows",
            function=NormCast(view=_views_of_three).__call__,
            reason="which does not keep the rows",
        ),
        NearMissCase(
            name="wider",
            function=NormCast(
                view=_VIEWS["flatten"], cast=lambda values: values.to(torch.float64)
            ).__call__,
            reason="a cast to torch.float64",
        ),
    ),
)

NORM_CAST_CASES = (*_PLAIN, *_VIEWED, _SEPARATE_VIEW)
