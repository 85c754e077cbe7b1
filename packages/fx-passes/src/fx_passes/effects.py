"""What running a node does besides computing a value: writes, views, and order against all else."""

from __future__ import annotations

import builtins
import math
import operator
import types
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch._ops import HigherOrderOperator, OpOverload, OpOverloadPacket
from torch.fx import Node

from fx_passes.graph_argument import nodes_in, value_of
from fx_passes.graph_index import nodes_by_target
from fx_passes.operator_signature import overload_names

if TYPE_CHECKING:
    from torch._C import FunctionSchema
    from torch.fx import Graph

__all__ = ["Effect", "EffectTable"]

_INPLACE_OPERATORS = frozenset(
    {
        operator.iadd,
        operator.isub,
        operator.imul,
        operator.itruediv,
        operator.ifloordiv,
        operator.imatmul,
        operator.ipow,
        operator.iand,
        operator.ior,
        operator.ixor,
        operator.setitem,
        operator.delitem,
    }
)
_NO_CALL = frozenset({"placeholder", "get_attr", "output"})
_PURE_MODULES = frozenset({operator.__name__, "_operator", builtins.__name__, math.__name__})


@dataclass(frozen=True, kw_only=True)
class Effect:
    """The effect of one node.

    Attributes:
        writes: Nodes whose memory it may write.
        aliases: Nodes whose memory its result may share.
        barrier: Whether nothing may move across it, because it is not known what it does.
    """

    writes: tuple[Node, ...] = ()
    aliases: tuple[Node, ...] = ()
    barrier: bool = False


_NONE = Effect()


@dataclass(frozen=True)
class _SchemaEffect:
    written: tuple[tuple[int, str], ...]
    aliased: tuple[tuple[int, str], ...]


def _schema_effect(schema: FunctionSchema) -> _SchemaEffect:
    returned = any(each.alias_info is not None for each in schema.returns)
    written: list[tuple[int, str]] = []
    aliased: list[tuple[int, str]] = []
    for position, argument in enumerate(schema.arguments):
        if argument.alias_info is None:
            continue
        if argument.alias_info.is_write:
            written.append((position, argument.name))
        if returned:
            aliased.append((position, argument.name))
    return _SchemaEffect(tuple(written), tuple(aliased))


class EffectTable:
    """Tells the effect of nodes; what was read of operators' schemas is kept. Owned by one run."""

    def __init__(self) -> None:
        self._schemas: dict[object, _SchemaEffect | None] = {}
        # By identity: hashing an operator costs more than all else. The values keep targets alive.
        self._by_target: dict[int, tuple[object, bool, bool]] = {}

    def possible_writers(self, graph: Graph) -> list[Node]:
        """Return the nodes that may write something, judged by target alone, in graph order."""
        found: list[Node] = []
        for (op, target), nodes in nodes_by_target(graph).items():
            if op == "call_function":
                known = self._by_target.get(id(target)) or self._look_up(target)
                if not known[1]:
                    found += nodes
            elif op not in _NO_CALL:
                found += nodes
        return sorted(found)

    def fresh(self, node: Node) -> bool:
        """Return whether a node surely has memory of its own; a quick test by target."""
        if node.op != "call_function":
            return node.op in _NO_CALL
        return (self._by_target.get(id(node.target)) or self._look_up(node.target))[2]

    def _look_up(self, target: object) -> tuple[object, bool, bool]:
        pure, fresh = target is operator.getitem, False
        if isinstance(target, (OpOverload, OpOverloadPacket)):
            schema = self._schema(target)
            pure = schema is None or not schema.written
            fresh = schema is None
        known = self._by_target[id(target)] = (target, pure, fresh)
        return known

    def of(self, node: Node) -> Effect:
        """Return the effect of a node; where it is not known, the worst the arguments allow."""
        if node.op in _NO_CALL:
            return _NONE
        if node.op == "call_function":
            return self._of_function(node)
        if node.op == "call_method":
            return self._of_method(node)
        return _unknown(node)

    def _of_function(self, node: Node) -> Effect:
        target = node.target
        if isinstance(target, (OpOverload, OpOverloadPacket)):
            schema = self._schema(target)
            return _NONE if schema is None else _by_schema(node, schema)
        if target in _INPLACE_OPERATORS:
            first = node.args[0] if node.args else None
            written = (first,) if isinstance(first, Node) else ()
            return Effect(writes=written, aliases=written)
        if target is operator.getitem:
            return Effect(aliases=tuple(nodes_in(node.args[:1])))
        if isinstance(target, HigherOrderOperator):
            functional = str(target).startswith("auto_functionalized")
            return _NONE if functional else _unknown(node)
        return self._of_python_function(node)

    @staticmethod
    def _of_python_function(node: Node) -> Effect:
        target = node.target
        if getattr(target, "__module__", None) in _PURE_MODULES:
            return _NONE
        name = str(getattr(target, "__name__", "_"))
        writes = (
            name.endswith("_") or node.kwargs.get("inplace") or node.kwargs.get("out") is not None
        )
        if writes or not _belongs_to_torch(target, name):
            return _unknown(node)
        return Effect(aliases=tuple(nodes_in((node.args, node.kwargs))))

    @staticmethod
    def _of_method(node: Node) -> Effect:
        receiver = tuple(nodes_in(node.args[:1]))
        name = str(node.target)
        if name.endswith("_") or name in {"__setitem__", "__delitem__"}:
            return Effect(writes=receiver, aliases=receiver)
        if not hasattr(torch.Tensor, name):
            return _unknown(node)
        return Effect(aliases=receiver)

    def _schema(self, target: OpOverload | OpOverloadPacket) -> _SchemaEffect | None:
        if target not in self._schemas:
            self._schemas[target] = self._read(target)
        return self._schemas[target]

    @staticmethod
    def _read(target: OpOverload | OpOverloadPacket) -> _SchemaEffect | None:
        if isinstance(target, OpOverload):
            overloads = [target]
        else:
            overloads = [getattr(target, name) for name in overload_names(target)]
        written: set[tuple[int, str]] = set()
        aliased: set[tuple[int, str]] = set()
        for overload in overloads:
            effect = _schema_effect(overload._schema)  # noqa: SLF001 - the only road to a schema
            written |= set(effect.written)
            aliased |= set(effect.aliased)
        if not written and not aliased:
            return None
        return _SchemaEffect(tuple(sorted(written)), tuple(sorted(aliased)))


def _at(node: Node, places: tuple[tuple[int, str], ...]) -> tuple[Node, ...]:
    found: list[Node] = []
    for position, name in places:
        if position < len(node.args):
            found += nodes_in(node.args[position])
        elif name in node.kwargs:
            found += nodes_in(node.kwargs[name])
    return tuple(found)


def _by_schema(node: Node, schema: _SchemaEffect) -> Effect:
    return Effect(writes=_at(node, schema.written), aliases=_at(node, schema.aliased))


def _belongs_to_torch(target: object, name: str) -> bool:
    """Return whether a function is one of torch's own, which write only where they say so."""
    if isinstance(target, (types.BuiltinFunctionType, types.MethodDescriptorType)):
        owners = (torch, torch._C._nn, torch.Tensor)  # noqa: SLF001 - F.linear, F.gelu live there
        return any(getattr(owner, name, None) is target for owner in owners)
    return str(getattr(target, "__module__", "")) in {"torch.functional", "torch.nn.functional"}


def _unknown(node: Node) -> Effect:
    arguments = tuple(nodes_in((node.args, node.kwargs)))
    tensors = any(isinstance(value_of(each), torch.Tensor) for each in arguments)
    return Effect(writes=arguments, aliases=arguments, barrier=not tensors)
