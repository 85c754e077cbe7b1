"""What a capture allocated and freed, and what one of another size would."""

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
        captures_ago: 0 for one of the same capture, 1 for one of the capture before, and so on.
        allocation: its place among those of its capture.
    """

    captures_ago: int
    allocation: int


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class CaptureAllocations:
    """What was allocated and freed for one capture, its warm-up runs included, in order.

    Attributes:
        size: of the capture.
        steps: an allocation's place, or a release.
        num_bytes: requested by the allocations, in their order.
        addresses: of the allocations, in their order.
    """

    size: int
    steps: tuple[Place | _Released, ...]
    num_bytes: tuple[int, ...]
    addresses: tuple[int, ...]

    @classmethod
    def read(
        cls, size: int, record: AllocatorRecord, earlier: Sequence[CaptureAllocations]
    ) -> CaptureAllocations:
        """Read them from the allocator's history.

        Args:
            size: of the capture.
            record: of what the allocator did since the last of ``earlier``.
            earlier: what was read before, in order. What none of them allocated may be freed, and
                does not count: it was there before.
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
        """Return what the same allocations would request for another size.

        Args:
            size: at most that of this capture.
            other: a capture of another size. Where it took the same steps, an allocation lies on
                the line through both, but not below what is in proportion to the size, nor above
                this capture's; else it is in proportion, unless the other has it unchanged.
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
        """Repeat them in a model, and return the addresses of the allocations there.

        Args:
            model: of the allocator.
            num_bytes: requested, for each allocation.
            earlier: addresses of the allocations of the captures before, in order.
        """
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
        """Return the steps without releases of what earlier captures left."""
        return [step for step in self.steps if isinstance(step, Place) or step.captures_ago == 0]


def _pools(segments: Iterable[Mapping[str, Any]]) -> Callable[[int], tuple[int, int]]:
    """Return what tells the pool at an address; where no segment is left, that of no graph.

    Segments of graphs stay as long as these do.
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
