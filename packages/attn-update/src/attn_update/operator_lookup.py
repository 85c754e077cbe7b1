"""Find operators by name at the moment of use.

`npu::` operators exist only once torch_npu is imported, which this package never does.
"""

from __future__ import annotations

import torch

from attn_update.errors import UnknownOperatorError


def find_operator(name: str) -> torch._ops.OpOverload:
    """Return an operator overload by its qualified name.

    Args:
        name: ``namespace::operator`` for the default overload, or ``namespace::operator.overload``.

    Raises:
        UnknownOperatorError: No such operator is registered, mostly because the library that
            registers it is not imported.
    """
    qualified, _, overload = name.partition(".")
    namespace, _, operator = qualified.partition("::")
    try:
        packet = getattr(getattr(torch.ops, namespace), operator)
        found = getattr(packet, overload or "default")
    except AttributeError as error:
        raise UnknownOperatorError(
            f"looking up the operator {name!r}: torch knows no such operator; import the library "
            f"that registers it first (torch_npu for `npu::`)",
        ) from error
    assert isinstance(found, torch._ops.OpOverload)  # noqa: S101, SLF001
    return found
