"""Faults of times."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from check_teeth.fault import Fault

TIMES: Mapping[str, Sequence[Fault]] = {}
