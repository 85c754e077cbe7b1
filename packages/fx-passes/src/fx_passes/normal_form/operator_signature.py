"""The schema of an operator, in the form in which calls are compared and bound."""

from __future__ import annotations

import re
from dataclasses import dataclass
from inspect import Parameter
from types import MappingProxyType, NoneType
from typing import TYPE_CHECKING

import torch

from fx_passes.errors import PatternError
from fx_passes.graph_argument import number_of_dtype
from fx_passes.torch_internals import OpOverload, OpOverloadPacket, schema_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch.fx import Node


_SYMBOLIC_LIST = re.compile(r"SymInt\[(\d+)\]\??\s+(\w+)")
_INTEGER_ARGUMENTS = frozenset({"int", "Optional[int]"})
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


MISSING = Parameter.empty
"""The mark for an argument that has no default."""


@dataclass(frozen=True, kw_only=True)
class OperatorSignature:
    """The parts of an operator's schema that are needed to bind a call.

    Attributes:
        names: Names of all arguments, in the order of the schema.
        types: Their types as printed in the schema (`Tensor`, `Optional[Tensor]`, `List[int]`).
        defaults: Their defaults; `MISSING` if the argument is required.
        positional: Number of arguments that may be positional (the first ones).
        broadcast: Whether a single number is accepted for a list (`int[1] dim`).
        required: Number of required arguments (the first ones).
        repeated: By the position of an argument, the length of a list of symbolic numbers for
            which Python accepts a single number (`SymInt[2] padding`). Calls of operators only
            accept the list.
    """

    names: tuple[str, ...]
    types: tuple[str, ...]
    defaults: tuple[object, ...]
    positional: int
    broadcast: tuple[bool, ...]
    required: int
    repeated: Mapping[int, int]

    @classmethod
    def of(cls, operator: OpOverload) -> OperatorSignature:
        """Read the signature of an operator."""
        arguments = schema_of(operator).arguments
        lengths: dict[str, int] = {}
        if any(getattr(argument, "N", None) is not None for argument in arguments):
            # The types of arguments do not tell symbolic numbers from plain ones.
            found = _SYMBOLIC_LIST.findall(str(schema_of(operator)))
            lengths = {name: int(length) for length, name in found}
        required = [i for i, each in enumerate(arguments) if not each.has_default_value()]
        return cls(
            names=tuple(argument.name for argument in arguments),
            types=tuple(str(argument.real_type) for argument in arguments),
            defaults=tuple(
                argument.default_value if argument.has_default_value() else MISSING
                for argument in arguments
            ),
            positional=sum(not argument.kwarg_only for argument in arguments),
            broadcast=tuple(getattr(argument, "N", None) is not None for argument in arguments),
            required=required[-1] + 1 if required else 0,
            repeated={
                position: lengths[argument.name]
                for position, argument in enumerate(arguments)
                if argument.name in lengths
            },
        )

    def bind(
        self, args: Sequence[object], kwargs: Mapping[str, object]
    ) -> tuple[object, ...] | None:
        """Return all arguments in the order of the schema, defaults filled in.

        Returns:
            One value for each of `names`, or None when the call does not fit the schema.
        """
        given = len(args)
        if given > self.positional:
            return None
        if not kwargs and given >= self.required:
            return (*args, *self.defaults[given:])
        bound = [*args, *self.defaults[given:]]
        for name, value in kwargs.items():
            try:
                position = self.names.index(name)
            except ValueError:
                return None
            if position < given:
                return None
            bound[position] = value
        return None if any(value is MISSING for value in bound) else tuple(bound)

    def in_normal_form(self, bound: tuple[object, ...]) -> tuple[object, ...]:
        """Return bound arguments as ATen graphs have them, where Dynamo graphs may have others.

        A list stands where a single number stood for one, and a number in place of a dtype if the
        schema expects a number.
        """
        normal = list(bound)
        if torch.dtype in map(type, bound):
            for position, value in enumerate(bound):
                if type(value) is torch.dtype and self.types[position] in _INTEGER_ARGUMENTS:
                    normal[position] = number_of_dtype(value)
        for position, length in self.repeated.items():
            value = bound[position]
            if not isinstance(value, (list, tuple, NoneType)):
                normal[position] = [value] * length
        return tuple(normal)

    def minimal(self, bound: Sequence[object]) -> tuple[tuple[object, ...], dict[str, object]]:
        """Return `(args, kwargs)` of a bound call in normal form.

        Arguments that can be given by position are, up to the last that differs from its default;
        keyword-only arguments are given by name where they differ from theirs.
        """
        last = self.positional
        while last and self._is_default(last - 1, bound[last - 1]):
            last -= 1
        kwargs = {
            self.names[position]: bound[position]
            for position in range(self.positional, len(self.names))
            if not self._is_default(position, bound[position])
        }
        return tuple(bound[:last]), kwargs

    def _is_default(self, position: int, value: object) -> bool:
        default = self.defaults[position]
        return type(value) is type(default) and value == default


class SignatureTable:
    """Signatures of operators, read once; owned by one run and thrown away with it."""

    def __init__(self) -> None:
        self._signatures: dict[int, tuple[OpOverload, OperatorSignature]] = {}
        self._named: dict[str, OpOverload] = {}

    def of(self, operator: OpOverload) -> OperatorSignature:
        """Return the signature of an operator."""
        # By identity: hashing an operator costs more than the rest. The value keeps it alive.
        known = self._signatures.get(id(operator))
        if known is None:
            known = self._signatures[id(operator)] = (operator, OperatorSignature.of(operator))
        return known[1]

    def find(self, name: str) -> OpOverload | None:
        """Return the operator with a qualified name; see `find_operator`."""
        found = self._named.get(name) or find_operator(name)
        if found is not None:
            self._named[name] = found
        return found

    def arguments(self, node: Node) -> tuple[object, ...] | None:
        """Return the bound arguments of a call of an `OpOverload`, or None if it does not bind."""
        target = node.target
        if not isinstance(target, OpOverload):
            return None
        return self.of(target).bind(node.args, node.kwargs)


def overload_names(packet: OpOverloadPacket) -> list[str]:
    """Return the names of a packet's overloads that do not write to an `out` argument."""
    names: list[str] = packet.overloads()  # type: ignore[no-untyped-call]
    return [name for name in names if "out" not in name]


def find_operator(name: str) -> OpOverload | None:
    """Return the operator with a qualified name, or None when this process has none.

    Args:
        name: `namespace::operator` for the default overload, or the only one;
            `namespace::operator.overload` for another.

    Raises:
        PatternError: The name has no namespace.
    """
    namespace, separator, rest = name.partition("::")
    if not separator:
        raise PatternError(
            f"looking up the operator {name!r}: expected `namespace::operator`, as in "
            "`npu::npu_rms_norm`"
        )
    operator, _, overload = rest.partition(".")
    packet = getattr(getattr(torch.ops, namespace), operator, None)
    if not isinstance(packet, OpOverloadPacket):
        return None
    overloads = overload_names(packet)
    if not overload:
        overload = "default" if "default" in overloads or len(overloads) != 1 else overloads[0]
    found = getattr(packet, overload, None)
    return found if isinstance(found, OpOverload) else None


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
        if bound is not None and all(
            value is default or accepts(kind, value, broadcast=broadcast)
            for kind, value, default, broadcast in zip(
                signature.types, bound, signature.defaults, signature.broadcast, strict=True
            )
        ):
            return overload
    return None
