"""Decides during capture which sizes fit the limits for streams and memory."""

from __future__ import annotations

import dataclasses
from types import MappingProxyType
from typing import TYPE_CHECKING

from npu_graph_runtime.capture_sizes import CaptureSizes
from npu_graph_runtime.errors import CaptureSizeError
from npu_graph_runtime.planning.capture_cost import (
    CaptureBudget,
    CaptureCost,
    readable_bytes,
)
from npu_graph_runtime.planning.capture_meter import CaptureMeter

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from npu_graph_runtime.device import GraphDevice


# Of the memory that two captures forecast: how far forecasts are off, by the tests of ten shapes.
_SPARE_BYTES = 0.05


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class CapturePlan:
    """The knowledge and decisions of a planner at one time.

    Attributes:
        budget: limits for the captures.
        captured: captured sizes with the cost of each, in the order of capture.
            The first one created the memory pool that all share.
        planned: sizes still to be captured, in order.
        dropped: dropped sizes, each with a sentence that gives the reason.
        used: cost of the captures so far.
        forecast: total cost after all planned sizes are captured; ``None`` before two
            sizes are captured, if there are two to capture.
    """

    budget: CaptureBudget
    captured: Mapping[int, CaptureCost]
    planned: tuple[int, ...]
    dropped: Mapping[int, str]
    used: CaptureCost
    forecast: CaptureCost | None

    @property
    def sizes(self) -> tuple[int, ...]:
        """The sizes that are captured or will be, from the smallest to the largest."""
        return tuple(sorted({*self.captured, *self.planned}))

    def __str__(self) -> str:
        number = len(self.captured) + len(self.planned) + len(self.dropped)
        kept = ", ".join(map(str, self.sizes)) or "none"
        forecast = "not known yet" if self.forecast is None else self.forecast
        lines = [
            f"capture sizes: {len(self.sizes)} of {number} ({kept})",
            f"budget: {self.budget}; used: {self.used}; forecast: {forecast}",
        ]
        for name, (size, cost) in zip(("first", "second"), self.captured.items(), strict=False):
            lines.append(f"{name} size, {size}: {cost}")
        lines += [f"size {size} dropped: {self.dropped[size]}" for size in sorted(self.dropped)]
        return "\n".join(lines)


class CapturePlanner:
    """Measures the first captures of a session, which stay, and plans the others from them.

    It captures nothing itself. Create it inside the capture session, before the first capture::

        planner = CapturePlanner(device, sizes, budget=CaptureBudget(streams=1000))
        while (size := planner.next_size()) is not None:
            capture(size)
            if not planner.captured(size):
                release(size)

    It returns sizes from the largest to the smallest, and has a forecast after the second. Of the
    remaining sizes it then keeps as many as its forecast says will fit the budget, evenly spaced by
    position, including the smallest. Capture sizes are denser for small batches, so even spacing by
    position accounts for the cost of padding. For streams it does so after the first capture, so
    that the second one stays. Every further capture is measured too, and the rest is planned again.
    Each size is returned once, so none is captured twice.

    With the forecast, an engine can size its key/value cache before the remaining graphs are
    captured. Graphs that contain addresses of the cache, as those of run mode ``FULL`` do, need its
    addresses reserved before the first capture; those of segments between eager attention do not.

    The budget applies to graphs that stay. Whether a single size exceeds it is only known after its
    capture; it must then be released, and is dropped like the others.

    Args:
        device: device of the graphs.
        sizes: candidate sizes.
        budget: limits for the captures, from now on.

    Raises:
        CaptureSizeError: There is no size, or one below 1; or the budget limits streams on a device
            that does not report how many it has left.
    """

    def __init__(
        self, device: GraphDevice, sizes: Iterable[int], *, budget: CaptureBudget | None = None
    ) -> None:
        self._budget = CaptureBudget() if budget is None else budget
        self._pending = list(CaptureSizes(sizes).largest_first())
        self._captured: dict[int, CaptureCost] = {}
        self._dropped: dict[int, str] = {}
        self._meter = CaptureMeter(device)
        self._asked: int | None = None
        self._has_released = False
        self._most_streams = self._budget.streams
        if self._meter.tells_streams:
            limits = (self._budget.streams, self._meter.free.streams)
            self._most_streams = min(limit for limit in limits if limit is not None)
        elif self._most_streams is not None:
            raise CaptureSizeError(
                f"planning captures on {device.name} within {self._most_streams} streams: the "
                "device does not tell how many it has left; leave streams out of the budget"
            )
        limits = (self._budget.num_bytes, self._meter.free.num_bytes)
        self._most_bytes = min(limit for limit in limits if limit is not None)

    def next_size(self) -> int | None:
        """Return the size to capture now, or ``None`` when nothing is left to capture.

        Raises:
            CaptureSizeError: The result of the previous size was not reported.
        """
        if self._asked is not None:
            raise CaptureSizeError(
                f"planning the next capture: nothing was said of size {self._asked}, expected "
                "captured() or refused() behind each size"
            )
        if self._has_released:
            self._has_released = False
            self._meter.refresh()
            self._thin()
        if not self._pending:
            self._meter.close()
            return None
        self._asked = self._pending.pop(0)
        return self._asked

    def captured(self, size: int) -> bool:
        """Measure the capture of the requested size, and plan the remaining ones.

        Returns:
            Whether its graph stays. If not, release it before anything else, because with it the
            captures exceed the budget.

        Raises:
            CaptureSizeError: Another size was requested.
        """
        self._answer(size)
        cost = self._meter.note(size)
        if self._fits(self._meter.used):
            self._captured[size] = cost
            self._thin()
            return True
        self._meter.forget(size)
        self._has_released = True
        self._dropped[size] = (
            f"its capture took {cost}, {self._meter.used} with those before it, more than "
            f"{self._limits()}"
        )
        if len(self._captured) < 2:
            self._drop_those_like(size, cost)
        return False

    def refused(self, size: int, error: Exception) -> None:
        """Drop a size that the device could not capture, and plan the remaining ones.

        Args:
            size: the requested size.
            error: the reason.

        Raises:
            CaptureSizeError: Another size was requested.
        """
        self._answer(size)
        self._dropped[size] = f"the device refused its capture: {error}"
        self._meter.refresh()
        self._thin()

    @property
    def plan(self) -> CapturePlan:
        """The current knowledge and decisions."""
        forecast: CaptureCost | None = None
        if not self._pending and self._asked is None:
            forecast = self._meter.used
        elif len(self._captured) > 1:
            forecast = self._meter.forecast(self._pending)
        return CapturePlan(
            budget=self._budget,
            captured=MappingProxyType(dict(self._captured)),
            planned=tuple(self._pending),
            dropped=MappingProxyType(dict(self._dropped)),
            used=self._meter.used,
            forecast=forecast,
        )

    def _answer(self, size: int) -> None:
        if size != self._asked:
            raise CaptureSizeError(
                f"planning captures: told of size {size}, expected {self._asked}, which was asked "
                "for; capture the sizes that next_size() returns, in its order"
            )
        self._asked = None

    def _thin(self) -> None:
        """Drop pending sizes until the others are forecast to fit."""
        if not self._captured:
            return
        # So that what was decided by the first forecast need not be taken back for its error.
        spare = _SPARE_BYTES if len(self._captured) == 2 else 0.0
        if self._fits(self._forecast(self._pending), spare=spare):
            return
        number, too_many = 0, len(self._pending)
        while too_many - number > 1:
            tried = (number + too_many) // 2
            if self._fits(self._forecast(evenly(self._pending, tried)), spare=spare):
                number = tried
            else:
                too_many = tried
        kept = evenly(self._pending, number)
        num_all = len(self._captured) + len(self._pending) + len(self._dropped)
        used = self._meter.used
        for size in self._take_pending():
            if size in kept:
                self._pending.append(size)
                continue
            total = self._forecast((size,))
            self._dropped[size] = (
                f"it would take about {total.streams - used.streams} streams and "
                f"{readable_bytes(total.num_bytes - used.num_bytes)}, and {self._limits()} holds "
                f"{len(self._captured) + number} of {num_all} sizes"
            )

    def _forecast(self, sizes: Sequence[int]) -> CaptureCost:
        if len(self._captured) > 1:
            return self._meter.forecast(sizes)
        # What the first capture took of memory does not say what others add.
        used = self._meter.used
        streams = used.streams + self._meter.marginal.streams * len(sizes)
        return CaptureCost(streams=streams, num_bytes=used.num_bytes)

    def _drop_those_like(self, size: int, cost: CaptureCost) -> None:
        """Drop the pending sizes that must also exceed the budget, judged by one that did."""
        is_first = not self._captured
        by_streams = self._most_streams is not None and cost.streams > self._most_streams
        for other in self._take_pending():
            # Without what every size takes, so no size that would fit is dropped.
            least = cost.num_bytes * other / size
            if not is_first or by_streams:
                self._dropped[other] = f"size {size}, which takes no more, is above the budget"
            elif least > self._most_bytes:
                self._dropped[other] = (
                    f"it would take {readable_bytes(round(least))} by what size {size} took, more "
                    f"than {self._limits()}"
                )
            else:
                self._pending.append(other)

    def _take_pending(self) -> tuple[int, ...]:
        taken, self._pending = tuple(self._pending), []
        return taken

    def _fits(self, cost: CaptureCost, *, spare: float = 0.0) -> bool:
        has_streams = self._most_streams is None or cost.streams <= self._most_streams
        return has_streams and cost.num_bytes * (1 + spare) <= self._most_bytes

    def _limits(self) -> str:
        """Return the limits of the captures, for sentences."""
        streams = "" if self._most_streams is None else f"{self._most_streams} streams and "
        return f"the budget of {streams}{readable_bytes(self._most_bytes)}"


def evenly(sizes: Sequence[int], number: int) -> tuple[int, ...]:
    """Return some of the ordered sizes, including the last, spaced as evenly as possible."""
    return tuple(sizes[-(-len(sizes) * place // number) - 1] for place in range(1, number + 1))
