"""Faults of the device that npu-graph-runtime's seam is made of."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from check_teeth.fault import Fault

CONTRACT: Mapping[str, Sequence[Fault]] = {}
