"""Translates calls recorded by Dynamo (methods, builtins, torch functions) to operators."""

from __future__ import annotations

import operator
import types
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch

from fx_passes.graph_argument import value_of
from fx_passes.normal_form.operator_signature import overload_names
from fx_passes.torch_internals import BUILTIN_OWNERS, OpOverload, OpOverloadPacket, schema_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch.fx import Node


# The name of an operator and its arguments by position.
_Spelled = tuple[str, tuple[object, ...]]
_Spelling = Callable[..., "_Spelled | None"]

_BINARY = types.MappingProxyType(
    {
        operator.add: "add",
        operator.sub: "sub",
        operator.mul: "mul",
        operator.truediv: "div",
        operator.matmul: "matmul",
        operator.pow: "pow",
        operator.eq: "eq",
        operator.ne: "ne",
        operator.lt: "lt",
        operator.le: "le",
        operator.gt: "gt",
        operator.ge: "ge",
        operator.and_: "bitwise_and",
        operator.or_: "bitwise_or",
        operator.iadd: "add_",
        operator.isub: "sub_",
        operator.imul: "mul_",
        operator.itruediv: "div_",
        operator.neg: "neg",
    }
)
_COMMUTATIVE = frozenset({operator.add, operator.mul, operator.eq, operator.ne})
_CASTS = types.MappingProxyType(
    {
        "float": torch.float32,
        "half": torch.float16,
        "bfloat16": torch.bfloat16,
        "double": torch.float64,
        "int": torch.int32,
        "long": torch.int64,
        "bool": torch.bool,
    }
)
# Methods of tensors that torch writes in Python and that mean the operator of their name. Others do
# not: `stft` pads first, `unique_consecutive` returns what it was asked for.
_PYTHON_METHODS = frozenset({"split", "unflatten"})


@dataclass(frozen=True, kw_only=True)
class Call:
    """A call translated to an operator whose overload is still to be chosen.

    Attributes:
        packet: The operator.
        args: Positional arguments from the graph.
        kwargs: Keyword arguments from the graph.
        recorded: Whether the graph calls this operator itself, so that its arguments are known to
            fit.
    """

    packet: OpOverloadPacket
    args: tuple[object, ...]
    kwargs: Mapping[str, object] = field(default_factory=dict)
    recorded: bool = False


def _aten(name: str) -> OpOverloadPacket | None:
    packet = getattr(torch.ops.aten, name, None)
    return packet if isinstance(packet, OpOverloadPacket) else None


def _call(name: str, args: tuple[object, ...], kwargs: Mapping[str, object]) -> Call | None:
    packet = _aten(name)
    return None if packet is None else Call(packet=packet, args=args, kwargs=kwargs)


def _with_inplace(name: str) -> _Spelling:
    """Return the translation of an activation that may write its input."""

    def spelled(input: object, inplace: object = False) -> _Spelled:  # noqa: A002
        return (f"{name}_" if inplace is True else name), (input,)

    return spelled


def _softmax(
    input: object,  # noqa: A002
    dim: object = None,
    _stacklevel: object = 3,
    dtype: object = None,
) -> _Spelled | None:
    return None if dim is None else ("softmax", (input, dim, dtype))


def _dropout(
    input: object,  # noqa: A002
    p: object = 0.5,
    training: object = True,
    inplace: object = False,
) -> _Spelled:
    return ("dropout_" if inplace is True else "dropout", (input, p, training))


def _embedding(
    input: object,  # noqa: A002
    weight: object,
    padding_idx: object = None,
    max_norm: object = None,
    norm_type: object = 2.0,
    scale_grad_by_freq: object = False,
    sparse: object = False,
) -> _Spelled | None:
    del norm_type
    if max_norm is not None:
        return None
    padding = -1 if padding_idx is None else padding_idx
    return "embedding", (weight, input, padding, scale_grad_by_freq, sparse)


def _split(tensor: object, split_size_or_sections: object, dim: object = 0) -> _Spelled:
    return "split", (tensor, split_size_or_sections, dim)


_FUNCTIONS: Mapping[object, _Spelling] = types.MappingProxyType(
    {
        torch.nn.functional.silu: _with_inplace("silu"),
        torch.nn.functional.relu: _with_inplace("relu"),
        torch.nn.functional.softmax: _softmax,
        torch.nn.functional.dropout: _dropout,
        torch.nn.functional.embedding: _embedding,
        torch.split: _split,
    }
)


class CallTranslator:
    """Translates a recorded call to a call of an operator; owned by one run.

    Unknown calls are not changed: factories (a default device or a function mode would no
    longer apply), functions without a tensor argument, and Python functions not listed here.
    """

    def __init__(self) -> None:
        self._builtins: dict[object, OpOverloadPacket | None] = {}

    def translate(self, node: Node) -> Call | None:
        """Return the operator call that a node means, or None where it is none or unknown."""
        target = node.target
        if node.op == "call_method":
            return self._method(node)
        if node.op != "call_function" or isinstance(target, OpOverload):
            return None
        if isinstance(target, OpOverloadPacket):
            return Call(packet=target, args=node.args, kwargs=node.kwargs, recorded=True)
        if target in _BINARY:
            return self._binary(node)
        if target in _FUNCTIONS:
            return self._function(node)
        return self._builtin(node)

    def _binary(self, node: Node) -> Call | None:
        args = node.args
        tensors = [isinstance(value_of(argument), torch.Tensor) for argument in args]
        if not any(tensors) or node.kwargs:
            return None
        target = node.target
        if len(args) == 2 and not tensors[0]:
            if target in _COMMUTATIVE:
                args = (args[1], args[0])
            elif target is operator.truediv and args[0] == 1 and not isinstance(args[0], bool):
                return _call("reciprocal", (args[1],), {})
            else:
                return None
        return _call(_BINARY[target], args, {})  # type: ignore[index]  # membership was tested

    def _method(self, node: Node) -> Call | None:
        name = str(node.target)
        if not node.args or not isinstance(value_of(node.args[0]), torch.Tensor):
            return None
        if name in _CASTS and len(node.args) == 1 and not node.kwargs:
            return _call("to", (node.args[0], _CASTS[name]), {})
        if name == "type":
            # A cast where it is given a dtype; else it tells a name, or takes one.
            is_cast = isinstance(node.args[-1], torch.dtype) and len(node.args) == 2
            return _call("to", node.args, {}) if is_cast and not node.kwargs else None
        if name == "where":
            return self._where(node)
        if not _means_its_operator(name):
            return None
        return _call(name, node.args, node.kwargs)

    @staticmethod
    def _where(node: Node) -> Call | None:
        """The operator takes the condition first, the method the tensor whose method it is."""
        kwargs = dict(node.kwargs)
        given = list(node.args[1:])
        missing = ("condition", "other")[len(given) :]
        given += [kwargs.pop(parameter) for parameter in missing if parameter in kwargs]
        if len(given) != 2 or kwargs:
            return None
        return _call("where", (given[0], node.args[0], given[1]), {})

    def _function(self, node: Node) -> Call | None:
        try:
            spelt = _FUNCTIONS[node.target](*node.args, **node.kwargs)
        except TypeError:
            return None
        return None if spelt is None else _call(*spelt, {})

    def _builtin(self, node: Node) -> Call | None:
        target = node.target
        if target not in self._builtins:
            self._builtins[target] = self._packet_of_builtin(target)
        packet = self._builtins[target]
        if packet is None or not _has_tensor(node):
            return None
        kwargs = dict(node.kwargs)
        if "input" in kwargs:
            kwargs["self"] = kwargs.pop("input")
        return Call(packet=packet, args=node.args, kwargs=kwargs)

    @staticmethod
    def _packet_of_builtin(target: object) -> OpOverloadPacket | None:
        """Return the operator of a function that torch implements in C++."""
        if not isinstance(target, (types.BuiltinFunctionType, types.MethodDescriptorType)):
            return None
        name = target.__name__
        for owner in BUILTIN_OWNERS:
            if getattr(owner, name, None) is target:
                return _aten(name)
        return None


def _means_its_operator(name: str) -> bool:
    """Return whether a method is the operator of its name, whose first argument is the tensor."""
    method, packet = getattr(torch.Tensor, name, None), _aten(name)
    if not isinstance(method, types.MethodDescriptorType) and name not in _PYTHON_METHODS:
        return False
    if packet is None:
        return False
    return any(
        arguments and arguments[0].name == "self"
        for overload in overload_names(packet)
        if (arguments := schema_of(getattr(packet, overload)).arguments)
    )


def _has_tensor(node: Node) -> bool:
    arguments: Sequence[object] = (*node.args, *node.kwargs.values())
    return any(
        isinstance(value, torch.Tensor)
        or (isinstance(value, list) and any(isinstance(each, torch.Tensor) for each in value))
        for value in map(value_of, arguments)
    )
