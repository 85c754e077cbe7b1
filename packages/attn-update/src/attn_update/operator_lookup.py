"""Find operators by name at the moment of use.

`npu::` operators exist only once torch_npu is imported, which this package never does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from attn_update.errors import ArgumentError, UnknownNameError, nearest
from attn_update.torch_internals import OpOverload, schema_of

if TYPE_CHECKING:
    from collections.abc import Mapping


def find_operator(name: str) -> OpOverload:
    """Return an operator overload by its qualified name.

    Args:
        name: ``namespace::operator`` for the default overload, or ``namespace::operator.overload``.

    Raises:
        UnknownNameError: No such operator is registered, mostly because the library that
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


def check_argument_names(
    name: str, arguments: Mapping[str, object], *, managed: frozenset[str] = frozenset()
) -> None:
    """Refuse arguments that an operator does not take.

    Args:
        name: Of the operator, as `find_operator` takes it.
        arguments: By name.
        managed: Arguments that the recorder gives, and the caller must not.

    Raises:
        ArgumentError: An unknown or a managed argument.
    """
    known = {argument.name for argument in schema_of(find_operator(name)).arguments}
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
