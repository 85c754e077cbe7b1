"""The history of torch's caching allocator, written down for one reader at a time."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

from npu_graph_runtime.device import AllocatorRecord

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from typing_extensions import Self


class MemoryHistory:
    """What the allocator does, from :meth:`begin` to :meth:`end` or until nobody holds this.

    Args:
        snapshot: returns segments and history, as ``torch.cuda.memory._snapshot`` does.
        record: starts the history anew, or ends it, as ``_record_memory_history`` beside it does.
        index: of the device.
    """

    def __init__(
        self, snapshot: Callable[[], Mapping[str, Any]], record: Callable[..., object], index: int
    ) -> None:
        self._snapshot, self._record, self._index = snapshot, record, index
        self._end = weakref.finalize(self, record, enabled=None)
        self._end.atexit = False
        self._begin_anew()

    @classmethod
    def begin(
        cls, snapshot: Callable[[], Mapping[str, Any]], record: Callable[..., object], index: int
    ) -> Self | None:
        """Begin one, unless somebody has one already."""
        # A snapshot is an entry of the history itself, where there is one.
        snapshot()
        return None if any(snapshot()["device_traces"]) else cls(snapshot, record, index)

    def take(self) -> AllocatorRecord | None:
        """Return the segments as they are, and what was done since the last time.

        Returns:
            ``None`` where segments are expandable, or do not say their pool.
        """
        found = self._snapshot()
        segments, traces = tuple(found["segments"]), found["device_traces"]
        self._begin_anew()
        if any(each.get("is_expandable") or "segment_pool_id" not in each for each in segments):
            return None
        entries = traces[self._index] if self._index < len(traces) else ()
        return AllocatorRecord(segments=segments, entries=tuple(entries))

    def end(self) -> None:
        """Write nothing down any more."""
        self._end()

    def _begin_anew(self) -> None:
        self._record(enabled="all", context=None, stacks="python")
