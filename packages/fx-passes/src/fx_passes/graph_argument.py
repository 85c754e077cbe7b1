"""Values in the arguments of an FX node: nodes, literals, and nests of both."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch.fx import Node

if TYPE_CHECKING:
    from collections.abc import Iterator


def nodes_in(argument: object) -> Iterator[Node]:
    """Yield every node inside an argument, depth first, repeated where it is repeated."""
    if isinstance(argument, Node):
        yield argument
    elif isinstance(argument, (list, tuple)):
        for element in argument:
            yield from nodes_in(element)
    elif isinstance(argument, dict):
        for element in argument.values():
            yield from nodes_in(element)
    elif isinstance(argument, slice):
        yield from nodes_in((argument.start, argument.stop, argument.step))


def value_of(argument: object) -> object:
    """Return the value of an argument.

    Returns:
        For a node its fake value (`meta["val"]`, else Dynamo's `meta["example_value"]`), or None
        if it has neither; for a list or tuple the values of its elements; for anything else the
        argument itself. Fake values belong to the graph and must not be changed.
    """
    if isinstance(argument, Node):
        value = argument.meta.get("val")
        return argument.meta.get("example_value") if value is None else value
    if isinstance(argument, (list, tuple)):
        return [value_of(element) for element in argument]
    return argument


def held_by(module: object, target: object) -> object:
    """Return what a `get_attr` node with a target reads from a module; None if there is nothing."""
    for name in str(target).split("."):
        module = getattr(module, name, None)
    return module


def literals_equal(left: object, right: object) -> bool:
    """Return whether two literals mean the same to an operator.

    Numbers compare by value whatever their type (`1` equals `1.0`), but a bool is not a number;
    lists and tuples compare by element; dtypes, devices, strings and None by equality. A dtype
    equals the number that an operator with an `int` argument sees in its place.
    """
    if isinstance(left, (list, tuple)):
        return (
            isinstance(right, (list, tuple))
            and len(left) == len(right)
            and all(map(literals_equal, left, right))
        )
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, (int, float)) and isinstance(right, (int, float)):
        return left == right
    if isinstance(left, torch.dtype) is not isinstance(right, torch.dtype):
        dtype, number = (left, right) if isinstance(left, torch.dtype) else (right, left)
        return (
            isinstance(dtype, torch.dtype)
            and type(number) is int
            and number_of_dtype(dtype) == number
        )
    if isinstance(left, torch.device) or isinstance(right, torch.device):
        return str(left) == str(right)
    return type(left) is type(right) and left == right


def number_of_dtype(dtype: torch.dtype) -> int:
    """Return the number that operators see where a dtype is given for an `int` argument."""
    # Torch has no table of them; an operator on numbers is given its arguments as all others are.
    number: int = torch.ops.aten.add.int(dtype, 0)
    return number
