"""Validation of single configuration values."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

from npu_compile.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Collection


def name_hint(found: object, known: Collection[str], near: Collection[str] = ()) -> str:
    """Return the nearest name, also of ``near``, or else all known names, as a hint."""
    nearest = difflib.get_close_matches(str(found), [*known, *near], n=1)
    return f"did you mean {nearest[0]!r}?" if nearest else f"known: {', '.join(known)}"


def is_whole(value: object, *, least: int) -> bool:
    """Return whether a value is an integer (and not a bool) of at least a minimum."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def require_boolean(key: str, value: object) -> bool:
    """Return a value that must be true or false.

    Raises:
        ConfigError: The value is neither.
    """
    if not isinstance(value, bool):
        raise ConfigError(
            f"reading the configuration: {key} must be true or false, found {value!r}"
        )
    return value
