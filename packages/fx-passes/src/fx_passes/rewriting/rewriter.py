"""Applies rules to a graph in one pass."""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING

from torch.fx import Node

from fx_passes.errors import PatternError, RuleError
from fx_passes.graph_argument import nodes_in
from fx_passes.matching.match import Match, NoMatch, NoMatchError
from fx_passes.matching.matcher import Matcher, Miss
from fx_passes.memory import AliasAnalysis, EffectTable
from fx_passes.normal_form.operator_signature import SignatureTable
from fx_passes.reports.report import MatchRecord, NearMiss, RuleReport
from fx_passes.rewriting.checks.rewrite_check import rewrite_problem
from fx_passes.rewriting.cost import cost_problem
from fx_passes.rewriting.graph_builder import GraphBuilder
from fx_passes.rewriting.placement import place
from fx_passes.rewriting.recorded_values import (
    record_behind,
    replaced_value_problem,
    replaced_values,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from torch.fx import Graph

    from fx_passes.matching.pattern import CompiledPattern
    from fx_passes.rewriting.placement import Placement
    from fx_passes.rewriting.rule import Rule


# More than the number of operators of any pattern.
_WHOLE = 1_000_000
_NUMBERS = frozenset({float, int, bool})


def apply_rules(
    graph: Graph, rules: Sequence[Rule], *, weights_are_prepared: bool = False
) -> tuple[RuleReport, ...]:
    """Apply rules to a graph in normal form, in place; earlier rules take precedence.

    Each rule is anchored at the operator of its pattern that is rarest in the graph, so the cost is
    linear in the graph, and next to nothing for a rule whose operators do not occur. The owning
    module is not recompiled.

    Args:
        graph: The graph.
        rules: The rules.
        weights_are_prepared: Whether a later `FoldConstantsPass` moves what depends only on weights
            out of the step. If not, a rewrite that inverts or casts a weight pays for a launch.

    Returns:
        One report for each rule.

    Raises:
        PatternError: A pattern cannot be traced.
        RuleError: A check or a rewrite failed or broke its contract. The graph may then hold a part
            of the rewrites; a pipeline puts it back.
    """
    rewriter = _Rewriter(graph, weights_are_prepared)
    return tuple(rewriter.apply(rule) for rule in rules)


class _Rewriter:
    def __init__(self, graph: Graph, weights_are_prepared: bool) -> None:
        self._graph = graph
        self._weights_are_prepared = weights_are_prepared
        self._signatures = SignatureTable()
        self._effects = EffectTable()
        self._aliases: AliasAnalysis | None = None
        # FX marks erased nodes only privately.
        self._removed: set[Node] = set()

    def apply(self, rule: Rule) -> RuleReport:
        if rule.prepare is not None:
            rule.prepare()
        missing = rule.missing_operators()
        if missing:
            return RuleReport(rule=rule.name, waiting_for=missing)
        try:
            patterns = rule.compiled
        except PatternError as error:
            if not rule.optional:
                raise
            return RuleReport(rule=rule.name, left_out=str(error))
        return self._apply_patterns(rule, patterns)

    def _apply_patterns(self, rule: Rule, patterns: Sequence[CompiledPattern]) -> RuleReport:
        matches: list[MatchRecord] = []
        misses: list[Miss] = []
        covered: set[Node] = set()
        absent: list[str] = []
        for pattern in patterns:
            matcher = Matcher(pattern, self._graph, self._signatures, self._effects)
            if matcher.absent is not None:
                absent.append(str(matcher.absent.operators[0]))
                continue
            for anchor in matcher.candidates():
                if anchor in self._removed:
                    continue
                found = matcher.match(anchor)
                if found is None:
                    continue
                if isinstance(found, Miss):
                    misses.append(found)
                    continue
                found, outcome = self._rewrite_some(rule, matcher, found)
                if isinstance(outcome, NoMatch):
                    # A whole pattern is nearer than any part of one.
                    misses.append(Miss(anchor, _WHOLE, found.nodes, outcome.reason, outcome.nodes))
                else:
                    covered.update(found.nodes)
                    matches.append(outcome)
        near = _nearest(misses, covered) if rule.reports_near_misses else ()
        nothing = len(absent) == len(patterns)
        return RuleReport(
            rule=rule.name,
            matches=tuple(matches),
            near_misses=near,
            absent=tuple(dict.fromkeys(absent)) if nothing else (),
        )

    def _rewrite_some(
        self, rule: Rule, matcher: Matcher, found: Match
    ) -> tuple[Match, MatchRecord | NoMatch]:
        """Rewrite a match, or one of other operand orders that the check accepts in its place."""
        problem = self._check(rule, found)
        if problem is not None:
            for other in matcher.others(found.anchor, found):
                if self._check(rule, other) is None:
                    return other, self._rewrite(rule, other)
            return found, problem
        return found, self._rewrite(rule, found)

    def _check(self, rule: Rule, match: Match) -> NoMatch | None:
        try:
            problem = rule.check(match)
        except NoMatchError as error:
            return NoMatch(str(error))
        except Exception as error:
            raise RuleError(
                f"checking the rule {rule.name!r} at `{match.anchor.name}`: the check raised "
                f"{type(error).__name__}: {error}"
            ) from error
        if problem is not None and not isinstance(problem, NoMatch):
            raise RuleError(
                f"checking the rule {rule.name!r} at `{match.anchor.name}`: expected None or a "
                f"NoMatch, found {problem!r}"
            )
        return problem

    def _rewrite(self, rule: Rule, match: Match) -> MatchRecord | NoMatch:
        if self._aliases is None:
            self._aliases = AliasAnalysis(self._graph, self._effects)
        placement = place(match, self._aliases, shares_memory=rule.shares_memory)
        if isinstance(placement, NoMatch):
            return placement
        return self._build(rule, match, placement, self._aliases)

    def _build(
        self, rule: Rule, match: Match, placement: Placement, aliases: AliasAnalysis
    ) -> MatchRecord | NoMatch:
        builder = GraphBuilder(self._graph, match, placement.before, self._signatures, aliases)
        # Before the rewrite, which may change what a list of the graph holds.
        literals = {
            name: repr(value)
            for name, value in match.bound.items()
            if type(value) in _NUMBERS or next(nodes_in(value), None) is None
        }
        with self._graph.inserting_before(placement.before):
            try:
                replacements = rule.rewrite(match, builder)
            except Exception as error:
                if rule.optional:
                    builder.discard()
                    return NoMatch(f"the replacement fails here: {type(error).__name__}: {error}")
                raise RuleError(
                    f"rewriting with the rule {rule.name!r} at `{match.anchor.name}`: the rewrite "
                    f"raised {type(error).__name__}: {error}"
                ) from error
        _require_all_outputs(rule, match, replacements)
        kept = set(replacements.values())
        removed = [node for node in match.nodes if node not in kept]
        taken = builder.taken
        # What becomes an element of a new call stays as a node, and is gone as what it was.
        gone = removed
        if taken:
            gone = [node for node in match.nodes if node in taken or node not in kept]
        before = placement.before
        problem = rewrite_problem(rule, match, replacements, builder, gone, before, aliases)
        replaced = replaced_values(match, replacements, builder)
        problem = problem or replaced_value_problem(replaced, match)
        if problem is None and not rule.accepts_cost:
            problem = cost_problem(
                gone,
                builder.created,
                self._effects,
                weights_are_prepared=self._weights_are_prepared,
            )
        if problem is not None:
            builder.discard()
            return problem
        builder.commit()
        for node in placement.moved:
            before.prepend(node)
        self._replace(match, replacements, builder.created, removed)
        record_behind(replaced)
        aliases.forget_writes(gone)
        for name, node in replacements.items():
            if node is match.outputs[name]:
                aliases.forget((node,))
            else:
                aliases.replace(match.outputs[name], node)
        if any(self._writes(node) for node in builder.created):
            # The analysis knows of no writer that came after it.
            self._aliases = None
        return MatchRecord(
            anchor=match.anchor.name,
            removed=tuple([node.name for node in removed]),
            created=tuple([node.name for node in builder.created]),
            literals=literals,
            replaced={match.outputs[name].name: node.name for name, node in replacements.items()},
            exact=rule.numerics == "exact",
        )

    def _writes(self, node: Node) -> bool:
        return not self._effects.fresh(node) and bool(self._effects.of(node).writes)

    def _replace(
        self,
        match: Match,
        replacements: Mapping[str, Node],
        created: Sequence[Node],
        removed: Sequence[Node],
    ) -> None:
        for name, new in replacements.items():
            old = match.outputs[name]
            if new is old:
                continue
            old.replace_all_uses_with(new, delete_user_cb=lambda user: user not in removed)
            # What the replaced node knew of itself is nearer than what all new nodes were given,
            # but for the fake value: a fused operator may lay out its result otherwise.
            if new in created:
                own = {"val": new.meta["val"]} if "val" in new.meta else {}
                new.meta.update({**old.meta, **own})
        for node in reversed(removed):
            self._graph.erase_node(node)
        self._removed.update(removed)


def _require_all_outputs(rule: Rule, match: Match, replacements: object) -> None:
    if (
        not isinstance(replacements, dict)
        or not match.needed <= replacements.keys() <= match.outputs.keys()
        or not all(isinstance(node, Node) for node in replacements.values())
    ):
        found = sorted(replacements) if isinstance(replacements, dict) else replacements
        raise RuleError(
            f"rewriting with the rule {rule.name!r} at `{match.anchor.name}`: expected a dict with "
            f"a node for each of the outputs {sorted(match.needed)}, found {found}"
        )


def _nearest(misses: Iterable[Miss], covered: set[Node]) -> tuple[NearMiss, ...]:
    """Keep of the misses that share nodes the one that got furthest, and none inside a match."""
    kept: list[Miss] = []
    for miss in sorted(misses, key=attrgetter("depth"), reverse=True):
        if covered.isdisjoint(miss.nodes):
            covered.update(miss.nodes)
            kept.append(miss)
    return tuple(
        NearMiss(
            anchor=miss.anchor.name,
            reason=miss.reason,
            nodes=tuple([node.name for node in miss.found]),
            whole=miss.depth == _WHOLE,
        )
        for miss in kept
    )
