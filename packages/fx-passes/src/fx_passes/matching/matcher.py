"""Finds the places where a pattern fits, from its rarest operator outwards."""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch.fx import Node

from fx_passes.graph_argument import literals_equal, nodes_in, value_of
from fx_passes.matching.match import Match, NoMatch
from fx_passes.matching.pattern import (
    PatternCall,
    PatternElement,
    PatternNode,
    PatternParameter,
)
from fx_passes.matching.search_program import compile_search
from fx_passes.memory.effect import EffectTable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from torch.fx import Graph

    from fx_passes.matching.pattern import CompiledPattern
    from fx_passes.normal_form.operator_signature import SignatureTable

__all__ = ["Matcher", "StructuralMiss"]


class _Unset:
    """The type of the mark for a pattern node that stands for nothing yet."""


_UNSET = _Unset()


@dataclass(frozen=True, eq=False)
class StructuralMiss:
    """How far a search got that found no match.

    Attributes:
        depth: How many operators of the pattern were found.
        nodes: The nodes found.
        reason: What was expected against what was found, and where.
    """

    depth: int
    nodes: tuple[Node, ...]
    reason: NoMatch


class Matcher:
    """Finds one pattern in one graph.

    Args:
        pattern: The pattern.
        graph: The graph, in normal form.
        signatures: Where signatures of operators are kept.
        effects: What matches tell effects by; one of their own if left out.

    Attributes:
        absent: A call of the pattern whose operator does not occur in the graph, if there is one.
    """

    def __init__(
        self,
        pattern: CompiledPattern,
        graph: Graph,
        signatures: SignatureTable,
        effects: EffectTable | None = None,
    ) -> None:
        self._effects = EffectTable() if effects is None else effects
        self._pattern = pattern
        self._graph = graph
        self._signatures = signatures
        self.absent: PatternCall | None = None
        self._anchor = self._rarest_call()
        self._steps = self._cover_steps()
        self._commutative = any(call.commutative for call in pattern.calls)
        self._state = _Search(pattern, signatures)
        self._search = self._compile()
        nodes = pattern.nodes
        self._parameters = [(n.name, n.index) for n in nodes if isinstance(n, PatternParameter)]
        self._calls = [n.index for n in nodes if isinstance(n, PatternCall)]
        self._elements = [n.index for n in nodes if isinstance(n, PatternElement)]
        self._outputs = [(name, node.index) for name, node in pattern.outputs.items()]
        self._labels = [(name, node.index) for name, node in pattern.labels.items()]

    def _compile(self) -> Callable[..., Sequence[object] | None] | None:
        """Return the code that tries the first way; made once for all graphs."""
        anchor = self._anchor
        if anchor is None:
            return None
        searches = self._pattern.searches
        search = searches.get(anchor.index)
        if search is None:
            steps = [(step.node, step.source, step.optional) for step in self._steps]
            search = searches[anchor.index] = compile_search(self._pattern, anchor, steps, _UNSET)
        return search

    def candidates(self) -> list[Node]:
        """Return the nodes at which the pattern may be anchored, in graph order.

        Empty when any operator of the pattern does not occur in the graph.
        """
        if self._anchor is None:
            return []
        return sorted(_calls_of(self._graph, self._anchor))

    def match(self, anchor: Node) -> Match | StructuralMiss | None:
        """Match the pattern at one of the candidates.

        Returns:
            The match; how far the search got when at least two operators were found; else None.
        """
        if self._search is None:
            return None
        found = self._search(anchor, self._signatures.arguments)
        return self._match_by_trial(anchor) if found is None else self._result(anchor, found)

    def _match_by_trial(self, anchor: Node) -> Match | StructuralMiss | None:
        values, miss = self._try_orders(anchor, _Orders())
        return miss if values is None else self._result(anchor, values)

    def others(self, anchor: Node, refused: Match) -> Iterator[Match]:
        """Yield the matches at a candidate that exchange operands of commutative operators.

        Args:
            anchor: The candidate.
            refused: The match that `match` found there; it is not found again.
        """
        if not self._commutative:
            return
        seen = [refused]
        orders = _Orders()
        more = True
        while more:
            values, _ = self._try_orders(anchor, orders)
            if values is None:
                return
            found = self._result(anchor, values)
            if not any(_are_same(found, other) for other in seen):
                seen.append(found)
                yield found
            more = orders.next()

    def _try_orders(
        self, anchor: Node, orders: _Orders
    ) -> tuple[Sequence[object] | None, StructuralMiss | None]:
        """Return what the values of the pattern stand for in the next order of operands that fits.

        Where none does, return how far the best came.
        """
        search, call = self._state, self._anchor
        best: _Failure | None = None
        while call is not None:
            search.begin(orders)
            if search.bind(call, anchor) and self._cover(0):
                return search.values, None
            failure = search.failure
            if failure is not None and (best is None or failure.depth > best.depth):
                best = failure
            if not orders.next():
                break
        if best is None or best.depth < 2:
            return None, None
        return None, StructuralMiss(best.depth, best.nodes, best.explain())

    def _rarest_call(self) -> PatternCall | None:
        best: PatternCall | None = None
        fewest = 0
        for call in self._pattern.calls:
            count = len(_calls_of(self._graph, call))
            if count == 0:
                self.absent = call
                return None
            if best is None or count <= fewest:
                best, fewest = call, count
        return best

    def _cover_steps(self) -> list[_Step]:
        """Return how the values that do not lead to the anchor are reached from those that do."""
        if self._anchor is None:
            return []
        reached = _ancestors(self._anchor)
        steps: list[_Step] = []
        missing = [node for node in self._pattern.nodes if node.index not in reached]
        while missing:
            for node in missing:
                # A literal is no node of the graph, so nothing uses it.
                source = next(
                    (s for s in _sources(node) if s.index in reached and not _is_literal(s)), None
                )
                if source is not None:
                    optional = isinstance(node, PatternElement) and not node.users
                    steps.append(_Step(node, source, optional))
                    reached |= _ancestors(node)
                    break
            else:
                break
            missing = [node for node in missing if node.index not in reached]
        return steps

    def _cover(self, position: int) -> bool:
        if position == len(self._steps):
            return True
        step = self._steps[position]
        search = self._state
        if search.values[step.node.index] is not _UNSET:
            return self._cover(position + 1)
        source = search.values[step.source.index]
        for candidate in _users_like(source, step.node):
            mark = len(search.trail)
            if search.bind(step.node, candidate) and self._cover(position + 1):
                return True
            search.undo(mark)
        if step.optional:
            return self._cover(position + 1)
        search.fail(_Failure(step.node, source if isinstance(source, Node) else None, "used by"))
        return False

    def _result(self, anchor: Node, values: Sequence[object]) -> Match:
        nodes: list[Node] = []
        for index in self._calls:
            value = values[index]
            if not isinstance(value, Node):
                continue
            nodes.append(value)
            # Elements that nobody uses would keep the call alive.
            nodes += [
                user for user in value.users if user.target is operator.getitem and not user.users
            ]
        for index in self._elements:
            value = values[index]
            if isinstance(value, Node):
                nodes.append(value)
        inside = set(nodes)
        outputs: dict[str, Node] = {}
        needed: set[str] = set()
        for name, index in self._outputs:
            value = values[index]
            if isinstance(value, Node):
                outputs[name] = value
                if not inside >= value.users.keys():
                    needed.add(name)
        return Match(
            anchor=anchor,
            bound={name: values[index] for name, index in self._parameters},
            outputs=outputs,
            needed=frozenset(needed),
            labels={
                name: value
                for name, index in self._labels
                if isinstance(value := values[index], Node)
            },
            nodes=tuple(sorted(inside)),
            effects=self._effects,
        )


@dataclass(frozen=True, eq=False)
class _Step:
    node: PatternNode
    source: PatternNode
    optional: bool


class _Failure:
    """Where a search stopped; put into words only if somebody asks."""

    __slots__ = ("depth", "expected", "found", "nodes", "relation")

    def __init__(self, expected: object, found: object, relation: str) -> None:
        self.expected = expected
        self.found = found
        self.relation = relation
        self.depth = 0
        self.nodes: tuple[Node, ...] = ()

    def explain(self) -> NoMatch:
        nodes = tuple(nodes_in(self.found))
        wanted = _describe(self.expected)
        if self.relation == "used by":
            return NoMatch(f"no user of `{self.found}` is {wanted}", nodes)
        return NoMatch(f"expected {wanted}, found {_describe(self.found)}", nodes)


def _describe(item: object) -> str:
    if isinstance(item, PatternCall):
        return f"a call of {item.operators[0]}"
    if isinstance(item, PatternElement):
        return f"result {item.position} of an operator"
    if isinstance(item, PatternParameter):
        kinds = {"tensor": "a tensor", "optional_tensor": "a tensor or None", "tensors": "tensors"}
        return f"{kinds.get(item.kind, 'a literal')} for `{item.name}`"
    if isinstance(item, Node):
        if item.target is operator.getitem:
            return f"`{item.name}` (result {item.args[1]} of `{item.args[0]}`)"
        return f"`{item.name}` ({item.target})" if item.op == "call_function" else f"`{item.name}`"
    return repr(item)


class _Orders:
    """The orders of operands of commutative calls, one attempt at a search after the other.

    An attempt that is repeated with the same orders meets the same commutative calls. So the calls
    are numbered as they are met, and the last one that was not turned round yet is turned for the
    next attempt, until there is none.
    """

    # Only a pattern of many sums of anything needs more; then the search stays linear in the graph.
    _ATTEMPTS = 256

    __slots__ = ("_attempts", "_met", "_turned")

    def __init__(self) -> None:
        self._turned: list[bool] = []
        self._met = 0
        self._attempts = 0

    def begin(self) -> None:
        self._met = 0
        self._attempts += 1

    def enter(self) -> int:
        """Return the number of a commutative call that the attempt meets."""
        position = self._met
        self._met += 1
        if position == len(self._turned):
            self._turned.append(False)
        return position

    def turned(self, position: int) -> bool:
        return self._turned[position]

    def last(self, position: int) -> bool:
        """Return whether no call that was met since can still be turned round."""
        return all(self._turned[position + 1 :])

    def turn(self, position: int) -> None:
        """Turn a call round; forget what was met since."""
        del self._turned[position + 1 :]
        self._turned[position] = True
        self._met = position + 1

    def next(self) -> bool:
        """Go on to the next orders; return whether there are any."""
        while self._turned and self._turned[-1]:
            self._turned.pop()
        if not self._turned or self._attempts >= self._ATTEMPTS:
            return False
        self._turned[-1] = True
        return True


def _are_same(left: Match, right: Match) -> bool:
    """Return whether two matches at one place mean the same."""
    return all(
        ours.keys() == theirs.keys() and all(ours[name] is theirs[name] for name in ours)
        for ours, theirs in (
            (left.bound, right.bound),
            (left.outputs, right.outputs),
            (left.labels, right.labels),
        )
    )


class _Search:
    """What each value of the pattern stands for in one attempt, and how to take it back."""

    __slots__ = (
        "_orders",
        "_pattern",
        "_signatures",
        "failure",
        "trail",
        "values",
    )

    def __init__(self, pattern: CompiledPattern, signatures: SignatureTable) -> None:
        self._pattern = pattern
        self._signatures = signatures
        self.begin(_Orders())

    def begin(self, orders: _Orders) -> None:
        """Forget everything but the order of operands that is to be tried."""
        self.values: list[object] = [_UNSET] * len(self._pattern.nodes)
        self.trail: list[int] = []
        self.failure: _Failure | None = None
        self._orders = orders
        orders.begin()

    def undo(self, mark: int) -> None:
        """Take back everything that was bound after the trail had this length."""
        while len(self.trail) > mark:
            index = self.trail.pop()
            self.values[index] = _UNSET

    def fail(self, failure: _Failure) -> None:
        """Keep a failure if the search had never got so far."""
        depth = 0
        for index in self.trail:
            depth += isinstance(self._pattern.nodes[index], PatternCall)
        if self.failure is None or depth > self.failure.depth:
            failure.depth = depth
            if depth >= 2:
                failure.nodes = tuple(
                    value
                    for index in self.trail
                    if isinstance(value := self.values[index], Node)
                    and not isinstance(self._pattern.nodes[index], PatternParameter)
                )
            self.failure = failure

    def bind(self, expected: PatternNode, found: object) -> bool:
        """Let a pattern value stand for something in the graph, with all that leads to it."""
        bound = self.values[expected.index]
        if bound is not _UNSET:
            if bound is found or (not isinstance(found, Node) and literals_equal(bound, found)):
                return True
            self.fail(_Failure(bound, found, "is"))
            return False
        if isinstance(expected, PatternCall):
            return self._bind_call(expected, found)
        if isinstance(expected, PatternElement):
            return self._bind_element(expected, found)
        return self._bind_parameter(expected, found)

    def _set(self, expected: PatternNode, found: object) -> None:
        self.values[expected.index] = found
        self.trail.append(expected.index)

    def _bind_call(self, expected: PatternCall, found: object) -> bool:
        if not isinstance(found, Node) or not _is_call_of(found, expected):
            self.fail(_Failure(expected, found, "is"))
            return False
        arguments = self._signatures.arguments(found)
        if any(self.values[twin] is found for twin in self._pattern.twins.get(expected.index, ())):
            return False
        if arguments is None:
            self.fail(_Failure(expected, found, "is"))
            return False
        self._set(expected, found)
        wanted = expected.arguments
        if expected.commutative:
            return self._bind_in_some_order(wanted, arguments)
        return self._bind_all(wanted, arguments)

    def _bind_in_some_order(self, wanted: tuple[object, ...], arguments: Sequence[object]) -> bool:
        turned = (arguments[1], arguments[0], *arguments[2:])
        orders = self._orders
        position = orders.enter()
        if orders.turned(position):
            return self._bind_all(wanted, turned)
        mark = len(self.trail)
        if self._bind_all(wanted, arguments):
            return True
        if not orders.last(position):
            # An operand of this call may itself be turned round; that is tried before.
            return False
        self.undo(mark)
        orders.turn(position)
        return self._bind_all(wanted, turned)

    def _bind_all(self, wanted: Sequence[object], found: Sequence[object]) -> bool:
        # Aliases of an operator's overloads may end differently; what is missing is a default.
        for want, have in zip(wanted, found, strict=False):
            if isinstance(want, PatternNode):
                if not self.bind(want, have):
                    return False
            elif isinstance(want, list):
                if not isinstance(have, (list, tuple)) or len(have) != len(want):
                    self.fail(_Failure(want, have, "is"))
                    return False
                if not self._bind_all(want, have):
                    return False
            elif not literals_equal(want, have):
                self.fail(_Failure(want, have, "is"))
                return False
        return True

    def _bind_element(self, expected: PatternElement, found: object) -> bool:
        if (
            not isinstance(found, Node)
            or found.target is not operator.getitem
            or found.args[1] != expected.position
            or expected.source is None
        ):
            self.fail(_Failure(expected, found, "is"))
            return False
        self._set(expected, found)
        return self.bind(expected.source, found.args[0])

    def _bind_parameter(self, expected: PatternNode, found: object) -> bool:
        kind = expected.kind if isinstance(expected, PatternParameter) else "any"
        if not _is_of_kind(kind, found):
            self.fail(_Failure(expected, found, "is"))
            return False
        self._set(expected, found)
        return True


def _is_literal(node: PatternNode) -> bool:
    return isinstance(node, PatternParameter) and node.kind == "literal"


def _is_of_kind(kind: str, found: object) -> bool:
    if kind == "any":
        return True
    if kind == "tensors":
        return isinstance(found, (list, tuple)) and all(
            isinstance(each, Node) and _is_of_kind("tensor", each) for each in found
        )
    if isinstance(found, Node):
        value = value_of(found)
        if kind == "literal":
            return value is not None and not isinstance(value, (torch.Tensor, tuple, list))
        return value is None or isinstance(value, torch.Tensor)
    return kind == "literal" or (kind == "optional_tensor" and found is None)


def _is_call_of(node: Node, call: PatternCall) -> bool:
    return node.target is call.operators[0] or node.target in call.operators


def _calls_of(graph: Graph, call: PatternCall) -> list[Node]:
    found: list[Node] = []
    for target in call.operators:
        found += graph.find_nodes(op="call_function", target=target, sort=False)
    return found


def _users_like(source: object, wanted: PatternNode) -> Iterator[Node]:
    if not isinstance(source, Node):
        return
    for user in list(source.users):
        if isinstance(wanted, PatternElement):
            if user.target is operator.getitem and user.args[1] == wanted.position:
                yield user
        elif isinstance(wanted, PatternCall) and _is_call_of(user, wanted):
            yield user


def _sources(node: PatternNode) -> list[PatternNode]:
    if isinstance(node, PatternElement):
        return [] if node.source is None else [node.source]
    if not isinstance(node, PatternCall):
        return []
    found: list[PatternNode] = []
    pending = list(node.arguments)
    while pending:
        argument = pending.pop(0)
        if isinstance(argument, PatternNode):
            found.append(argument)
        elif isinstance(argument, list):
            pending += argument
    return found


def _ancestors(node: PatternNode) -> set[int]:
    """Return the numbers of a value and of all values that lead to it."""
    found: set[int] = set()
    pending = [node]
    while pending:
        current = pending.pop()
        if current.index not in found:
            found.add(current.index)
            pending += _sources(current)
    return found
