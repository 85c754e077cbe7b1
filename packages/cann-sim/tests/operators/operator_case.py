"""One row of the conformance table: how to call an operator, and its reference."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from hypothesis import strategies as st

Shape = tuple[int, ...]
Results = torch.Tensor | tuple[torch.Tensor, ...] | list[torch.Tensor]
Layout = Callable[[torch.Tensor], torch.Tensor]

FLOATS = (torch.bfloat16, torch.float16, torch.float32)
SINGLE = (torch.float32,)
INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)


@dataclass(frozen=True, kw_only=True)
class Values:
    """An input of the dtype under test, drawn evenly from an interval."""

    low: float = -2.0
    high: float = 2.0


@dataclass(frozen=True, kw_only=True)
class Indices:
    """An int64 input below the number that the shapes' last parameter gives."""

    below: int


@dataclass(frozen=True, kw_only=True)
class Mask:
    """A boolean input."""


Input = Values | Indices | Mask


def elementwise(count: int = 1, *, least_rank: int = 0, most_rank: int = 4) -> Any:
    """Return a strategy of `count` equal shapes, empty and one-element ones among them."""
    sizes = st.lists(st.integers(0, 5), min_size=least_rank, max_size=most_rank)
    return sizes.map(lambda shape: (tuple(shape),) * count)


def broadcast(count: int = 2) -> Any:
    """Return a strategy of shapes that broadcast: each dimension is the common size or 1."""

    def shapes(drawn: tuple[list[int], list[list[bool]]]) -> tuple[Shape, ...]:
        common, kept = drawn
        rows = [row + [True] * len(common) for row in kept]
        return tuple(
            tuple(size if keep else 1 for size, keep in zip(common, row, strict=False))
            for row in rows
        )

    common = st.lists(st.integers(0, 4), max_size=3)
    kept = st.lists(st.lists(st.booleans(), max_size=3), min_size=count, max_size=count)
    return st.tuples(common, kept).map(shapes)


def fixed(*choices: tuple[Shape, ...]) -> Any:
    """Return a strategy that picks one of the given tuples of shapes."""
    return st.sampled_from(choices)


@dataclass(frozen=True, kw_only=True)
class Case:
    """How one operator is called and compared.

    Attributes:
        operator: aclnn name that `call` must launch.
        call: The torch function of the drawn inputs, on either device.
        inputs: How each input is made.
        shapes: Strategy of one shape for each input.
        reference: The function in float64 on the CPU; `call` itself if torch has it.
        dtypes: Dtypes under test.
        ulps: float32 rounding errors of the evaluation.
        magnitude: Size of the largest intermediate, to which those errors are relative.
        roundings: Roundings to the dtype of the result.
        launched_since: The first release of torch_npu whose function launches this operator.
    """

    operator: str
    call: Callable[..., Results]
    inputs: tuple[Input, ...] = (Values(),)
    shapes: Any = None
    reference: Callable[..., Results] | None = None
    dtypes: tuple[torch.dtype, ...] = FLOATS
    ulps: float = 16
    magnitude: float = 1
    roundings: int = 1
    launched_since: tuple[int, int] = (2, 10)

    def strategy(self) -> Any:
        """Return the strategy of shapes, which is one shape for all inputs where none is given."""
        return elementwise(len(self.inputs)) if self.shapes is None else self.shapes


LAYOUTS: dict[str, Layout] = {
    "contiguous": lambda values: values,
    "transposed": lambda values: (
        values.transpose(0, -1).contiguous().transpose(0, -1) if values.dim() > 1 else values
    ),
    "strided": lambda values: torch.stack([values, values], -1)[..., 1],
    "offset": lambda values: torch.cat([values.flatten(), values.flatten()])[values.numel() :].view(
        values.shape
    ),
}
"""Ways in which equal values lie in memory."""


def make_input(
    spec: Input, shape: Shape, dtype: torch.dtype, generator: torch.Generator
) -> torch.Tensor:
    """Return an input on the CPU."""
    if isinstance(spec, Mask):
        return torch.rand(shape, generator=generator) < 0.5
    if isinstance(spec, Indices):
        return torch.randint(spec.below, shape, generator=generator)
    if dtype.is_floating_point:
        uniform = torch.rand(shape, generator=generator, dtype=torch.float64)
        return (uniform * (spec.high - spec.low) + spec.low).to(dtype)
    low = max(int(spec.low), torch.iinfo(dtype).min)
    return torch.randint(low, int(spec.high) + 1, shape, generator=generator).to(dtype)
