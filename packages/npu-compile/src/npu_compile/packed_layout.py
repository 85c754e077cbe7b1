"""Where each input of a step lies in one packed buffer."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING

from npu_compile.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping

    import torch

# The device addresses tensors in blocks of 32 bytes (CANN's data-move granularity); 64 also keeps
# each input on a host cache line of its own.
ALIGNMENT_BYTES = 64


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class InputSpec:
    """Declares one input of a step: a tensor ``[size, *trailing_shape]``.

    Attributes:
        dtype: element type of the static buffer; values are given in it.
        trailing_shape: all dimensions but the first, which is the padded size of the batch. A value
            may be narrower in the first trailing dimension; the rest is padded.
        pad_value: written to rows (and trailing columns) that the batch does not fill.
    """

    dtype: torch.dtype
    trailing_shape: tuple[int, ...] = ()
    pad_value: float = 0


class PackedLayout:
    """Offsets of inputs in a packed byte buffer, and views of such a buffer.

    Args:
        specs: input names and their declarations, in the order of packing.
        max_size: rows of each input, the largest capture size.
    """

    def __init__(self, specs: Mapping[str, InputSpec], *, max_size: int) -> None:
        self.specs = dict(specs)
        self.max_size = max_size
        self._offsets: dict[str, int] = {}
        offset = 0
        for name, spec in self.specs.items():
            self._offsets[name] = offset
            rows_bytes = max_size * math.prod(spec.trailing_shape) * spec.dtype.itemsize
            offset += -(-rows_bytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
        self.num_bytes = offset

    def views(self, packed: torch.Tensor) -> dict[str, torch.Tensor]:
        """Return the inputs ``[max_size, *trailing_shape]`` as views of a packed buffer.

        Args:
            packed: ``[num_bytes]``, uint8, contiguous, on any device; it owns the memory.
        """
        views: dict[str, torch.Tensor] = {}
        for name, spec in self.specs.items():
            shape = (self.max_size, *spec.trailing_shape)
            start = self._offsets[name]
            stop = start + math.prod(shape) * spec.dtype.itemsize
            views[name] = packed[start:stop].view(spec.dtype).view(shape)
        return views

    def check(self, values: Mapping[str, torch.Tensor], *, max_rows: int) -> int:
        """Return the number of rows of a batch after checking it against the declarations.

        Args:
            values: one tensor ``[rows, ...]`` for each declared input.
            max_rows: rows that fit.

        Raises:
            InputError: a missing or unknown input, a wrong device, dtype or shape, rows
                that differ between inputs, no row, or too many.
        """
        if values.keys() != self.specs.keys():
            missing = sorted(self.specs.keys() - values.keys())
            unknown = sorted(values.keys() - self.specs.keys())
            raise InputError(
                f"loading the inputs of a step: expected {sorted(self.specs)}; "
                f"missing {missing}, unknown {unknown}"
            )
        rows = -1
        for name, spec in self.specs.items():
            value = values[name]
            _check_value(name, value, spec)
            if rows == -1:
                rows = value.shape[0]
            if value.shape[0] != rows:
                raise InputError(
                    f"loading the inputs of a step: `{name}` has {value.shape[0]} rows, "
                    f"the inputs before it {rows}; all must have one row a token"
                )
        if not 1 <= rows <= max_rows:
            raise InputError(
                f"loading the inputs of a step: found {rows} rows, expected 1 to {max_rows}"
            )
        return rows


def _check_value(name: str, value: torch.Tensor, spec: InputSpec) -> None:
    if value.device.type != "cpu":
        raise InputError(
            f"loading the inputs of a step: `{name}` is on {value.device}, expected the CPU; "
            "reading it back would synchronise the device"
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
