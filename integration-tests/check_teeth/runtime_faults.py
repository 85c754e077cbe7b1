"""Faults of the runtime."""

from __future__ import annotations

from typing import TYPE_CHECKING

from check_teeth.contract_faults import RUNS, other

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


RUNTIME: Mapping[str, Sequence[Fault]] = {
    "runtime.full": [RUNS],
    "runtime.breakable": [RUNS],
    "runtime.forecast": [other("free_streams", "loses more streams at each call", _halved)],
}
