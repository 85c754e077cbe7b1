"""Which overload of an operator a call means, decided from the fake values of its arguments."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

import torch

from fx_passes.normal_form.operator_signature import overload_names

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fx_passes.normal_form.operator_signature import OperatorSignature, SignatureTable
    from fx_passes.torch_internals import OpOverload, OpOverloadPacket


_INTEGERS = (int, torch.SymInt)
_REALS = (*_INTEGERS, float, torch.SymFloat)
# Schemas would take the number of a dtype as well, but then `x.view(-1)` were a cast.
_TYPES: Mapping[str, tuple[type, ...]] = MappingProxyType(
    {
        "Device": (torch.device, str),
        "Layout": (torch.layout,),
        "MemoryFormat": (torch.memory_format,),
        "ScalarType": (torch.dtype,),
        "SymInt": _INTEGERS,
        "Tensor": (torch.Tensor,),
        "bool": (bool, torch.SymBool),
        "float": _REALS,
        "int": _INTEGERS,
        "number": (*_REALS, complex, torch.SymBool),
        "str": (str,),
    }
)


def _accepts_scalar(kind: str, value: object) -> bool:
    if isinstance(value, bool) and kind not in {"bool", "number"}:
        return False
    return isinstance(value, _TYPES.get(kind, ()))


def accepts(kind: str, value: object, *, broadcast: bool = False) -> bool:
    """Return whether an argument of a schema accepts a value."""
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
