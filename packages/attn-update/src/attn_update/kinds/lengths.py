"""Host lengths of sequences, as steps pass them and as operators accept them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeAlias

import torch

from attn_update.errors import StepParameterError

if TYPE_CHECKING:
    from collections.abc import Sequence


class LengthArray(Protocol):
    """A one-dimensional integer array on the host; `numpy.ndarray` implements it."""

    @property
    def ndim(self) -> int:
        """The number of dimensions."""

    def tolist(self) -> list[int]:
        """Return the elements as Python integers."""


Lengths: TypeAlias = "Sequence[int] | torch.Tensor | LengthArray"
"""Lengths on the host: Python integers, a CPU tensor, or an array."""


def to_lengths(value: object, *, what: str) -> list[int]:
    """Return host lengths as a new list.

    Args:
        value: A sequence of integers, a one-dimensional integer CPU tensor, or an array.
        what: Name of the value in errors.

    Raises:
        StepParameterError: The value is on a device (reading it would block the host), has more
            than one dimension, or does not contain integers.
    """
    lengths = value.copy() if type(value) is list else _read_lengths(value, what=what)
    assert isinstance(lengths, list)  # noqa: S101
    # One pass in C over the types; a float or a bool is named only when there is one.
    if not {int}.issuperset(map(type, lengths)):
        wrong = next(item for item in lengths if type(item) is not int)
        raise StepParameterError(
            f"reading {what}: expected integers, found {wrong!r} of type {type(wrong).__name__}",
        )
    return lengths


def _read_lengths(value: object, *, what: str) -> object:
    if isinstance(value, torch.Tensor):
        if value.device.type != "cpu":
            raise StepParameterError(
                f"reading {what}: the tensor is on {value.device}, and reading it would block the "
                f"host; keep lengths on the CPU",
            )
        if value.is_floating_point() or value.dtype == torch.bool:
            raise StepParameterError(f"reading {what}: expected integers, found {value.dtype}")
    dimensions = getattr(value, "ndim", 1)
    if dimensions != 1:
        raise StepParameterError(f"reading {what}: expected one dimension, found {dimensions}")
    to_list = getattr(value, "tolist", None)
    try:
        return to_list() if to_list is not None else list(value)  # type: ignore[call-overload]
    except TypeError as error:
        raise StepParameterError(
            f"reading {what}: expected integers, found {type(value).__name__}",
        ) from error
