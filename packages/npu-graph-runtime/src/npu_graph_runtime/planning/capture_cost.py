"""The resources that captured graphs use, and their limits."""

from __future__ import annotations

import dataclasses

from npu_graph_runtime.errors import CaptureSizeError


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class CaptureCost:
    """The resources that captured graphs use while they live.

    Attributes:
        streams: streams of the device; 0 if it does not report them.
        num_bytes: device memory: the growth of the graphs' memory pool, and memory that the device
            uses for the graphs outside the allocator, such as kernel arguments.
    """

    streams: int
    num_bytes: int

    def __add__(self, other: CaptureCost) -> CaptureCost:
        return CaptureCost(
            streams=self.streams + other.streams, num_bytes=self.num_bytes + other.num_bytes
        )

    def __str__(self) -> str:
        return f"{self.streams} streams and {readable_bytes(self.num_bytes)}"


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class CaptureBudget:
    """Limits for captured graphs.

    Attributes:
        streams: streams of the device, at least 1; ``None`` for those it has left when planning
            begins.
        num_bytes: device memory, at least 1; ``None`` for what is free when planning begins.

    Raises:
        CaptureSizeError: A limit is below 1.
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
        """Return the rest of the budget after captures that already count against it.

        Raises:
            CaptureSizeError: Nothing is left.
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
        streams = "all free" if self.streams is None else self.streams
        memory = "all free memory" if self.num_bytes is None else readable_bytes(self.num_bytes)
        return f"{streams} streams and {memory}"


def readable_bytes(num_bytes: int) -> str:
    """Format a number of bytes in MiB."""
    return f"{num_bytes / 2**20:.1f} MiB"
