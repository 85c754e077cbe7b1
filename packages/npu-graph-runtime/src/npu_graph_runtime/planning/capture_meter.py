"""Measures the cost of each capture, and forecasts that of further ones."""

from __future__ import annotations

import operator
import statistics
from typing import TYPE_CHECKING, NamedTuple

from npu_graph_runtime.device import HistoryDevice
from npu_graph_runtime.planning.allocator_model import AllocatorModel
from npu_graph_runtime.planning.capture_allocations import CaptureAllocations
from npu_graph_runtime.planning.capture_cost import CaptureCost

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from npu_graph_runtime.device import AllocatorHistory, AllocatorRecord, GraphDevice


class _Growth(NamedTuple):
    """The increase of a device's use since an earlier time.

    Attributes:
        streams: streams of the device.
        live: bytes of live tensors.
        reserved: bytes reserved by the allocator, including live ones.
        outside: bytes in use outside the allocator.
    """

    streams: int
    live: int
    reserved: int
    outside: int

    def since(self, earlier: _Growth) -> _Growth:
        return _Growth(*map(operator.sub, self, earlier))

    def cost(self) -> CaptureCost:
        return CaptureCost(streams=self.streams, num_bytes=self.reserved + self.outside)


class CaptureMeter:
    """Reads a device's figures around captures, relative to its first reading.

    A reading waits for the device and releases unused memory of the allocator, so that leftovers of
    warm-up runs do not count. Streams or memory used by others meanwhile, such as another process,
    are counted as well.

    Note [forecast of captures]: graphs of one pool reuse each other's memory. The first and largest
    capture makes the pool as large as its peak, and a further one adds

    - streams, by the number and length of its graphs, hardly by its size: forecast as for those
      before;
    - memory outside the pool, for kernel arguments: forecast as for those before;
    - growth of the pool, because it keeps tensors, and because tensors that shrink below 1 MiB no
      longer fit where larger ones were: the allocator keeps small blocks separate. If the device
      records its allocator's history, the allocations of the last capture are repeated, scaled
      to each further size, in a model of the allocator. Otherwise only kept tensors count, in
      proportion to the size. If the last capture made the pool grow, they first fill the rest of
      that growth, and then the pool grows by them. If it did not, they fit into unused memory as
      long as it has room for them besides what the size needs while it runs, which shrinks with the
      size.

    Attributes:
        tells_streams: whether the device reports its remaining streams; otherwise none are counted.
        free: what the device had left when the meter was created.
    """

    def __init__(self, device: GraphDevice) -> None:
        self._device = device
        self._history: AllocatorHistory | None = None
        if isinstance(device, HistoryDevice):
            self._history = device.begin_history()
        self._record: AllocatorRecord | None = None
        self._captures: list[CaptureAllocations] = []
        self._course: dict[tuple[int, ...], int] = {}
        self.tells_streams = device.free_streams() is not None
        self._begin = self._read()
        self.free = CaptureCost(
            streams=-self._begin.streams, num_bytes=device.memory_figures().free
        )
        self._last = _Growth(streams=0, live=0, reserved=0, outside=0)
        self._by_size: dict[int, _Growth] = {}

    @property
    def used(self) -> CaptureCost:
        """Cost of all captures together, by the last reading."""
        return self._last.cost()

    @property
    def marginal(self) -> CaptureCost:
        """Cost of a further capture, without tensors that it keeps.

        Taken from those after the first capture, which may include shared costs; else from the
        first.
        """
        growths = [*self._by_size.values()]
        further = growths[1:] or growths
        return CaptureCost(
            streams=max(growth.streams for growth in further),
            num_bytes=round(statistics.mean(growth.outside for growth in further)),
        )

    def note(self, size: int) -> CaptureCost:
        """Read the figures after the capture of a size, and return its cost."""
        before = self._last
        self.refresh()
        self._by_size[size] = self._last.since(before)
        if self._record is not None:
            allocations = CaptureAllocations.read(size, self._record, self._captures)
            self._captures.append(allocations)
        return self._by_size[size].cost()

    def forget(self, size: int) -> None:
        """Remove a size from forecasts, because its graph is about to be released."""
        del self._by_size[size]

    def refresh(self) -> None:
        """Read the figures again after a capture failed or was released."""
        self._last = self._read().since(self._begin)

    def forecast(self, sizes: Iterable[int]) -> CaptureCost:
        """Return the cost of all captures including further ones; needs at least two captures.

        See Note [forecast of captures].

        Args:
            sizes: sizes of the further captures, from the largest to the smallest.
        """
        further = tuple(sizes)
        each = self.marginal
        grown = self._modelled_growth(further)
        if grown is None:
            grown = self._growth_by_kept_tensors(further)
        return CaptureCost(
            streams=self._last.streams + each.streams * len(further),
            num_bytes=self._last.cost().num_bytes + grown + each.num_bytes * len(further),
        )

    def close(self) -> None:
        """Stop the device's recording; no capture is measured afterwards."""
        if self._history is not None:
            self._history.end()
            self._history = None

    def _modelled_growth(self, sizes: tuple[int, ...]) -> int | None:
        """Return by how many bytes the pool will grow; ``None`` if nothing was recorded."""
        if self._record is None or len(self._captures) < 2:
            return None
        reserved: int = sum(segment["total_size"] for segment in self._record.segments)
        # What was computed stands as long as captures take what it says.
        if self._course.get(sizes) != reserved:
            self._course = self._modelled_course(self._record, sizes)
        return self._course[()] - reserved

    def _modelled_course(
        self, record: AllocatorRecord, sizes: tuple[int, ...]
    ) -> dict[tuple[int, ...], int]:
        """Return the allocator's forecast memory after each of the remaining sizes."""
        model = AllocatorModel(record.segments)
        course = {sizes: model.reserved}
        before, last = self._captures[-2:]
        earlier: list[Sequence[int]] = [capture.addresses for capture in self._captures]
        for index, size in enumerate(sizes, start=1):
            earlier.append(last.repeat(model, last.scaled(size, before), earlier))
            model.empty_cache()
            course[sizes[index:]] = model.reserved
        return course

    def _growth_by_kept_tensors(self, sizes: Sequence[int]) -> int:
        first, largest = next(iter(self._by_size.items()))
        size_before, before = [*self._by_size.items()][-1]
        passing = max(largest.reserved - largest.live, 0) / first
        left_over = max(before.reserved - before.live, 0)
        live = reserved = 0.0
        for size in sizes:
            live += max(before.live, 0) * size / size_before
            if before.reserved > 0:
                reserved = max(reserved, live - left_over)
            else:
                unused = self._last.reserved - self._last.live
                reserved = max(reserved, live + passing * size - unused)
        return round(reserved)

    def _read(self) -> _Growth:
        self._device.synchronize()
        self._device.empty_cache()
        figures = self._device.memory_figures()
        if self._history is not None:
            self._record = self._history.take()
        return _Growth(
            streams=-(self._device.free_streams() or 0),
            live=figures.allocated,
            reserved=figures.reserved,
            outside=figures.total - figures.free - figures.reserved,
        )
