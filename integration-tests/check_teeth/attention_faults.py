"""Faults of attention kinds."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from check_teeth.fault import Fault

ATTENTION: Mapping[str, Sequence[Fault]] = {}
