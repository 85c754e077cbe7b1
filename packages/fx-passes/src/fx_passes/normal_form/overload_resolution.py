"""Which overload of an operator a call means, decided from the fake values of its arguments."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from fx_passes.normal_form.operator_signature import overload_names

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fx_passes.normal_form.operator_signature import OperatorSignature, SignatureTable
    from fx_passes.torch_internals import OpOverload, OpOverloadPacket


def _is_integer(value: object) -> bool:
    return isinstance(value, (int, torch.SymInt)) and not isinstance(value, bool)


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float, complex, torch.SymInt, torch.SymFloat, torch.SymBool))


def _accepts_scalar(kind: str, value: object) -> bool:
    if kind == "Tensor":
        return isinstance(value, torch.Tensor)
    if kind in {"int", "SymInt"}:
        return _is_integer(value)
    if kind == "float":
        return isinstance(value, (float, torch.SymFloat)) or _is_integer(value)
    if kind == "bool":
        return isinstance(value, (bool, torch.SymBool))
    if kind == "number":
        return _is_number(value)
    return _accepts_named(kind, value)


def _accepts_named(kind: str, value: object) -> bool:
    if kind == "ScalarType":
        # Schemas would take its number as well, but then `x.view(-1)` were a cast.
        return isinstance(value, torch.dtype)
    if kind == "Device":
        return isinstance(value, (torch.device, str))
    if kind == "Layout":
        return isinstance(value, torch.layout)
    if kind == "MemoryFormat":
        return isinstance(value, torch.memory_format)
    return kind == "str" and isinstance(value, str)


def accepts(kind: str, value: object, *, broadcast: bool = False) -> bool:
    """Return whether an argument of a schema accepts a value.

    Args:
        kind: The argument's type as printed in the schema.
        value: A tensor, a symbolic number, a literal or a list of these.
        broadcast: Whether a single number is accepted for a list.
    """
    if kind.startswith("Optional["):
        return value is None or accepts(kind[9:-1], value, broadcast=broadcast)
    if kind.startswith("List["):
        element = kind[5:-1]
        if isinstance(value, (list, tuple)):
            return all(accepts(element, each) for each in value)
        return broadcast and _accepts_scalar(element, value)
    return _accepts_scalar(kind, value)


def _fits(signature: OperatorSignature, bound: Sequence[object]) -> bool:
    return all(
        value is default or accepts(kind, value, broadcast=broadcast)
        for kind, value, default, broadcast in zip(
            signature.types, bound, signature.defaults, signature.broadcast, strict=True
        )
    )


def resolve_overload(
    packet: OpOverloadPacket,
    args: Sequence[object],
    kwargs: Mapping[str, object],
    signatures: SignatureTable,
) -> OpOverload | None:
    """Return the overload of a packet that matches a call, or None if there is none.

    Args:
        packet: The operator with all its overloads, tried in the order of their registration.
        args: Values of the positional arguments: tensors, symbolic numbers, literals.
        kwargs: Values of the keyword arguments.
        signatures: Cache of signatures.

    Overloads that write to an `out` argument are ignored, and those for TorchScript's own lists
    never match a tensor.
    """
    for name in overload_names(packet):
        overload: OpOverload = getattr(packet, name)
        signature = signatures.of(overload)
        bound = signature.bind(args, kwargs)
        if bound is not None and _fits(signature, bound):
            return overload
    return None
