"""What captured graphs take of a device, and what they may take."""

from __future__ import annotations

import dataclasses

from npu_graph_runtime.errors import CaptureSizeError


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class CaptureCost:
    """What captured graphs take of a device for as long as they live.

    Attributes:
        streams: of the device; 0 where it does not tell.
        num_bytes: of device memory: what the graphs' memory pool grew by, and what the device keeps
            for the graphs outside the allocator, such as the arguments of kernels.
    """

    streams: int
    num_bytes: int

    def __add__(self, other: CaptureCost) -> CaptureCost:
        """Return both costs together."""
        return CaptureCost(
            streams=self.streams + other.streams, num_bytes=self.num_bytes + other.num_bytes
        )

    def __str__(self) -> str:
        """Return the cost as text for a person."""
        return f"{self.streams} streams and {readable_bytes(self.num_bytes)}"


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class CaptureBudget:
    """What captured graphs may take of a device.

    Attributes:
        streams: of the device, at least 1; ``None`` for what it has left when planning begins.
        num_bytes: of device memory, at least 1; ``None`` for what is free when planning begins.

    Raises:
        CaptureSizeError: a limit below 1.
    """

    streams: int | None = None
    num_bytes: int | None = None

    def __post_init__(self) -> None:
        for name in ("streams", "num_bytes"):
            limit = getattr(self, name)
            if limit is not None and (
                not isinstance(limit, int) or isinstance(limit, bool) or limit < 1
            ):
                raise CaptureSizeError(
                    f"making a capture budget: {name} is {limit!r}, expected a whole number of at "
                    "least 1, or None for what the device has left"
                )

    def left_by(self, used: CaptureCost) -> CaptureBudget:
        """Return what is left of the budget by captures that it holds already.

        Raises:
            CaptureSizeError: nothing.
        """
        streams = None if self.streams is None else self.streams - used.streams
        num_bytes = None if self.num_bytes is None else self.num_bytes - used.num_bytes
        if any(limit is not None and limit < 1 for limit in (streams, num_bytes)):
            raise CaptureSizeError(
                f"planning captures within {self}: those before them took {used}, expected that "
                "something is left; raise the budget, or leave out sizes"
            )
        return CaptureBudget(streams=streams, num_bytes=num_bytes)

    def __str__(self) -> str:
        """Return the budget as text for a person."""
        streams = "all free" if self.streams is None else self.streams
        memory = "all free memory" if self.num_bytes is None else readable_bytes(self.num_bytes)
        return f"{streams} streams and {memory}"


def readable_bytes(num_bytes: int) -> str:
    """Return a number of bytes for a person, in MiB."""
    return f"{num_bytes / 2**20:.1f} MiB"
