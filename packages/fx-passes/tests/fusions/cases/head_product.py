"""Products for each head between tokens and tokens, as attention with latent heads writes it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from fusions.fusion_case import FusionCase, FusionInputs, NearMissCase
from fx_passes.testing import random_tensors

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

__all__ = ["HEAD_PRODUCT_CASES"]

_RULE = "fuse_batch_matmul_transpose"
_FLOATS = (torch.bfloat16, torch.float16, torch.float32)


def _inputs(
    *, heads: int = 4, inner: int = 128, columns: int = 128, matrices: int | None = None
) -> FusionInputs:
    def inputs(dtype: torch.dtype, device: str, tokens: int) -> list[Tensor]:
        shapes = (tokens, heads, inner), (matrices or heads, inner, columns)
        return random_tensors(*shapes, dtype=dtype, device=device)

    return inputs


def _on_the_cpu(dtype: torch.dtype, device: str, tokens: int) -> list[Tensor]:
    del device
    return _inputs()(dtype, "cpu", tokens)


def _wide_heads(dtype: torch.dtype, device: str, tokens: int) -> list[Tensor]:
    shapes = (tokens, 4, 192), (4, 128, 128)
    return random_tensors(*shapes, dtype=dtype, device=device)


def _heads_first(dtype: torch.dtype, device: str, tokens: int) -> list[Tensor]:
    x, weight = _inputs()(dtype, device, tokens)
    return [x.transpose(0, 1).contiguous(), weight]


def _absorbed(x: Tensor, weight: Tensor) -> Tensor:
    return torch.bmm(x.transpose(0, 1), weight).transpose(0, 1)


def _projected(x: Tensor, weight: Tensor) -> Tensor:
    """Return the heads of each token side by side."""
    return torch.bmm(x.transpose(0, 1), weight).transpose(0, 1).reshape(-1, 4 * 128)


def _permuted(x: Tensor, weight: Tensor) -> Tensor:
    return torch.matmul(x.permute(1, 0, 2), weight).permute(1, 0, 2)


def _from_the_end(x: Tensor, weight: Tensor) -> Tensor:
    return (x.transpose(-3, -2) @ weight).transpose(1, 0)


def _of_a_part(x: Tensor, weight: Tensor) -> Tensor:
    """As heads of which the rest is rotated: not contiguous."""
    return torch.bmm(x[..., :128].transpose(0, 1), weight).transpose(0, 1)


def _behind_only(x: Tensor, weight: Tensor) -> Tensor:
    return torch.bmm(x, weight).transpose(0, 1)


def _other_dimensions(x: Tensor, weight: Tensor) -> Tensor:
    return torch.bmm(x.transpose(0, 1), weight).transpose(1, 2)


def _product_used(x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    product = torch.bmm(x.transpose(0, 1), weight)
    return product.transpose(0, 1) + 1, product + 1


def _strides_read(x: Tensor, weight: Tensor) -> Tensor:
    y = torch.bmm(x.transpose(0, 1), weight).transpose(0, 1)
    return y.as_strided((6, 128), (128, 1)) + 1


def _copy_written(x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Write to the result of a reshape, which is a copy, and then read the reshaped tensor."""
    y = torch.bmm(x.transpose(0, 1), weight).transpose(0, 1)
    rows = y.reshape(-1, 4 * 128)
    rows.add_(1)
    return rows, y + 1


def _copy_returned(x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Return both, in memory of their own."""
    y = torch.bmm(x.transpose(0, 1), weight).transpose(0, 1)
    return y.reshape(-1, 4 * 128), y


# AOTAutograd spells `matmul` with views that change nothing.
_VIEWS = {"remove_reshape": 3, "remove_expand": 2}
_FORMS: tuple[tuple[str, Callable[..., Tensor], dict[str, int]], ...] = (
    ("absorbed", _absorbed, {}),
    ("projected", _projected, {}),
    ("permuted", _permuted, _VIEWS),
    ("from_the_end", _from_the_end, _VIEWS),
)

HEAD_PRODUCT_CASES = (
    *(
        FusionCase(
            name=name,
            rule=_RULE,
            function=function,
            inputs=_inputs(),
            in_aten=in_aten,
            dtypes=_FLOATS,
            roundings=1,
        )
        for name, function, in_aten in _FORMS
    ),
    FusionCase(
        name="of_a_part",
        rule=_RULE,
        function=_of_a_part,
        inputs=_wide_heads,
        roundings=1,
    ),
    FusionCase(
        name="behind_only",
        rule=_RULE,
        function=_behind_only,
        inputs=_heads_first,
        tokens={0: 1},
        roundings=1,
        near_misses=(
            NearMissCase(
                name="broadcast",
                function=_permuted,
                inputs=_inputs(matrices=1),
                reason="1 matrices for a batch of 4; the kernel does not broadcast",
            ),
            NearMissCase(
                name="dimensions",
                function=_other_dimensions,
                inputs=_inputs(),
                reason="dimensions are exchanged that are not the first two",
            ),
            NearMissCase(
                name="inner",
                function=_absorbed,
                inputs=_inputs(inner=192),
                reason="the inner size is 192; the kernel takes multiples of 128",
            ),
            NearMissCase(
                name="columns",
                function=_absorbed,
                inputs=_inputs(columns=64),
                reason="the number of columns is 64; the kernel takes multiples of 128",
            ),
            NearMissCase(
                name="float64",
                function=_absorbed,
                inputs=_inputs(),
                dtype=torch.float64,
                reason="the kernel takes",
            ),
            NearMissCase(
                name="cpu",
                function=_absorbed,
                inputs=_on_the_cpu,
                reason="the kernel runs on an NPU",
            ),
            NearMissCase(
                name="product_used",
                function=_product_used,
                inputs=_inputs(),
                reason="inside the match is used by",
            ),
            NearMissCase(
                name="strides_read",
                function=_strides_read,
                inputs=_inputs(),
                reason="shows how the result is laid out",
            ),
            NearMissCase(
                name="copy_written",
                function=_copy_written,
                inputs=_inputs(),
                reason="shows how the result is laid out",
            ),
            NearMissCase(
                name="copy_returned",
                function=_copy_returned,
                inputs=_inputs(),
                reason="shows how the result is laid out",
            ),
        ),
    ),
)
