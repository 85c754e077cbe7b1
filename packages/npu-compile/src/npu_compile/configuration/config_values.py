"""Validation of single configuration values."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

from npu_compile.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Collection


def refusal(problem: str) -> ConfigError:
    """Return the error that says why a configuration cannot be read."""
    return ConfigError(f"reading the configuration: {problem}")


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
        raise refusal(f"{key} must be true or false, found {value!r}")
    return value


def require_positive(key: str, value: object) -> None:
    """Check that a value is whole and at least 1.

    Raises:
        ConfigError: It is not.
    """
    if not is_whole(value, least=1):
        raise refusal(f"{key} must be whole and at least 1, found {value!r}")
