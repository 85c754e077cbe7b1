"""Single values of a configuration: what is said of a wrong one."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

from npu_compile.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Collection


def name_hint(found: object, known: Collection[str], near: Collection[str] = ()) -> str:
    """Return what helps where a name is not known: the nearest one, or else all.

    Args:
        found: what was given.
        known: the names to list.
        near: further names that may be the nearest one.
    """
    nearest = difflib.get_close_matches(str(found), [*known, *near], n=1)
    return f"did you mean {nearest[0]!r}?" if nearest else f"known: {', '.join(known)}"


def is_whole(value: object, *, least: int) -> bool:
    """Return whether a value is a whole number, and no truth value, of at least so much."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def require_boolean(key: str, value: object) -> bool:
    """Return a value that has to be true or false.

    Raises:
        ConfigError: it is neither.
    """
    if not isinstance(value, bool):
        raise ConfigError(
            f"reading the configuration: {key} must be true or false, found {value!r}"
        )
    return value
