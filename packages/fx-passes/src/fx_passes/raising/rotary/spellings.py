"""The forms in which models write a rotation: patterns whose labels give the kind of rotation.

The labels: `backwards` if the angle is negative; `halved` if cosines and sines have half the size
of x and the halves of the result are computed separately; `complex` if they are complex numbers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from fx_passes.fusions.halves import HALVES, neighbours
from fx_passes.matching.combined_pattern import combine, given
from fx_passes.matching.pattern import label

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor

    from fx_passes.fusions.halves import Parts
    from fx_passes.matching.combined_pattern import Linked


def _concatenated(parts: Parts, cat_dim: int) -> Linked:
    x, first, second = parts
    return (x, torch.cat((-second, first), cat_dim)), {}


def _concatenated_backwards(parts: Parts, cat_dim: int) -> Linked:
    x, first, second = parts
    return (x, torch.cat((second, label(-first, "backwards")), cat_dim)), {}


def _stacked_flattened(parts: Parts, stack_dim: int, from_dim: int, to_dim: int) -> Linked:
    x, first, second = parts
    stacked = torch.stack((-second, first), stack_dim)
    return (x, torch.ops.aten.flatten.using_ints(stacked, from_dim, to_dim)), {}


def _stacked_reshaped(parts: Parts, stack_dim: int, shape: Sequence[int]) -> Linked:
    x, first, second = parts
    stacked = torch.stack((-second, first), stack_dim)
    return (x, torch.ops.aten.reshape(stacked, shape)), {}


def _widened(turned: tuple[Tensor, Tensor]) -> Linked:
    x, rotated = turned
    return (x.to(torch.float32), rotated.to(torch.float32)), {}


def _aten_widened(turned: tuple[Tensor, Tensor]) -> Linked:
    cast = torch.ops.aten._to_copy.default  # noqa: SLF001 - the name of the operator
    x, rotated = turned
    return (cast(x, dtype=torch.float32), cast(rotated, dtype=torch.float32)), {}


def _added(turned: tuple[Tensor, Tensor], cos: Tensor, sin: Tensor) -> Linked:
    x, rotated = turned
    label(rotated, "rotated")
    return None, {"y": x * cos + rotated * sin}


_CASTS = (given, _widened, _aten_widened)


def _halves_of_products(
    first: Tensor, second: Tensor, cos: Tensor, sin: Tensor, cat_dim: int
) -> dict[str, Tensor]:
    """GPT-OSS, DeepSeek V3."""
    rotated = torch.cat((first * cos - second * sin, second * cos + first * sin), cat_dim)
    return {"y": label(rotated, "halved")}


def _complex_product(
    x: Tensor, angles: Tensor, pairs: Sequence[int], from_dim: int, to_dim: int
) -> dict[str, Tensor]:
    """Llama 4, DeepSeek V2."""
    numbers = torch.view_as_complex(torch.ops.aten.reshape(x, pairs))
    turned = torch.view_as_real(numbers * angles)
    return {"y": torch.ops.aten.flatten.using_ints(label(turned, "complex"), from_dim, to_dim)}


def _aten_complex_product(
    x: Tensor, angles: Tensor, pairs: Sequence[int], shape: Sequence[int]
) -> dict[str, Tensor]:
    numbers = torch.view_as_complex(torch.ops.aten.reshape(x, pairs))
    turned = torch.view_as_real(numbers * angles)
    return {"y": torch.ops.aten.reshape(label(turned, "complex"), shape)}


ROTATIONS: tuple[Callable[..., dict[str, Tensor]], ...] = (
    *(
        combine(halves, turn, cast, _added)
        for halves in HALVES
        for turn in (_concatenated, _concatenated_backwards)
        for cast in _CASTS
    ),
    *(
        combine(neighbours, turn, cast, _added)
        for turn in (_stacked_flattened, _stacked_reshaped)
        for cast in _CASTS
    ),
    _halves_of_products,
    _complex_product,
    _aten_complex_product,
)
"""Patterns of x, of cosines and sines (or of complex numbers), with the output `y`."""
