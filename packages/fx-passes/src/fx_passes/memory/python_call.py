"""The effect of a recorded Python call on memory."""

from __future__ import annotations

import builtins
import inspect
import math
import operator
import types
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import torch

from fx_passes.graph_argument import nodes_in
from fx_passes.torch_internals import BUILTIN_OWNERS, OpOverloadPacket

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch.fx import Node


_IN_PLACE = frozenset(
    {
        operator.iadd,
        operator.iand,
        operator.iconcat,
        operator.ifloordiv,
        operator.ilshift,
        operator.imatmul,
        operator.imod,
        operator.imul,
        operator.ior,
        operator.ipow,
        operator.irshift,
        operator.isub,
        operator.itruediv,
        operator.ixor,
        operator.setitem,
        operator.delitem,
    }
)
# They give a new value, of tensors too; other builtins may give back what they were given.
_COMPUTE = frozenset(
    {
        operator.add,
        operator.and_,
        operator.eq,
        operator.floordiv,
        operator.ge,
        operator.gt,
        operator.inv,
        operator.invert,
        operator.le,
        operator.lshift,
        operator.lt,
        operator.matmul,
        operator.mod,
        operator.mul,
        operator.ne,
        operator.neg,
        operator.not_,
        operator.or_,
        operator.pow,
        operator.rshift,
        operator.sub,
        operator.truediv,
        operator.truth,
        operator.xor,
        builtins.bool,
        builtins.float,
        builtins.int,
        builtins.isinstance,
        builtins.len,
        builtins.round,
    }
)
_RETURN_ARGUMENTS = frozenset(
    {
        operator.abs,
        operator.attrgetter,
        operator.concat,
        operator.index,
        operator.itemgetter,
        operator.pos,
        builtins.abs,
        builtins.dict,
        builtins.list,
        builtins.max,
        builtins.min,
        builtins.reversed,
        builtins.slice,
        builtins.sum,
        builtins.tuple,
        builtins.zip,
    }
)
_PYTHON_MODULES = frozenset({"torch.functional", "torch.nn.functional", "torch._jit_internal"})
# Parameters of functions of torch.nn.functional that name what is written, and when.
_KEEPS: Mapping[str, tuple[str, tuple[str, ...]]] = types.MappingProxyType(
    {
        "batch_norm": ("training", ("running_mean", "running_var")),
        "instance_norm": ("use_input_stats", ("running_mean", "running_var")),
        "embedding": ("max_norm", ("weight",)),
        "embedding_bag": ("max_norm", ("weight",)),
    }
)


@dataclass(frozen=True, kw_only=True)
class PythonCall:
    """A call of a function that is not an operator.

    Attributes:
        kind: `pure` if the result is new and nothing is written; `attribute` for `getattr`;
            `torch` if torch defines it, so that it writes only declared arguments; else `unknown`.
        writes: The nodes that it writes according to Python: `inplace`, `out`, the name.
        in_place: Whether the result is the written tensor.
        packet: The operator of a function that torch implements in C++, or None.
    """

    kind: Literal["pure", "attribute", "torch", "unknown"]
    writes: tuple[Node, ...] = ()
    in_place: bool = False
    packet: OpOverloadPacket | None = None

    @classmethod
    def of(cls, node: Node) -> PythonCall:
        """Read a call_function node whose target is no operator."""
        target = node.target
        if target is getattr:
            return cls(kind="attribute")
        try:
            return _known(node) or _of_torch(node)
        except TypeError:  # The target cannot be hashed.
            return cls(kind="unknown")


def _known(node: Node) -> PythonCall | None:
    target = node.target
    if target in _IN_PLACE:
        return PythonCall(kind="torch", writes=tuple(nodes_in(node.args[:1])), in_place=True)
    if target in _COMPUTE or getattr(math, getattr(target, "__name__", ""), None) is target:
        return PythonCall(kind="pure")
    if target in _RETURN_ARGUMENTS:
        return PythonCall(kind="torch")
    return None


def _of_torch(node: Node) -> PythonCall:
    target = node.target
    name = str(getattr(target, "__name__", "_"))
    if isinstance(target, (types.BuiltinFunctionType, types.MethodDescriptorType)):
        if not any(getattr(owner, name, None) is target for owner in BUILTIN_OWNERS):
            return PythonCall(kind="unknown")
        packet = getattr(torch.ops.aten, name, None)
        out = tuple(nodes_in(node.kwargs.get("out")))
        if isinstance(packet, OpOverloadPacket):
            return PythonCall(kind="torch", writes=out, packet=packet)
        if name.startswith("sym_"):
            return PythonCall(kind="pure")
        return PythonCall(kind="unknown" if name.endswith("_") else "torch", writes=out)
    if str(getattr(target, "__module__", "")) not in _PYTHON_MODULES or name.endswith("_"):
        return PythonCall(kind="unknown")
    return _of_python_source(node, name)


def _of_python_source(node: Node, name: str) -> PythonCall:
    """Read a call of a function that torch defines in Python, by the names of its parameters."""
    target = node.target
    if not callable(target):
        return PythonCall(kind="unknown")
    try:
        bound = inspect.signature(target).bind(*node.args, **node.kwargs)
    except (TypeError, ValueError):
        return PythonCall(kind="unknown")
    bound.apply_defaults()
    # Of functions that dispatch by a flag, only the parameters of the dispatcher are known.
    given = {**bound.arguments, **node.kwargs}
    first = next(iter(bound.arguments.values()), None)
    in_place = given.get("inplace", False) is not False
    writes = [*nodes_in(given.get("out"))]
    if in_place:
        writes += nodes_in(first)
    flag, kept = _KEEPS.get(name, ("", ()))
    if flag and given.get(flag) not in (None, False):
        writes += [each for parameter in kept for each in nodes_in(given.get(parameter))]
    return PythonCall(kind="torch", writes=tuple(writes), in_place=in_place)
