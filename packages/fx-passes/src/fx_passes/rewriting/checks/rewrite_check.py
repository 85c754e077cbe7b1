"""What a rewrite built, compared with what it may build."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fx_passes.errors import RuleError
from fx_passes.matching.match import Match, NoMatch
from fx_passes.rewriting.checks.substitution import substitution_problem

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from torch.fx import Node

    from fx_passes.memory import AliasAnalysis
    from fx_passes.rewriting.graph_builder import GraphBuilder
    from fx_passes.rewriting.rule import Rule


def rewrite_problem(
    rule: Rule,
    match: Match,
    replacements: Mapping[str, Node],
    builder: GraphBuilder,
    removed: Collection[Node],
    before: Node,
    aliases: AliasAnalysis,
) -> NoMatch | None:
    """Return why the nodes that a rewrite built must not replace the match, or None.

    Args:
        rule: The rule.
        match: The match.
        replacements: What the rewrite returned.
        builder: What the nodes were built with.
        removed: The nodes of the match that go, or become elements of new calls.
        before: The node before which they stand.
        aliases: What shares memory in the graph, new nodes included.

    Raises:
        RuleError: The rule is wrong wherever it matches: it uses what it replaces, or writes memory
            that it did not allocate.
    """
    created = set(builder.created)
    known = {*created, *builder.checked, *match.inputs}
    for node in builder.created:
        if not match.effects.fresh(node):
            _require_no_writes(rule, match, node, created, aliases)
        for used in node.all_input_nodes:
            if used in known:
                continue
            if used in removed:
                raise RuleError(
                    f"rewriting with the rule {rule.name!r} at `{match.anchor.name}`: the new "
                    f"nodes use `{used.name}`, which the match removes; a rewrite may use what the "
                    "pattern's parameters stand for, and nothing else"
                )
            problem = _outside_problem(node, used, before, aliases)
            if problem is not None:
                return problem
            known.add(used)
    problem = _handed_on_problem(match, replacements, created)
    if problem is not None or rule.shares_memory or not aliases.writes_anywhere():
        return problem
    return _sharing_problem(match, replacements, created, aliases)


def _require_no_writes(
    rule: Rule, match: Match, node: Node, created: set[Node], aliases: AliasAnalysis
) -> None:
    for written in match.effects.of(node).writes:
        foreign = aliases.group(written)
        if foreign in created:
            continue
        through = "" if foreign is written else f", by `{written.name}`, which may show its memory"
        raise RuleError(
            f"rewriting with the rule {rule.name!r} at `{match.anchor.name}`: the new node "
            f"`{node.name}` ({node.target}) writes `{foreign.name}`{through}; a rewrite may write "
            "only memory that it allocated itself. Use the functional form of the operator, or "
            "write a copy that `aten::clone` makes"
        )


def _handed_on_problem(
    match: Match, replacements: Mapping[str, Node], created: set[Node]
) -> NoMatch | None:
    """Return who could tell that an output is now a value that was there before, or another one."""
    outputs: dict[Node, Node] = {}
    for name, node in replacements.items():
        old = match.outputs[name]
        if node is old:
            continue
        problem = None
        if node not in created or not match.effects.fresh(node):
            problem = substitution_problem(old, node, match.effects, created=created)
        first = outputs.setdefault(node, old)
        if problem is None and first is not old:
            problem = substitution_problem(old, first, match.effects)
        if problem is not None:
            return problem
    return None


def _outside_problem(
    node: Node, used: Node, before: Node, aliases: AliasAnalysis
) -> NoMatch | None:
    """Return why a node that is no input of the match may not be used where the new nodes stand."""
    if not used < before:
        return NoMatch(
            f"the replacement uses `{used.name}`, which is defined after it must stand", (used,)
        )
    writer = aliases.writer_between(used, before, (used,))
    if writer is not None:
        return NoMatch(
            f"the replacement uses `{used.name}` from outside of the match, and `{writer.name}` "
            f"writes it before `{node.name}`",
            (used, writer),
        )
    return None


def _sharing_problem(
    match: Match,
    replacements: Mapping[str, Node],
    created: set[Node],
    aliases: AliasAnalysis,
) -> NoMatch | None:
    """Return a write that shows that a replacement shares memory though its rule says it does not.

    Outputs that the graph had in memory of their own must keep it, from inputs and from each other.
    """
    nodes = list(replacements.values())
    for position, node in enumerate(nodes):
        twice = node in nodes[:position]
        shared = node not in match.nodes and (
            node not in created or aliases.group(node) not in created
        )
        if not twice and not shared:
            continue
        writer = aliases.writer_between(match.nodes[0], None, (node, *match.outputs.values()))
        if writer is not None:
            return NoMatch(
                f"the replacement `{node.name}` shares memory that `{writer.name}` writes, and the "
                "rule does not say `shares_memory`",
                (node, writer),
            )
    return None
