"""Faults of the runtime."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from check_teeth.contract_faults import RUNS, other, returns

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from check_teeth.fault import Fault


def _halved(before: Callable[..., Any]) -> Callable[..., Any]:
    counted = [0]

    def free_streams(self: Any) -> int:
        counted[0] += 1
        return int(before(self)) - counted[0] ** 2

    return free_streams


def _grows(before: Callable[..., Any]) -> Callable[..., Any]:
    counted = [0]

    def memory_figures(self: Any) -> Any:
        counted[0] += 1
        figures = before(self)
        return dataclasses.replace(figures, reserved=figures.reserved + (counted[0] ** 2 << 21))

    return memory_figures


RUNTIME: Mapping[str, Sequence[Fault]] = {
    "runtime.full": [RUNS],
    "runtime.breakable": [RUNS],
    "runtime.forecast": [other("free_streams", "loses more streams at each call", _halved)],
    "runtime.forecast-of-bytes": [other("memory_figures", "reserves more at each call", _grows)],
    "runtime.sleep-and-wake": [
        RUNS,
        returns("empty_cache", None),
        other("memory_figures", "reserves more at each call", _grows),
    ],
}
