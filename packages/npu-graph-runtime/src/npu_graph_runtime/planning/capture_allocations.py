"""The allocations and releases of a capture, and those expected for another size."""

from __future__ import annotations

import bisect
import dataclasses
from typing import TYPE_CHECKING, Any, NamedTuple

from npu_graph_runtime.planning.allocator_model import DEFAULT_POOL, Place

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from npu_graph_runtime.device import AllocatorRecord
    from npu_graph_runtime.planning.allocator_model import AllocatorModel


class _Released(NamedTuple):
    """A release of an allocation.

    Attributes:
        captures_ago: 0 for an allocation of the same capture, 1 for the capture before, and so on.
        allocation: its index among those of its capture.
    """

    captures_ago: int
    allocation: int


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class CaptureAllocations:
    """The allocations and releases of one capture, including its warm-up runs, in order.

    Attributes:
        size: size of the capture.
        steps: indices of allocations, and releases.
        num_bytes: bytes requested by the allocations, in their order.
        addresses: addresses of the allocations, in their order.
    """

    size: int
    steps: tuple[Place | _Released, ...]
    num_bytes: tuple[int, ...]
    addresses: tuple[int, ...]

    @classmethod
    def read(
        cls, size: int, record: AllocatorRecord, earlier: Sequence[CaptureAllocations]
    ) -> CaptureAllocations:
        """Read the allocations from the allocator's history.

        Args:
            size: size of the capture.
            record: the allocator's actions since the last of ``earlier``.
            earlier: earlier captures, in order. Releases of memory that none of them allocated do
                not count, because it existed before.
        """
        held = {
            address: _Released(ago, index)
            for ago, capture in reversed([*enumerate(reversed(earlier), start=1)])
            for index, address in enumerate(capture.addresses)
        }
        steps: list[Place | _Released] = []
        num_bytes: list[int] = []
        addresses: list[int] = []
        pool_at = _pools(record.segments)
        for entry in record.entries:
            if entry["action"] == "alloc":
                held[entry["addr"]] = _Released(0, len(addresses))
                pool = tuple(entry["pool_id"]) if "pool_id" in entry else pool_at(entry["addr"])
                steps.append(Place(pool, entry["stream"]))
                num_bytes.append(entry["size"])
                addresses.append(entry["addr"])
            elif entry["action"] == "free_completed" and entry["addr"] in held:
                steps.append(held.pop(entry["addr"]))
        return cls(
            size=size,
            steps=tuple(steps),
            num_bytes=tuple(num_bytes),
            addresses=tuple(addresses),
        )

    def scaled(self, size: int, other: CaptureAllocations) -> list[int]:
        """Return the bytes that the same allocations would request for another size.

        Args:
            size: at most the size of this capture.
            other: a capture of another size. If it has the same steps, an allocation lies on
                the line through both, but not below the value proportional to the size, nor above
                this capture's. Otherwise it is proportional, unless the other has it unchanged.
        """
        part = size / self.size
        if self._own_steps() == other._own_steps():
            step = (size - self.size) / (other.size - self.size)
            return [
                min(max(round(own + (its - own) * step), round(own * part)), own)
                for own, its in zip(self.num_bytes, other.num_bytes, strict=True)
            ]
        theirs, grown = {*other.num_bytes}, other.size / self.size
        return [
            own if own in theirs and round(own * grown) not in theirs else round(own * part)
            for own in self.num_bytes
        ]

    def repeat(
        self,
        model: AllocatorModel,
        num_bytes: Iterable[int],
        earlier: Sequence[Sequence[int]],
    ) -> list[int]:
        """Repeat the allocations in a model, and return their addresses there."""
        sizes = iter(num_bytes)
        own: list[int] = []
        for step in self.steps:
            if isinstance(step, Place):
                own.append(model.allocate(step, next(sizes)))
            elif step.captures_ago == 0:
                model.release(own[step.allocation])
            elif step.captures_ago <= len(earlier):
                addresses = earlier[-step.captures_ago]
                if step.allocation < len(addresses):
                    model.release(addresses[step.allocation])
        return own

    def _own_steps(self) -> list[Place | _Released]:
        """Return the steps without releases of memory left by earlier captures."""
        return [step for step in self.steps if isinstance(step, Place) or step.captures_ago == 0]


def _pools(segments: Iterable[Mapping[str, Any]]) -> Callable[[int], tuple[int, int]]:
    """Return a function from an address to its pool; no graph's if its segment is gone.

    Segments of graphs exist as long as the graphs.
    """
    known = sorted(
        (each["address"], each["total_size"], each["segment_pool_id"]) for each in segments
    )
    starts = [start for start, _, _ in known]

    def pool_at(address: int) -> tuple[int, int]:
        index = bisect.bisect_right(starts, address) - 1
        if index < 0 or address >= known[index][0] + known[index][1]:
            return DEFAULT_POOL
        first, second = known[index][2]
        return first, second

    return pool_at
