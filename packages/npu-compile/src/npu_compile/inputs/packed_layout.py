"""The position of each input of a step in one packed buffer."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from npu_compile.inputs.input_spec import InputPlace, StepSize, misfit, require_step_size

if TYPE_CHECKING:
    from collections.abc import Mapping

    import torch

    from npu_compile.inputs.input_spec import InputSpec

# The device addresses tensors in blocks of 32 bytes (CANN's data-move granularity); 64 also keeps
# each input on a host cache line of its own.
ALIGNMENT_BYTES = 64


class PackedLayout:
    """Offsets of inputs in a packed byte buffer, and views of such a buffer.

    Inputs with the same place form one contiguous part of the buffer, in declaration order.

    Args:
        device: where values may be, besides the CPU.

    Attributes:
        num_bytes: size of a whole buffer.
        part_bytes: size of the part of each place; 0 if it has no input.
    """

    def __init__(
        self, specs: Mapping[str, InputSpec], *, largest: StepSize, device: torch.device
    ) -> None:
        self.specs = dict(specs)
        self.largest = largest
        self.device = device
        # Within the part of its place.
        self._offsets: dict[str, int] = {}
        self.part_bytes = dict.fromkeys(InputPlace, 0)
        for name, spec in self.specs.items():
            offset = self._offsets[name] = self.part_bytes[spec.place]
            count = spec.rows(largest) * math.prod(spec.trailing_shape)
            rows_bytes = count * spec.dtype.itemsize
            end = offset + -(-rows_bytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
            self.part_bytes[spec.place] = end
        self.num_bytes = sum(self.part_bytes.values())

    def parts(self, packed: torch.Tensor) -> dict[InputPlace, torch.Tensor]:
        """Return the parts of a packed buffer ``[num_bytes]``, uint8, contiguous, as views."""
        parts = packed.split(list(self.part_bytes.values()))  # type: ignore[no-untyped-call]
        return dict(zip(self.part_bytes, parts, strict=True))

    def views(self, parts: Mapping[InputPlace, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Return the inputs of the largest step as views of the parts of a packed buffer.

        Args:
            parts: for each place ``[part_bytes]``, uint8, contiguous, on any device. They own the
                memory and need not be adjacent.
        """
        views: dict[str, torch.Tensor] = {}
        for name, spec in self.specs.items():
            shape = (spec.rows(self.largest), *spec.trailing_shape)
            start = self._offsets[name]
            stop = start + math.prod(shape) * spec.dtype.itemsize
            views[name] = parts[spec.place][start:stop].view(spec.dtype).view(shape)
        return views

    def check(
        self, values: Mapping[str, torch.Tensor], *, most: StepSize, least: int = 1
    ) -> StepSize:
        """Check the inputs of a step against the declarations and return the step's size.

        Each value is ``[rows, ...]``; there are between `least` rows and the size `most`.

        Returns:
            The size. If no input has one row per sequence, it has as many sequences as fit.

        Raises:
            InputError: An input is missing or unknown, has a wrong device, dtype or shape, or the
                rows differ between inputs or are too few or too many.
        """
        if values.keys() != self.specs.keys():
            missing = sorted(self.specs.keys() - values.keys())
            unknown = sorted(values.keys() - self.specs.keys())
            raise misfit(f"expected {sorted(self.specs)}; missing {missing}, unknown {unknown}")
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
        """Check that a value on the device fits one input of a step of this size.

        Raises:
            InputError: It does not fit, is on the CPU, or the input is unknown.
        """
        if name not in self.specs:
            raise misfit(f"`{name}` is unknown, expected one of {sorted(self.specs)}")
        self._require_place(name, value, self.specs[name], is_staged=True)
        if not _is_on(value, self.device):
            raise misfit(
                f"`{name}` is on {value.device}, expected {self.device}; write what is on the CPU "
                "into the staging view"
            )
        self._check_value(name, value, self.specs[name])
        rows = self.specs[name].rows(own)
        if value.shape[0] != rows:
            raise misfit(f"`{name}` has {value.shape[0]} rows, expected {rows}")

    def require_fits(self, size: StepSize) -> None:
        """Check that a step is not larger than the largest one.

        Raises:
            ConfigError: The argument is not a size.
            InputError: The step is larger.
        """
        require_step_size("loading the inputs of a step", size)
        if size.tokens > self.largest.tokens or size.sequences > self.largest.sequences:
            raise misfit(
                f"padded to {size}, expected at most {self.largest}; make the static inputs "
                "larger, or run the step without them"
            )

    def _require_place(
        self, name: str, value: torch.Tensor, spec: InputSpec, *, is_staged: bool = False
    ) -> None:
        """Check that a value outside the packed copy belongs to an input on the device."""
        if spec.place is InputPlace.DEVICE:
            return
        remedy = "write it into the staging view" if is_staged else "read it back before"
        raise misfit(
            f"`{name}` is on {value.device}, expected the CPU, as it is declared "
            f"InputPlace.{spec.place.name}; {remedy}, or declare InputPlace.DEVICE"
        )

    def _check_value(self, name: str, value: torch.Tensor, spec: InputSpec) -> None:
        if value.device.type != "cpu":
            self._require_place(name, value, spec)
        if value.device.type != "cpu" and not _is_on(value, self.device):
            raise misfit(
                f"`{name}` is on {value.device}, expected the CPU or {self.device}, where the "
                "static inputs are; copy it there before"
            )
        if value.dtype != spec.dtype:
            raise misfit(
                f"`{name}` has dtype {value.dtype}, expected {spec.dtype}; convert it before"
            )
        trailing = tuple(value.shape[1:])
        fits = len(trailing) == len(spec.trailing_shape) and (
            trailing == spec.trailing_shape
            or (trailing[0] <= spec.trailing_shape[0] and trailing[1:] == spec.trailing_shape[1:])
        )
        if value.dim() == 0 or not fits:
            raise misfit(
                f"`{name}` has shape {tuple(value.shape)}, expected (rows, "
                f"{', '.join(map(str, spec.trailing_shape))}) or narrower"
            )


def _same_rows(name: str, rows: int, before: int, what: str) -> int:
    if before not in {-1, rows}:
        raise misfit(
            f"`{name}` has {rows} rows, the inputs before it {before}; all must have one row a "
            f"{what}"
        )
    return rows


def _check_range(rows: int, least: int, most: int, what: str) -> None:
    if not least <= rows <= most:
        raise misfit(f"found {rows} {what}, expected {least} to {most}")


def _is_on(value: torch.Tensor, device: torch.device) -> bool:
    """Return whether a value is on a device, which may be named without an index."""
    place = value.device
    return place.type == device.type and device.index in {None, place.index}
