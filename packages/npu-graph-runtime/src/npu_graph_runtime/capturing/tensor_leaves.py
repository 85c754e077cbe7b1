"""The tensors inside nested arguments and outputs."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from torch import Tensor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence


def named_arguments(args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a call by their names in messages, such as ``args[0]``."""
    return {**{f"args[{index}]": value for index, value in enumerate(args)}, **kwargs}


def leaves(value: object, path: str) -> Iterator[tuple[str, object]]:
    """Yield (path, object) for each object inside lists, tuples, dicts and dataclass instances.

    Objects of other types are not inspected.

    Args:
        value: value to walk.
        path: the Python expression for ``value`` in messages, such as ``args[0]``.
    """
    if isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            yield from leaves(item, f"{path}[{index}]")
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from leaves(item, f"{path}[{key!r}]")
    elif dataclasses.is_dataclass(value) and not isinstance(value, (type, Tensor)):
        for field in dataclasses.fields(value):
            yield from leaves(getattr(value, field.name), f"{path}.{field.name}")
    else:
        yield path, value


def tensor_leaves(value: object, path: str) -> Iterator[tuple[str, Tensor]]:
    """Yield (path, tensor) for each tensor among the leaves; see :func:`leaves`."""
    for leaf_path, leaf in leaves(value, path):
        if isinstance(leaf, Tensor):
            yield leaf_path, leaf


def map_tensors(value: Any, function: Callable[[Tensor], Tensor]) -> Any:
    """Return ``value`` with each tensor inside lists, tuples, dicts and dataclasses replaced.

    Containers are rebuilt with their own type. Containers without tensors, and objects of other
    types, are returned unchanged.

    Args:
        value: nested outputs of a callable; not changed.
        function: returns the replacement of one tensor.

    Raises:
        TypeError: A container type cannot be rebuilt from its items.
    """
    if isinstance(value, Tensor):
        return function(value)
    if next(tensor_leaves(value, ""), None) is None:
        return value
    return map_items(value, lambda item: map_tensors(item, function))


def map_items(value: Any, function: Callable[[Any], Any]) -> Any:
    """Return a new container of the same type with other items.

    Raises:
        TypeError: The type cannot be rebuilt from its items.
    """
    kind: Callable[..., Any] = type(value)
    if isinstance(value, (list, tuple)):
        items = [function(item) for item in value]
        if kind is list:
            return items
        return kind(*items) if hasattr(value, "_fields") else kind(items)
    if isinstance(value, dict):
        pairs = {key: function(item) for key, item in value.items()}
        return pairs if kind is dict else kind(pairs)
    fields = {
        field.name: function(getattr(value, field.name))
        for field in dataclasses.fields(value)
        if field.init
    }
    return dataclasses.replace(value, **fields)
