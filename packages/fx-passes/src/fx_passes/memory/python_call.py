"""The effect of a recorded Python call on memory."""

from __future__ import annotations

import builtins
import inspect
import math
import operator
import types
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from fx_passes.graph_argument import nodes_in
from fx_passes.torch_internals import BUILTIN_OWNERS, OpOverloadPacket

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch.fx import Node


# `iadd` and its like: those of which Python has a form that writes nothing, without the `i`.
_IN_PLACE = frozenset(
    {
        operator.setitem,
        operator.delitem,
        *(
            getattr(operator, name)
            for name in dir(operator)
            if name.startswith("__i") and hasattr(operator, f"__{name[3:]}")
        ),
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
        pure: Whether the result is new and nothing is written.
        writes: The nodes that it writes according to Python: `inplace`, `out`, the name.
        in_place: Whether the result is the written tensor.
        packet: The operator of a function that torch implements in C++, or None.
    """

    pure: bool = False
    writes: tuple[Node, ...] = ()
    in_place: bool = False
    packet: OpOverloadPacket | None = None

    @classmethod
    def of(cls, node: Node) -> PythonCall | None:
        """Read a call_function node whose target is no operator; None where torch does not own it.

        Functions of torch write only declared arguments.
        """
        try:
            return _known(node) or _of_torch(node)
        except TypeError:  # The target cannot be hashed.
            return None


def _known(node: Node) -> PythonCall | None:
    target = node.target
    if target in _IN_PLACE:
        return PythonCall(writes=tuple(nodes_in(node.args[:1])), in_place=True)
    if target in _COMPUTE or getattr(math, getattr(target, "__name__", ""), None) is target:
        return PythonCall(pure=True)
    if target in _RETURN_ARGUMENTS:
        return PythonCall()
    return None


def _of_torch(node: Node) -> PythonCall | None:
    target = node.target
    name = str(getattr(target, "__name__", "_"))
    if isinstance(target, (types.BuiltinFunctionType, types.MethodDescriptorType)):
        if not any(getattr(owner, name, None) is target for owner in BUILTIN_OWNERS):
            return None
        packet = getattr(torch.ops.aten, name, None)
        out = tuple(nodes_in(node.kwargs.get("out")))
        if isinstance(packet, OpOverloadPacket):
            return PythonCall(writes=out, packet=packet)
        if name.startswith("sym_"):
            return PythonCall(pure=True)
        return None if name.endswith("_") else PythonCall(writes=out)
    if str(getattr(target, "__module__", "")) not in _PYTHON_MODULES or name.endswith("_"):
        return None
    return _of_python_source(node, name)


def _of_python_source(node: Node, name: str) -> PythonCall | None:
    """Read a call of a function that torch defines in Python, by the names of its parameters."""
    target = node.target
    if not callable(target):
        return None
    try:
        bound = inspect.signature(target).bind(*node.args, **node.kwargs)
    except (TypeError, ValueError):
        return None
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
    return PythonCall(writes=tuple(writes), in_place=in_place)
