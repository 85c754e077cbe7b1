"""A resolved configuration as names and values that can be compared, whatever its classes are."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Mapping
from typing import Any


def flatten(value: object, name: str) -> dict[str, str]:
    """Return each value inside an object, nested ones too, by the dotted name of its place.

    Args:
        value: Objects with attributes, mappings and sequences of plain values.
        name: Of the object.
    """
    found: dict[str, str] = {}
    _add(value, name, found, frozenset())
    return found


def differences(
    ours: Mapping[str, str], theirs: Mapping[str, str]
) -> dict[str, tuple[str | None, str | None]]:
    """Return the differences by name; None means that one side does not have the value."""
    names = sorted({*ours, *theirs})
    pairs = {name: (ours.get(name), theirs.get(name)) for name in names}
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


def _add(value: object, name: str, found: dict[str, str], parents: frozenset[int]) -> None:
    children = None if id(value) in parents else _children(value)
    if not children:
        found[name] = _text(value)
        return
    # Two classes with the same values may still behave differently.
    found[f"{name}.__class__"] = f"{type(value).__module__}.{type(value).__qualname__}"
    for key, child in children.items():
        _add(child, f"{name}.{key}", found, parents | {id(value)})


def _children(value: Any) -> dict[str, object]:
    if isinstance(value, (type, enum.Enum)) or callable(value):
        return {}
    if isinstance(value, Mapping):
        return {str(key): child for key, child in value.items()}
    if isinstance(value, (list, tuple)):
        return {str(number): child for number, child in enumerate(value)}
    children = dict(getattr(value, "__dict__", {}))
    if dataclasses.is_dataclass(value):
        children |= {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    return children


def _text(value: Any) -> str:
    if isinstance(value, (set, frozenset)):
        return repr(sorted(map(repr, value)))
    if isinstance(value, type) or type(value).__repr__ is object.__repr__ or callable(value):
        # Their own text holds an address.
        named = value if hasattr(value, "__qualname__") else type(value)
        return f"{named.__module__}.{named.__qualname__}"
    return repr(value)
