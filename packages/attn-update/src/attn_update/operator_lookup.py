"""Finds operators by name when they are used.

`npu::` operators exist only after torch_npu is imported, which this package never does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from attn_update.errors import ArgumentError, UnknownNameError, nearest
from attn_update.torch_internals import OpOverload, schema_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def find_operator(name: str) -> OpOverload:
    """Return an operator overload by its qualified name.

    Args:
        name: ``namespace::operator`` for the default overload, or ``namespace::operator.overload``.

    Raises:
        UnknownNameError: No such operator is registered, usually because the library that
            registers it is not imported.
    """
    qualified, _, overload = name.partition(".")
    namespace, _, operator = qualified.partition("::")
    try:
        packet = getattr(getattr(torch.ops, namespace), operator)
        found = getattr(packet, overload or "default")
    except AttributeError as error:
        raise UnknownNameError(
            f"looking up the operator {name!r}: torch knows no such operator; import the library "
            f"that registers it first (torch_npu for `npu::`, vLLM-Ascend for `_C_ascend::`)",
        ) from error
    assert isinstance(found, OpOverload)  # noqa: S101
    return found


def argument_names(operator: OpOverload) -> list[str]:
    """Return the names of the arguments of an operator, in order."""
    return [argument.name for argument in schema_of(operator).arguments]


def bind_arguments(
    operator: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the arguments of a call of an operator by name, without defaults."""
    return {**dict(zip(argument_names(operator), args, strict=False)), **kwargs}


def check_argument_names(
    name: str, arguments: Mapping[str, object], *, managed: frozenset[str] = frozenset()
) -> None:
    """Reject arguments that an operator does not have.

    ``managed`` are passed by the recorder, and not by the caller.

    Raises:
        ArgumentError: An argument is unknown or managed.
    """
    known = set(argument_names(find_operator(name)))
    for argument in sorted(arguments.keys() & managed):
        raise ArgumentError(
            f"checking the arguments of {name}: {argument!r} is allocated by the recorder; leave "
            f"it out",
        )
    for argument in sorted(arguments.keys() - known):
        raise ArgumentError(
            f"checking the arguments of {name}: it has no argument {argument!r}; "
            f"{nearest(argument, known - managed)}",
        )
