"""Finds the places where a pattern fits, from its rarest operator outwards."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, NamedTuple

from torch.fx import Node

from fx_passes.graph_argument import nodes_in
from fx_passes.matching.match import Match
from fx_passes.matching.pattern import (
    PatternCall,
    PatternElement,
    PatternNode,
    PatternParameter,
    describe,
    sources_of,
)
from fx_passes.matching.search_program import compile_search
from fx_passes.memory.effect import EffectTable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from torch.fx import Graph

    from fx_passes.matching.pattern import CompiledPattern
    from fx_passes.matching.search_program import SearchProgram
    from fx_passes.normal_form.operator_signature import SignatureTable


# Stands for a pattern node that is not bound.
_UNSET = object()
# Orders of operands that a check may refuse one after the other.
_MOST_OTHERS = 256


class Miss(NamedTuple):
    """A candidate at which a rule was not applied.

    Attributes:
        anchor: The candidate.
        depth: How many operators of the pattern were found.
        nodes: The nodes found.
        reason: What was expected and what was found, and where.
        found: The nodes that the reason refers to.
    """

    anchor: Node
    depth: int
    nodes: tuple[Node, ...]
    reason: str
    found: tuple[Node, ...]


class Matcher:
    """Finds one pattern in one graph.

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
        self._candidates: list[Node] = []
        anchor = self._rarest_call()
        self._search = None if anchor is None else self._compile(anchor)

    def _compile(self, anchor: PatternCall) -> SearchProgram:
        """Return the code of the search; made once for all graphs."""
        searches = self._pattern.searches
        search = searches.get(anchor.index)
        if search is None:
            steps = self._cover_steps(anchor)
            search = searches[anchor.index] = compile_search(self._pattern, anchor, steps, _UNSET)
        return search

    def candidates(self) -> list[Node]:
        """Return the nodes at which the pattern may be anchored, in graph order.

        Empty when any operator of the pattern does not occur in the graph.
        """
        return sorted(self._candidates)

    def match(self, anchor: Node) -> Match | Miss | None:
        """Match the pattern at one of the candidates.

        Returns:
            The match; how far the search got when at least two operators were found; else None.
        """
        if self._search is None:
            return None
        solutions: list[tuple[object, ...]] = []
        failure = self._search(anchor, self._signatures.arguments, solutions, 1)
        if solutions:
            return self._result(anchor, solutions[0])
        if failure is None:
            return None
        depth, is_user, wanted, value, nodes = failure
        reason = f"no user of `{value}` is {wanted}"
        if not is_user:
            reason = f"expected {wanted}, found {describe(value)}"
        return Miss(anchor, depth, nodes, reason, tuple(nodes_in(value)))

    def others(self, anchor: Node, refused: Match) -> Iterator[Match]:
        """Yield the matches at a candidate that exchange operands of commutative operators."""
        commutative = any(call.commutative for call in self._pattern.calls)
        if not commutative or self._search is None:
            return
        solutions: list[tuple[object, ...]] = []
        self._search(anchor, self._signatures.arguments, solutions, _MOST_OTHERS)
        seen = [refused]
        for values in solutions:
            found = self._result(anchor, values)
            if not any(_are_same(found, other) for other in seen):
                seen.append(found)
                yield found

    def _rarest_call(self) -> PatternCall | None:
        best: PatternCall | None = None
        for call in self._pattern.calls:
            found: list[Node] = []
            for target in call.operators:
                found += self._graph.find_nodes(op="call_function", target=target, sort=False)
            if not found:
                self.absent, self._candidates = call, []
                return None
            if best is None or len(found) <= len(self._candidates):
                best, self._candidates = call, found
        return best

    def _cover_steps(self, anchor: PatternCall) -> list[tuple[PatternNode, PatternNode, bool]]:
        """Return how the values that do not lead to the anchor are reached from those that do."""
        reached = _ancestors(anchor)
        steps: list[tuple[PatternNode, PatternNode, bool]] = []
        missing = [node for node in self._pattern.nodes if node.index not in reached]
        while missing:
            for node in missing:
                # A literal is no node of the graph, so nothing uses it.
                source = next(
                    (s for s in sources_of(node) if s.index in reached and not _is_literal(s)), None
                )
                if source is not None:
                    optional = isinstance(node, PatternElement) and not node.users
                    steps.append((node, source, optional))
                    reached |= _ancestors(node)
                    break
            else:
                break
            missing = [node for node in missing if node.index not in reached]
        return steps

    def _result(self, anchor: Node, values: Sequence[object]) -> Match:
        nodes: list[Node] = []
        for call in self._pattern.calls:
            value = values[call.index]
            if not isinstance(value, Node):
                continue
            nodes.append(value)
            # Elements that nobody uses would keep the call alive.
            nodes += [
                user for user in value.users if user.target is operator.getitem and not user.users
            ]
        for element in self._pattern.elements:
            value = values[element.index]
            if isinstance(value, Node):
                nodes.append(value)
        inside = set(nodes)
        outputs: dict[str, Node] = {}
        needed: set[str] = set()
        for name, node in self._pattern.outputs.items():
            value = values[node.index]
            if isinstance(value, Node):
                outputs[name] = value
                if not inside >= value.users.keys():
                    needed.add(name)
        return Match(
            anchor=anchor,
            bound={each.name: values[each.index] for each in self._pattern.parameters},
            outputs=outputs,
            needed=frozenset(needed),
            labels={
                name: value
                for name, node in self._pattern.labels.items()
                if isinstance(value := values[node.index], Node)
            },
            nodes=tuple(sorted(inside)),
            effects=self._effects,
        )


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


def _is_literal(node: PatternNode) -> bool:
    return isinstance(node, PatternParameter) and node.kind == "literal"


def _ancestors(node: PatternNode) -> set[int]:
    """Return the numbers of a value and of all values that lead to it."""
    found: set[int] = set()
    pending = [node]
    while pending:
        current = pending.pop()
        if current.index not in found:
            found.add(current.index)
            pending += sources_of(current)
    return found
