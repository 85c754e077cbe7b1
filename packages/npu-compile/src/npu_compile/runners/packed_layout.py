"""Where each input of a step lies in one packed buffer."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING

import torch

from npu_compile.configuration.config_values import is_whole
from npu_compile.errors import ConfigError, InputError
from npu_compile.runners.step_size import StepSize, require_step_size

if TYPE_CHECKING:
    from collections.abc import Mapping

# The device addresses tensors in blocks of 32 bytes (CANN's data-move granularity); 64 also keeps
# each input on a host cache line of its own.
ALIGNMENT_BYTES = 64

_DECLARING = "declaring an input of a step:"


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class InputSpec:
    """Declares one input of a step: a tensor ``[rows, *trailing_shape]``.

    Attributes:
        dtype: element type of the static buffer; values are given in it.
        trailing_shape: all dimensions but the first, which is the padded size of the batch. A value
            may be narrower in the first trailing dimension; the rest is padded.
        pad_value: written to rows (and trailing columns) that the batch does not fill.
        per_sequence: whether there is one row a sequence (a block table, say) and not one a token;
            the same in a decode step.

    Raises:
        ConfigError: a value has the wrong type, or ``dtype`` cannot hold ``pad_value``.
    """

    dtype: torch.dtype
    trailing_shape: tuple[int, ...] = ()
    pad_value: float = 0
    per_sequence: bool = False

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
        if not _holds(self.dtype, self.pad_value):
            raise ConfigError(
                f"{_DECLARING} pad_value is {self.pad_value!r}, expected a number that "
                f"{self.dtype} can hold"
            )

    def rows(self, size: StepSize) -> int:
        """Return the rows of this input in a step of this size."""
        return size.sequences if self.per_sequence else size.tokens


class PackedLayout:
    """Offsets of inputs in a packed byte buffer, and views of such a buffer.

    Args:
        specs: input names and their declarations, in the order of packing.
        largest: the largest step that fits.
        device: where values may lie besides the CPU.
    """

    def __init__(
        self, specs: Mapping[str, InputSpec], *, largest: StepSize, device: torch.device
    ) -> None:
        self.specs = dict(specs)
        self.largest = largest
        self.device = device
        self._offsets: dict[str, int] = {}
        offset = 0
        for name, spec in self.specs.items():
            self._offsets[name] = offset
            count = spec.rows(largest) * math.prod(spec.trailing_shape)
            rows_bytes = count * spec.dtype.itemsize
            offset += -(-rows_bytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
        self.num_bytes = offset

    def views(self, packed: torch.Tensor) -> dict[str, torch.Tensor]:
        """Return the inputs of the largest step as views of a packed buffer.

        Args:
            packed: ``[num_bytes]``, uint8, contiguous, on any device; it owns the memory.
        """
        views: dict[str, torch.Tensor] = {}
        for name, spec in self.specs.items():
            shape = (spec.rows(self.largest), *spec.trailing_shape)
            start = self._offsets[name]
            stop = start + math.prod(shape) * spec.dtype.itemsize
            views[name] = packed[start:stop].view(spec.dtype).view(shape)
        return views

    def check(
        self, values: Mapping[str, torch.Tensor], *, most: StepSize, least: int = 1
    ) -> StepSize:
        """Return the size of a step after checking its inputs against the declarations.

        Args:
            values: one tensor ``[rows, ...]`` for each declared input.
            most: the size that fits.
            least: rows that there have to be.

        Returns:
            The size; where no input has one row a sequence, as many sequences as fit.

        Raises:
            InputError: a missing or unknown input, a wrong device, dtype or shape, rows
                that differ between inputs, too few, or too many.
        """
        if values.keys() != self.specs.keys():
            missing = sorted(self.specs.keys() - values.keys())
            unknown = sorted(values.keys() - self.specs.keys())
            raise InputError(
                f"loading the inputs of a step: expected {sorted(self.specs)}; "
                f"missing {missing}, unknown {unknown}"
            )
        tokens = sequences = -1
        for name, spec in self.specs.items():
            value = values[name]
            shape = value.shape
            if (
                value.dtype is not spec.dtype
                or not value.is_cpu
                or shape[1:] != spec.trailing_shape
                or not shape
            ):
                self._check_value(name, value, spec)
            rows = shape[0]
            if spec.per_sequence:
                if rows != sequences:
                    sequences = _same_rows(name, rows, sequences, "sequence")
            elif rows != tokens:
                tokens = _same_rows(name, rows, tokens, "token")
        size = StepSize(
            tokens=most.tokens if tokens == -1 else tokens,
            sequences=most.sequences if sequences == -1 else sequences,
        )
        _check_range(size.tokens, least, most.tokens, "rows")
        _check_range(size.sequences, least, most.sequences, "rows of sequences")
        return size

    def check_on_device(self, name: str, value: torch.Tensor, *, own: StepSize) -> None:
        """See that a value on the device fits one input of a step of this size.

        Raises:
            InputError: it does not, is on the CPU, or the input is unknown.
        """
        if name not in self.specs:
            raise InputError(
                f"loading the inputs of a step: `{name}` is unknown, expected one of "
                f"{sorted(self.specs)}"
            )
        if not _is_on(value, self.device):
            raise InputError(
                f"loading the inputs of a step: `{name}` is on {value.device}, expected "
                f"{self.device}; write what is on the CPU into the staging view"
            )
        self._check_value(name, value, self.specs[name])
        rows = self.specs[name].rows(own)
        if value.shape[0] != rows:
            raise InputError(
                f"loading the inputs of a step: `{name}` has {value.shape[0]} rows, expected {rows}"
            )

    def require_fits(self, size: StepSize) -> None:
        """See that a step is not larger than the largest.

        Raises:
            ConfigError: it is no size.
            InputError: it is larger.
        """
        require_step_size("loading the inputs of a step", size)
        if size.tokens > self.largest.tokens or size.sequences > self.largest.sequences:
            raise InputError(
                f"loading the inputs of a step: padded to {size}, expected at most {self.largest}; "
                "make the static inputs larger, or run the step without them"
            )

    def _check_value(self, name: str, value: torch.Tensor, spec: InputSpec) -> None:
        if value.device.type != "cpu" and not _is_on(value, self.device):
            raise InputError(
                f"loading the inputs of a step: `{name}` is on {value.device}, expected the CPU or "
                f"{self.device}, where the static inputs are; copy it there before"
            )
        if value.dtype != spec.dtype:
            raise InputError(
                f"loading the inputs of a step: `{name}` has dtype {value.dtype}, "
                f"expected {spec.dtype}; convert it before"
            )
        trailing = tuple(value.shape[1:])
        fits = len(trailing) == len(spec.trailing_shape) and (
            trailing == spec.trailing_shape
            or (trailing[0] <= spec.trailing_shape[0] and trailing[1:] == spec.trailing_shape[1:])
        )
        if value.dim() == 0 or not fits:
            raise InputError(
                f"loading the inputs of a step: `{name}` has shape {tuple(value.shape)}, "
                f"expected (rows, {', '.join(map(str, spec.trailing_shape))}) or narrower"
            )


def _same_rows(name: str, rows: int, before: int, what: str) -> int:
    if before not in {-1, rows}:
        raise InputError(
            f"loading the inputs of a step: `{name}` has {rows} rows, the inputs before it "
            f"{before}; all must have one row a {what}"
        )
    return rows


def _check_range(rows: int, least: int, most: int, what: str) -> None:
    if not least <= rows <= most:
        raise InputError(
            f"loading the inputs of a step: found {rows} {what}, expected {least} to {most}"
        )


def _is_on(value: torch.Tensor, device: torch.device) -> bool:
    """Return whether a value lies on a device, which may be named without a number."""
    place = value.device
    return place.type == device.type and device.index in {None, place.index}


def _holds(dtype: torch.dtype, value: object) -> bool:
    """Return whether padding with a value gives it, but for rounding of floating point."""
    if not isinstance(value, (int, float)):
        return False
    if dtype.is_floating_point or dtype.is_complex:
        return True
    if dtype is torch.bool:
        return value in {0, 1}
    limits = torch.iinfo(dtype)
    return value == value // 1 and limits.min <= value <= limits.max
