"""The declaration of one input of a step, and the sizes of a step."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from enum import Enum
from typing import NamedTuple

import torch

from npu_compile.configuration.config_values import is_whole
from npu_compile.errors import ConfigError, InputError


class StepSize(NamedTuple):
    """Size of one step. If each sequence has one token, both numbers are equal.

    Attributes:
        tokens: rows of inputs with one row per token.
        sequences: rows of inputs with one row per sequence.
    """

    tokens: int
    sequences: int


def require_step_size(doing: str, size: object) -> None:
    """Check that an argument is a size of non-negative integers.

    Raises:
        ConfigError: It is something else.
    """
    if not isinstance(size, StepSize) or not all(is_whole(each, least=0) for each in size):
        raise ConfigError(
            f"{doing}: the size is {size!r}, expected StepSize(tokens=..., sequences=...) of whole "
            "numbers; where each sequence brings one token both are the same"
        )


class InputPlace(Enum):
    """Where the model finds an input of a captured step.

    Attributes:
        DEVICE: in device memory, filled by the packed copy of the step. Values may be on the CPU or
            on the device.
        PINNED: in page-locked host memory, which the step itself copies to the device, inside its
            graphs or between them. Before writing it, the host waits for the previous step, which
            may still read it, so it cannot run ahead.
        CPU: in ordinary host memory, never copied. For host code that runs at each step: a function
            that runs eagerly, or a splitting op. A graph keeps the value that host code read at
            capture, as for any host number.
    """

    DEVICE = "device"
    PINNED = "pinned"
    CPU = "cpu"


_DECLARING = "declaring an input of a step:"


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class InputSpec:
    """Declares one input of a step: a tensor ``[rows, *trailing_shape]``.

    Attributes:
        dtype: dtype of the static buffer and of the values you pass.
        trailing_shape: all dimensions except the first, which is the padded size of the batch. A
            value may be narrower in the first trailing dimension; the rest is padded.
        pad_value: value for rows (and trailing columns) that the batch does not fill.
        per_sequence: whether the input has one row per sequence (a block table, say) instead of one
            per token. In a decode step both are the same.
        place: where the static buffer is; by default on the device.

    Raises:
        ConfigError: A value has the wrong type, or ``dtype`` cannot represent ``pad_value``.
    """

    dtype: torch.dtype
    trailing_shape: tuple[int, ...] = ()
    pad_value: float = 0
    per_sequence: bool = False
    place: InputPlace = InputPlace.DEVICE

    def __post_init__(self) -> None:
        sizes: object = self.trailing_shape
        if not isinstance(self.dtype, torch.dtype):
            raise ConfigError(f"{_DECLARING} dtype is {self.dtype!r}, expected a torch.dtype")
        if not isinstance(sizes, (tuple, list)) or not all(
            is_whole(each, least=0) for each in sizes
        ):
            raise ConfigError(
                f"{_DECLARING} trailing_shape is {sizes!r}, expected a tuple of whole numbers, all "
                "dimensions but the first; () for one value a row"
            )
        object.__setattr__(self, "trailing_shape", tuple(sizes))
        if not isinstance(self.per_sequence, bool):
            raise ConfigError(
                f"{_DECLARING} per_sequence is {self.per_sequence!r}, expected True or False"
            )
        if not isinstance(self.place, InputPlace):
            raise ConfigError(
                f"{_DECLARING} place is {self.place!r}, expected "
                f"{' or '.join(f'InputPlace.{each.name}' for each in InputPlace)}"
            )
        if not _holds(self.dtype, self.pad_value):
            raise ConfigError(
                f"{_DECLARING} pad_value is {self.pad_value!r}, expected a number that "
                f"{self.dtype} can hold"
            )

    def rows(self, size: StepSize) -> int:
        """Return the number of rows of this input in a step of the given size."""
        return size.sequences if self.per_sequence else size.tokens


def misfit(problem: str) -> InputError:
    """Return the error that says why the inputs of a step cannot be loaded."""
    return InputError(f"loading the inputs of a step: {problem}")


def require_specs(doing: str, inputs: object) -> None:
    """Check that inputs are declared.

    Raises:
        ConfigError: They have another type.
    """
    if not isinstance(inputs, Mapping):
        raise ConfigError(
            f"{doing}: inputs is a {type(inputs).__name__}, expected a mapping of the model's "
            "argument names to InputSpec"
        )
    for name, spec in inputs.items():
        if not isinstance(spec, InputSpec):
            raise ConfigError(
                f"{doing}: input {name!r} is declared as {spec!r}, expected an InputSpec, such as "
                "InputSpec(dtype=torch.int32)"
            )


def _holds(dtype: torch.dtype, value: object) -> bool:
    """Return whether a dtype can represent a padding value, up to floating point rounding."""
    if not isinstance(value, (int, float)):
        return False
    if dtype.is_floating_point or dtype.is_complex:
        return True
    if dtype is torch.bool:
        return value in {0, 1}
    limits = torch.iinfo(dtype)
    return value == value // 1 and limits.min <= value <= limits.max
