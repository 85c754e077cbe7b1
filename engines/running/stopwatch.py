"""Host time of the parts of an engine's step."""

from __future__ import annotations

import statistics
import time
from collections import defaultdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


class Stopwatch:
    """Adds up the microseconds of calls within one step, by name; a subclass knows where steps end.

    Attributes:
        steps: Of those that replayed a graph, the microseconds by name.
        step: The same of the current step.
    """

    def __init__(self) -> None:
        self.steps: list[dict[str, float]] = []
        self.step: dict[str, float] = defaultdict(float)

    def wrap(self, owner: Any, attribute: str, name: str, factor: float = 1.0) -> None:
        """Time a method of an object.

        Args:
            owner: The object.
            attribute: Name of the method.
            name: Of the part that its time is added to.
            factor: What the time is multiplied by; -1 takes a call out of one that contains it.
        """
        call: Callable[..., Any] = getattr(owner, attribute)

        def measured(*args: Any, **kwargs: Any) -> Any:
            begin = time.perf_counter()
            try:
                return call(*args, **kwargs)
            finally:
                self.step[name] += factor * 1e6 * (time.perf_counter() - begin)

        setattr(owner, attribute, measured)


def least_disturbed(turns: list[list[dict[str, float]]]) -> dict[str, float]:
    """Return the microseconds of each part of a step: the least of the medians of a side's turns.

    Other programs use the machine too, so the least disturbed turn counts, for every side.

    Args:
        turns: The steps of each turn, as in `Stopwatch.steps`; a part that a step lacks took none.
    """
    names = sorted({name for turn in turns for step in turn for name in step})
    return {
        name: min(statistics.median(step.get(name, 0.0) for step in turn) for turn in turns)
        for name in names
    }
