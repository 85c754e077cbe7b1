"""Effects of running a node besides computing a value: writes, views, and ordering."""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch.fx import Node

from fx_passes.graph_argument import nodes_in, value_of
from fx_passes.memory.python_call import PythonCall
from fx_passes.memory.undeclared import (
    ALWAYS_VIEWS,
    COMPUTES,
    RETURNS_MEMORY_OF_ARGUMENTS,
    UNDECLARED_RESULTS,
    UNDECLARED_WRITES,
)
from fx_passes.torch_internals import (
    LOG_API_USAGE,
    HigherOrderOperator,
    OpOverload,
    OpOverloadPacket,
    has_kernel,
    nodes_by_target,
    schema_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from torch.fx import Graph

    from fx_passes.torch_internals import FunctionSchema


PREPARED_VALUES = "_fx_passes_prepared_values_"
"""What the names of modules begin with that give values prepared of weights."""

_NO_CALL = frozenset({"placeholder", "get_attr", "output"})
# They return nothing and write nothing, but nothing depends on when they run either.
_CHECKS = ("aten::_assert", "aten::sym_constrain", "aten::_functional_assert")
_PURE_HIGHER_ORDER = ("auto_functionalized", "triton_kernel_wrapper_functional")
_VIEW_ATTRIBUTES = frozenset({"T", "mT", "data"})
# Of a tensor; all other attributes may be its memory.
_DESCRIPTIONS = frozenset(
    {
        "device",
        "dtype",
        "is_cpu",
        "is_cuda",
        "is_meta",
        "is_sparse",
        "itemsize",
        "layout",
        "names",
        "nbytes",
        "ndim",
        "requires_grad",
        "shape",
    }
)


@dataclass(frozen=True, kw_only=True)
class Effect:
    """The effect of one node.

    Attributes:
        writes: Nodes whose memory it may write.
        aliases: Nodes whose memory its result may share.
        view_of: The node of `aliases` whose memory its result certainly is or views; None if it
            may be a copy.
        hidden: Whether it is an operator whose schema declares none of its writes, so that graphs
            and patterns treat it as a function of its arguments.
        barrier: Whether nothing may move across it, because its effect is unknown.
    """

    writes: tuple[Node, ...] = ()
    aliases: tuple[Node, ...] = ()
    view_of: Node | None = None
    hidden: bool = False
    barrier: bool = False


_NONE = Effect()
_BARRIER = Effect(barrier=True)


@dataclass(frozen=True)
class _Place:
    """The position of an operator's argument, or -1 if it is keyword-only."""

    position: int
    name: str


@dataclass(frozen=True)
class _OperatorEffect:
    written: tuple[_Place, ...]
    aliased: tuple[_Place, ...]
    # Whether the result is surely the memory of the first argument.
    view: bool
    # Whether the result may be an argument or a copy, as a cast to the same or another dtype is.
    may_copy: bool
    # Whether something is written and the schema says of none of it.
    hidden: bool
    barrier: bool


class EffectTable:
    """Returns the effects of nodes and caches operators' schemas. Owned by one run."""

    def __init__(self) -> None:
        self._operators: dict[object, _OperatorEffect | None] = {}
        # By identity: hashing an operator costs more than all else. The values keep targets alive.
        self._pure: dict[int, tuple[object, bool]] = {}
        self._fresh: dict[int, tuple[object, bool]] = {}
        self._views: dict[int, tuple[object, bool]] = {}

    def possible_writers(self, graph: Graph) -> list[Node]:
        """Return the nodes that may write something, judged by target alone, in graph order."""
        found: list[Node] = []
        for (op, target), nodes in nodes_by_target(graph).items():
            if op == "call_function":
                known = self._pure.get(id(target))
                if known is None:
                    known = self._pure[id(target)] = (target, self._is_pure(target))
                if not known[1]:
                    found += nodes
            elif op not in _NO_CALL and not _prepares(op, target):
                found += nodes
        return sorted(found)

    def fresh(self, node: Node) -> bool:
        """Return whether a node surely has memory of its own; a quick test by target."""
        if node.op != "call_function":
            return node.op in _NO_CALL
        target = node.target
        known = self._fresh.get(id(target))
        if known is None:
            fresh = isinstance(target, OpOverload) and self._operator(target) is None
            known = self._fresh[id(target)] = (target, fresh)
        return known[1]

    def only_shows(self, node: Node) -> bool:
        """Return whether a node surely shows memory of an argument only; a quick test by target."""
        target = node.target
        known = self._views.get(id(target))
        if known is None:
            found = self._operator(target) if isinstance(target, OpOverload) else None
            view = found is not None and found.view and not (found.written or found.barrier)
            known = self._views[id(target)] = (target, view)
        return known[1]

    def hides_writes(self, node: Node) -> bool:
        """Return whether a node writes what its operator does not declare; fast, by target."""
        target = node.target
        if not isinstance(target, OpOverload) or not _hidden_writes(schema_of(target)):
            return False
        return self.of(node).hidden

    def _is_pure(self, target: object) -> bool:
        if not isinstance(target, OpOverload):
            return target is operator.getitem or target is LOG_API_USAGE
        schema = schema_of(target)
        # Of most operators of a graph nothing else is ever asked, and reading all takes longer.
        if schema.returns and not schema.is_mutable and not _hidden_writes(schema):
            return True
        found = self._operator(target)
        return found is None or not (found.written or found.barrier)

    def owner(self, node: Node) -> Node:
        """Return what owns the memory that a node surely is or shows, itself if none is known."""
        while (source := self.of(node).view_of) is not None:
            node = source
        return node

    def of(self, node: Node) -> Effect:  # noqa: PLR0911 - one line for each kind of call
        """Return the effect of a node; where it is not known, the worst the arguments allow."""
        if node.op in _NO_CALL:
            return _NONE
        target = node.target
        if node.op == "call_method":
            return self._of_method(node, str(target))
        if _prepares(node.op, target):
            # The values stay from step to step as weights do, so they must not be written either.
            return Effect(aliases=tuple(nodes_in(node.args)))
        if node.op != "call_function":
            return _unknown(node)
        if isinstance(target, (OpOverload, OpOverloadPacket)):
            return self._of_operator(node, target, node.kwargs)
        if isinstance(target, HigherOrderOperator):
            pure = str(target).startswith(_PURE_HIGHER_ORDER)
            return _NONE if pure else _unknown(node)
        if target is LOG_API_USAGE:
            return _NONE
        if target is operator.getitem:
            return self._of_getitem(node)
        if target is getattr:
            return _of_attribute(node)
        return self._of_python_function(node)

    def _of_operator(
        self, node: Node, target: OpOverload | OpOverloadPacket, kwargs: Mapping[str, object]
    ) -> Effect:
        known = self._operator(target)
        if known is None:
            return _NONE
        if known.barrier:
            return _unknown(node)
        writes = tuple(_at(node.args, kwargs, known.written))
        aliases = tuple(_at(node.args, kwargs, known.aliased))
        first = node.args[0] if node.args else None
        if known.view and isinstance(first, Node):
            return Effect(writes=writes, aliases=aliases, view_of=first)
        if known.may_copy and not writes:
            aliases = tuple(each for each in aliases if not _surely_copied(each, node))
        return Effect(writes=writes, aliases=aliases, hidden=known.hidden and bool(writes))

    @staticmethod
    def _of_getitem(node: Node) -> Effect:
        sources = tuple(nodes_in(node.args[:1]))
        if not sources:
            return Effect(aliases=tuple(nodes_in(node.args)))
        # An index into a tensor may copy, as a list of numbers does; an element of a tuple is it.
        copies = isinstance(value_of(sources[0]), torch.Tensor)
        return Effect(aliases=sources, view_of=None if copies else sources[0])

    def _of_python_function(self, node: Node) -> Effect:
        call = PythonCall.of(node)
        if call is None:
            return _unknown(node)
        if call.pure:
            return _NONE
        packet = call.packet
        if packet is not None:
            kwargs = dict(node.kwargs)
            if "input" in kwargs:
                kwargs["self"] = kwargs.pop("input")
            effect = self._of_operator(node, packet, kwargs)
            # What Python returns of an operator that this process spells otherwise is not known.
            return Effect(
                writes=tuple(dict.fromkeys((*effect.writes, *call.writes))),
                aliases=effect.aliases,
                view_of=effect.view_of,
                barrier=effect.barrier,
            )
        aliases = tuple(nodes_in((node.args, node.kwargs)))
        view = call.writes[0] if call.in_place and len(call.writes) == 1 else None
        return Effect(writes=call.writes, aliases=aliases, view_of=view)

    def _of_method(self, node: Node, name: str) -> Effect:
        receiver = tuple(nodes_in(node.args[:1]))
        if name.endswith("_"):
            everything = tuple(nodes_in((node.args, node.kwargs)))
            # Containers keep what is put into them, and a tensor shows the memory it is set to.
            shared = everything if name in {"__setitem__", "set_"} else receiver
            return Effect(
                writes=receiver, aliases=shared, view_of=receiver[0] if receiver else None
            )
        packet = getattr(torch.ops.aten, name, None)
        if isinstance(packet, OpOverloadPacket):
            return self._of_operator(node, packet, node.kwargs)
        if not hasattr(torch.Tensor, name):
            return _unknown(node)
        return Effect(aliases=tuple(nodes_in((node.args, node.kwargs))))

    def _operator(self, target: OpOverload | OpOverloadPacket) -> _OperatorEffect | None:
        if target not in self._operators:
            overloads = [target] if isinstance(target, OpOverload) else _overloads(target)
            self._operators[target] = _together([_read(each) for each in overloads])
        return self._operators[target]


def _prepares(op: str, target: object) -> bool:
    return op == "call_module" and str(target).startswith(PREPARED_VALUES)


def _overloads(packet: OpOverloadPacket) -> list[OpOverload]:
    names: list[str] = packet.overloads()  # type: ignore[no-untyped-call]
    # TorchScript's operators on lists and numbers are listed, and not all are there.
    found = (getattr(packet, name, None) for name in names)
    return [overload for overload in found if isinstance(overload, OpOverload)]


def _hidden_writes(schema: FunctionSchema) -> tuple[str, ...]:
    """Return the arguments that an operator writes though its schema does not say so."""
    if schema.overload_name == "out" and not schema.is_mutable:
        named = {argument.name for argument in schema.arguments}
        return tuple(name for name in UNDECLARED_RESULTS if name in named)
    return UNDECLARED_WRITES.get(schema.name, ())


def _read(overload: OpOverload) -> _OperatorEffect | None:
    schema = schema_of(overload)
    name, arguments = str(schema.name), schema.arguments
    hidden = _hidden_writes(schema)
    returns = schema.returns
    returned = any(each.alias_info is not None for each in returns)
    composite = is_composite(overload)
    returns_memory = name in RETURNS_MEMORY_OF_ARGUMENTS or (
        composite
        and not returned
        and name not in COMPUTES
        and any("Tensor" in str(each.type) for each in returns)
    )
    if returns and not (returned or returns_memory or hidden or schema.is_mutable):
        # Most operators: spelling the types of their arguments takes longer than all else.
        return None
    written: list[_Place] = []
    aliased: list[_Place] = []
    declared = False
    # Another version may call its arguments otherwise; then each may be the one.
    hides_any = not {argument.name for argument in arguments}.issuperset(hidden)
    for position, argument in enumerate(arguments):
        if not any(kind in str(argument.type) for kind in ("Tensor", "Storage")):
            continue
        place = _Place(-1 if argument.kwarg_only else position, argument.name)
        info = argument.alias_info
        said = info is not None and info.is_write
        declared = declared or said
        in_secret = hides_any or argument.name in hidden
        if said or in_secret:
            written.append(place)
        if returns_memory or (returned and info is not None) or in_secret:
            aliased.append(place)
    barrier = not returns and not written and not name.startswith(_CHECKS)
    if not written and not aliased and not barrier:
        return None
    in_place = [each.position for each in written] == [0] and len(returns) == 1
    view = (in_place and returned) or (overload.is_view and not composite) or name in ALWAYS_VIEWS
    return _OperatorEffect(
        tuple(written),
        tuple(aliased),
        view,
        may_copy=not overload.is_view or composite,
        hidden=bool(written) and not declared,
        barrier=barrier,
    )


def is_composite(overload: OpOverload) -> bool:
    """Return whether torch spells an operator with others, so that its result may be anything."""
    name = overload.name()  # type: ignore[no-untyped-call]
    try:
        return has_kernel(name, "CompositeImplicitAutograd")
    except RuntimeError:
        # TorchScript's operators are in graphs of Dynamo too, and not in the dispatcher.
        return True


def _together(effects: list[_OperatorEffect | None]) -> _OperatorEffect | None:
    """Return the effect of a call of which it is not known which overload it means."""
    known = [each for each in effects if each is not None]
    if len(effects) == 1 or not known:
        return effects[0] if effects else None
    return _OperatorEffect(
        tuple(dict.fromkeys(place for each in known for place in each.written)),
        tuple(dict.fromkeys(place for each in known for place in each.aliased)),
        view=False,
        may_copy=any(each.may_copy for each in known),
        hidden=all(each.hidden or not each.written for each in known),
        barrier=any(each.barrier for each in known),
    )


def _at(
    args: tuple[object, ...], kwargs: Mapping[str, object], places: Iterable[_Place]
) -> Iterable[Node]:
    for place in places:
        if 0 <= place.position < len(args):
            yield from nodes_in(args[place.position])
        elif place.name in kwargs:
            yield from nodes_in(kwargs[place.name])


def _surely_copied(source: Node, node: Node) -> bool:
    """Return whether a possible alias is a copy because its dtype differs."""
    before, after = value_of(source), value_of(node)
    return (
        isinstance(before, torch.Tensor)
        and isinstance(after, torch.Tensor)
        and before.dtype != after.dtype
        and not before.is_complex()
        and not after.is_complex()
    )


def _of_attribute(node: Node) -> Effect:
    source, name = (*node.args[:2], None, None)[:2]
    if not isinstance(source, Node) or not isinstance(name, str):
        return _unknown(node)
    if name in _DESCRIPTIONS and isinstance(value_of(source), torch.Tensor):
        return _NONE
    return Effect(aliases=(source,), view_of=source if name in _VIEW_ATTRIBUTES else None)


def _unknown(node: Node) -> Effect:
    arguments = tuple(nodes_in((node.args, node.kwargs)))
    return Effect(writes=arguments, aliases=arguments, barrier=True)
