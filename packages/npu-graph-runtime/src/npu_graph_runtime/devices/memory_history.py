"""The history of torch's caching allocator, recorded for one reader at a time."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

from npu_graph_runtime.device import AllocatorRecord

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from typing_extensions import Self


class MemoryHistory:
    """The allocator's actions, from :meth:`begin` to :meth:`end` or until this object is deleted.

    Args:
        snapshot: returns segments and history, like ``torch.cuda.memory._snapshot``.
        record: starts a new history, or ends it, like ``_record_memory_history`` in the same
            module.
        index: index of the device.
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
        """Begin a history, unless somebody already records one."""
        # A snapshot is an entry of the history itself, where there is one.
        snapshot()
        return None if any(snapshot()["device_traces"]) else cls(snapshot, record, index)

    def take(self) -> AllocatorRecord | None:
        """Return the current segments, and the actions since the last call.

        Returns:
            ``None`` if segments are expandable, or do not report their pool.
        """
        found = self._snapshot()
        segments, traces = tuple(found["segments"]), found["device_traces"]
        self._begin_anew()
        if any(each.get("is_expandable") or "segment_pool_id" not in each for each in segments):
            return None
        entries = traces[self._index] if self._index < len(traces) else ()
        return AllocatorRecord(segments=segments, entries=tuple(entries))

    def end(self) -> None:
        """Stop recording."""
        self._end()

    def _begin_anew(self) -> None:
        self._record(enabled="all", context=None, stacks="python")
