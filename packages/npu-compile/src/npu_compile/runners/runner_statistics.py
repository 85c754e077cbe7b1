"""Counts how a runner's steps use its capture sizes: hits, padding, and reasons of eager steps."""

from __future__ import annotations

import dataclasses
from collections import Counter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from npu_graph_runtime import RunMode

_STEPS_BETWEEN_LOOKS = 1024
# One step of so many is often.
_OFTEN = 8


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class SizeUse:
    """The steps that ran with one capture size.

    Attributes:
        size: rows after padding.
        run_mode: how steps of this size run now.
        num_exact: steps whose batch had exactly this many rows.
        num_rows: rows of all batches, before padding.
    """

    size: int
    run_mode: RunMode
    num_steps: int
    num_exact: int
    num_rows: int

    @property
    def num_padding_rows(self) -> int:
        """Total number of padding rows in all steps."""
        return self.num_steps * self.size - self.num_rows


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class RunnerStatistics:
    """How a runner has processed its batches since it was created. ``str()`` returns a table.

    Attributes:
        what: the kind of steps, such as ``decode``.
        sizes: the capture sizes that were used, ascending.
        eager: number of steps that ran eagerly without padding, by reason.
    """

    what: str
    sizes: tuple[SizeUse, ...]
    eager: Mapping[str, int]

    @property
    def num_steps(self) -> int:
        """Total number of steps."""
        return sum(use.num_steps for use in self.sizes) + sum(self.eager.values())

    def to_mapping(self) -> dict[str, Any]:
        """Return the statistics as plain data for JSON."""
        sizes = [{**dataclasses.asdict(use), "run_mode": use.run_mode.value} for use in self.sizes]
        return {"what": self.what, "sizes": sizes, "eager": dict(self.eager)}

    def __str__(self) -> str:
        lines = [f"{self.what} steps: {self.num_steps}"]
        if self.sizes:
            lines.append(f"{'size':>8}  {'run mode':<10}{'steps':>8}{'exact':>8}{'padding':>9}")
        for use in self.sizes:
            padding = use.num_padding_rows / (use.num_steps * use.size)
            lines.append(
                f"{use.size:>8}  {use.run_mode.value:<10}{use.num_steps:>8}{use.num_exact:>8}"
                f"{padding:>9.1%}"
            )
        lines += [f"  eager: {count} steps, {reason}" for reason, count in self.eager.items()]
        return "\n".join(lines)


class StepCounts:
    """Counts the steps of a runner, and finds a size that many batches miss."""

    def __init__(self, what: str) -> None:
        self._what = what
        # By rows of the batch, and by the capture size or the reason to run eagerly.
        self._counts: dict[tuple[int, int | str], int] = {}
        self._num_left = _STEPS_BETWEEN_LOOKS

    def note(self, num_rows: int, size: int | str) -> bool:
        """Count a step, and return whether it is time to look for a missed size.

        ``size`` is what it was padded to, or the reason why it ran eagerly.
        """
        at = num_rows, size
        self._counts[at] = self._counts.get(at, 0) + 1
        self._num_left -= 1
        if self._num_left:
            return False
        self._num_left = _STEPS_BETWEEN_LOOKS
        return True

    def statistics(self, mode_of: Callable[[int], RunMode]) -> RunnerStatistics:
        """Return the statistics so far; `mode_of` returns how steps of a capture size run now."""
        steps, exact, rows = Counter[int](), Counter[int](), Counter[int]()
        eager = Counter[str]()
        for (num_rows, size), count in self._counts.items():
            if isinstance(size, str):
                eager[size] += count
                continue
            steps[size] += count
            rows[size] += count * num_rows
            exact[size] += count * (num_rows == size)
        return RunnerStatistics(
            what=self._what,
            sizes=tuple(
                SizeUse(
                    size=size,
                    run_mode=mode_of(size),
                    num_steps=steps[size],
                    num_exact=exact[size],
                    num_rows=rows[size],
                )
                for size in sorted(steps)
            ),
            eager=dict(eager.most_common()),
        )

    def often_missed(self, padded_size: Callable[[int], int]) -> tuple[int, str] | None:
        """Return the number of rows of frequent batches that are mostly padding, and their count.

        Batches larger than every capture size are not included: they have a warning of their own.
        Batches whose padding depended on another rank, or on incomplete captures, are not included
        either.
        """
        padded: dict[int | str, Counter[int]] = {}
        for (num_rows, size), count in self._counts.items():
            is_padded = isinstance(size, int) and 0 < 2 * num_rows < size
            if is_padded and size == padded_size(num_rows):
                padded.setdefault(size, Counter())[num_rows] += count
        num_steps = sum(self._counts.values())
        for size, batches in padded.items():
            count = sum(batches.values())
            if count * _OFTEN >= num_steps:
                ((rows, _),) = batches.most_common(1)
                happened = f"{count} of {num_steps} steps were padded to {size} rows"
                return rows, f"{happened}, more than twice their own"
        return None
