"""Documented dtypes that no call of the conformance tests can be given by replacing dtypes."""

from __future__ import annotations

COMBINED: dict[str, str] = {}
"""`operator argument dtype` -> why."""
