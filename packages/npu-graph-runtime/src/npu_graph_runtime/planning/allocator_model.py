"""A model of torch's caching allocator, which computes memory use without allocating.

Note [rules of the caching allocator]: read in torch's ``c10/cuda/CUDACachingAllocator.cpp``, which
torch_npu's allocator follows, and compared with that of torch_npu 2.13. A request is rounded up to
512 bytes; before that, CANN adds 32 bytes on most processors. Requests of at most 1 MiB are small.
Among the blocks of one pool, one stream and one kind (small or large), the smallest that fits is
used; of equal ones, the first in memory. The rest of the block becomes a block of its own if it has
at least 512 bytes (small) or more than 1 MiB (large). If no block fits, a segment is requested from
the device: 2 MiB for a small request, 20 MiB for one below 10 MiB, otherwise the request rounded up
to 2 MiB. A freed block is merged with free neighbours of its segment. Emptying the cache releases
segments that are completely free, except those of graph pools.
"""

from __future__ import annotations

import bisect
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_UNIT: Final = 512
_LARGEST_SMALL: Final = 2**20
_SMALL_SEGMENT: Final = 2 * 2**20
_LARGE_SEGMENT: Final = 20 * 2**20
_LARGEST_SHARED: Final = 10 * 2**20
_PADDING: Final = 32
DEFAULT_POOL: Final = (0, 0)


class Place(NamedTuple):
    """Where an allocation is made.

    Attributes:
        pool: id of the memory pool; ``(0, 0)`` outside graphs.
        stream: the allocator's name of the stream.
    """

    pool: tuple[int, int]
    stream: int


class _Kind(NamedTuple):
    """Blocks that are searched together."""

    place: Place
    is_small: bool


class _Block:
    __slots__ = ("address", "is_free", "kind", "next", "previous", "size")

    def __init__(self, address: int, size: int, kind: _Kind) -> None:
        self.address, self.size, self.kind, self.is_free = address, size, kind, True
        self.previous: _Block | None = None
        self.next: _Block | None = None


class AllocatorModel:
    """The blocks of an allocator after simulated allocations and releases.

    See Note [rules of the caching allocator]. Blocks of a snapshot keep their addresses; further
    addresses are made up.

    Args:
        segments: segments of an allocator snapshot, none of them expandable.

    Attributes:
        reserved: bytes of all segments.
    """

    def __init__(self, segments: Iterable[Mapping[str, Any]]) -> None:
        self.reserved = 0
        self._live: dict[int, _Block] = {}
        self._free: dict[_Kind, list[tuple[int, int]]] = {}
        self._free_blocks: dict[int, _Block] = {}
        self._padding = _PADDING
        self._end = 0
        for segment in segments:
            self._take(segment)

    def allocate(self, place: Place, num_bytes: int) -> int:
        """Return the address of a new allocation."""
        size = max(-(-(num_bytes + self._padding) // _UNIT), 1) * _UNIT
        kind = _Kind(place, is_small=size <= _LARGEST_SMALL)
        block = self._smallest(kind, size)
        if block is None:
            block = self._segment(kind, size)
        rest = block.size - size
        if (rest >= _UNIT) if kind.is_small else (rest > _LARGEST_SMALL):
            self._split(block, size)
        block.is_free = False
        self._live[block.address] = block
        return block.address

    def release(self, address: int) -> None:
        """Free an allocation; unknown or freed addresses are ignored."""
        block = self._live.pop(address, None)
        if block is None:
            return
        before, behind = block.previous, block.next
        if behind is not None and behind.is_free:
            self._forget(behind)
            self._join(block, behind)
        if before is not None and before.is_free:
            self._forget(before)
            self._join(before, block)
            block = before
        self._offer(block)

    def empty_cache(self) -> None:
        """Release segments that are completely free and in no graph's pool."""
        for block in [*self._free_blocks.values()]:
            is_whole = block.previous is None and block.next is None
            if is_whole and block.kind.place.pool == DEFAULT_POOL:
                self._forget(block)
                self.reserved -= block.size

    def _take(self, segment: Mapping[str, Any]) -> None:
        place = Place(tuple(segment["segment_pool_id"]), segment["stream"])
        kind = _Kind(place, is_small=segment["segment_type"] == "small")
        address, previous = segment["address"], None
        self.reserved += segment["total_size"]
        for each in segment["blocks"]:
            block = _Block(address, each["size"], kind)
            block.previous = previous
            if previous is not None:
                previous.next = block
            previous = block
            address += block.size
            if each["state"] == "inactive":
                self._offer(block)
                continue
            block.is_free = False
            self._live[block.address] = block
            if each.get("requested_size") == block.size:
                self._padding = 0
        self._end = max(self._end, address)

    def _smallest(self, kind: _Kind, size: int) -> _Block | None:
        free = self._free.get(kind, [])
        index = bisect.bisect_left(free, (size, 0))
        if index == len(free):
            return None
        return self._free_blocks.pop(free.pop(index)[1])

    def _segment(self, kind: _Kind, size: int) -> _Block:
        if kind.is_small:
            num_bytes = _SMALL_SEGMENT
        elif size < _LARGEST_SHARED:
            num_bytes = _LARGE_SEGMENT
        else:
            num_bytes = -(-size // _SMALL_SEGMENT) * _SMALL_SEGMENT
        block = _Block(self._end, num_bytes, kind)
        self._end += num_bytes
        self.reserved += num_bytes
        return block

    def _split(self, block: _Block, size: int) -> None:
        rest = _Block(block.address + size, block.size - size, block.kind)
        rest.previous, rest.next = block, block.next
        if rest.next is not None:
            rest.next.previous = rest
        block.next, block.size = rest, size
        self._offer(rest)

    def _join(self, block: _Block, behind: _Block) -> None:
        block.size += behind.size
        block.next = behind.next
        if behind.next is not None:
            behind.next.previous = block

    def _offer(self, block: _Block) -> None:
        block.is_free = True
        self._free_blocks[block.address] = block
        bisect.insort(self._free.setdefault(block.kind, []), (block.size, block.address))

    def _forget(self, block: _Block) -> None:
        free = self._free[block.kind]
        del free[bisect.bisect_left(free, (block.size, block.address))]
        del self._free_blocks[block.address]
