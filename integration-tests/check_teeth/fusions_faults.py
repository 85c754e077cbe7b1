"""Faults of fusions."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from check_teeth.fault import Fault

FUSIONS: Mapping[str, Sequence[Fault]] = {}
