"""Where the new nodes of a rewrite may stand, and whether a rewrite is safe at all."""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fx_passes.matching.match import Match, NoMatch
from fx_passes.memory import witness_of_write
from fx_passes.rewriting.run_scope import is_labelled, where_it_runs

if TYPE_CHECKING:
    from collections.abc import Collection

    from torch.fx import Node

    from fx_passes.memory import AliasAnalysis


# Users of an output that stand before an input is defined are moved down one by one; a distance
# beyond any fused region means that the graph is not laid out as the rule expects.
_LONGEST_MOVE = 1000


@dataclass(frozen=True, kw_only=True)
class Placement:
    """A legal place for the new nodes of a match.

    Attributes:
        before: The node before which they go.
        moved: Users of the match's outputs that move to directly after them, in order.
    """

    before: Node
    moved: tuple[Node, ...] = ()


def place(
    match: Match, aliases: AliasAnalysis, *, shares_memory: bool = False
) -> Placement | NoMatch:
    """Return where the nodes that replace a match may go, or why they may not.

    Nothing in the graph is changed. The place is after the definition of everything the pattern's
    parameters stand for and before the first user of an output. Reasons for none: a value inside
    the match is used outside or is an input as well, the nodes are on several streams or in several
    scopes, a value involved is written meanwhile, an input depends on an output, a node of the
    match writes what its operator does not declare and somebody would miss it.
    """
    removed = set(match.nodes)
    problem = _escaping_value(match, removed) or _scope_difference(match)
    if problem is not None:
        return problem
    inputs = match.inputs
    if not removed.isdisjoint(inputs):
        inner = next(node for node in match.nodes if node in inputs)
        return NoMatch(f"`{inner.name}` is both an input of the match and inside it", (inner,))
    unseen = _unseen_writers(match, aliases)
    if isinstance(unseen, NoMatch):
        return unseen
    placement = _find_place(match, removed, inputs, aliases)
    if isinstance(placement, NoMatch):
        return placement
    problem = _written_meanwhile(match, inputs, placement, aliases, unseen)
    return problem or _written_later(match, inputs, aliases, unseen, shares_memory) or placement


def _unseen_writers(match: Match, aliases: AliasAnalysis) -> frozenset[Node] | NoMatch:
    """Return the nodes of a match whose hidden writes go with them, or who would miss one."""
    if aliases.any_writer_between(match.nodes[0], match.nodes[-1]) is None:
        return frozenset()
    writers = frozenset(filter(match.effects.hides_writes, match.nodes))
    for writer in writers:
        witness = witness_of_write(writer, match.effects)
        if witness is not None:
            return NoMatch(
                f"`{writer.name}` writes its arguments, though its operator does not declare it, "
                f"and `{witness.name}` may show that memory later",
                (writer, witness),
            )
    return writers


def _escaping_value(match: Match, removed: set[Node]) -> NoMatch | None:
    outputs = match.outputs.values()
    for node in match.nodes:
        if node in outputs or removed >= node.users.keys():
            continue
        user = next(user for user in node.users if user not in removed)
        return NoMatch(f"`{node.name}` inside the match is used by `{user.name}`", (node, user))
    return None


def _scope_difference(match: Match) -> NoMatch | None:
    if not any(map(is_labelled, match.nodes)):
        return None
    first: Node | None = None
    scope: tuple[object, ...] = ()
    for node in match.nodes:
        # A getitem launches nothing, and tracers do not always label it.
        if node.target is operator.getitem:
            continue
        found = where_it_runs(node)
        if first is None:
            first, scope = node, found
        elif found != scope:
            names = ("stream", "deterministic scope", "core limit")
            different = [
                f"{name} {left!r} and {right!r}"
                for name, left, right in zip(names, scope, found, strict=True)
                if left != right
            ]
            return NoMatch(
                f"`{first.name}` and `{node.name}` run under {', '.join(different)}", (first, node)
            )
    return None


def _find_place(
    match: Match, removed: set[Node], inputs: Collection[Node], aliases: AliasAnalysis
) -> Placement | NoMatch:
    last = match.nodes[-1]
    first_user: Node | None = None
    for node in match.outputs.values():
        for user in node.users:
            if user not in removed and (first_user is None or user < first_user):
                first_user = user
    if first_user is None or last < first_user:
        return Placement(before=last)
    latest_input = max(inputs) if inputs else None
    if latest_input is None or latest_input < first_user:
        return Placement(before=first_user)
    return _move_users(match, removed, first_user, latest_input, aliases)


def _move_users(
    match: Match, removed: set[Node], first_user: Node, latest_input: Node, aliases: AliasAnalysis
) -> Placement | NoMatch:
    dependent = set(match.outputs.values())
    moved: list[Node] = []
    writer = aliases.any_writer_between(first_user, latest_input)
    if writer is not None:
        return NoMatch(
            f"`{first_user.name}` uses an output before the input `{latest_input.name}` is defined "
            f"and cannot move past `{writer.name}`, which writes memory",
            (first_user, latest_input, writer),
        )
    node = first_user
    for _ in range(_LONGEST_MOVE):
        if node not in removed and any(used in dependent for used in node.all_input_nodes):
            if node is latest_input or node in match.bound.values():
                return NoMatch(
                    f"the input `{node.name}` depends on an output of the match", (node,)
                )
            dependent.add(node)
            moved.append(node)
        if node is latest_input:
            return Placement(before=latest_input.next, moved=tuple(moved))
        node = node.next
    return NoMatch(
        f"`{first_user.name}` uses an output too far before the input `{latest_input.name}` is "
        "defined",
        (first_user, latest_input),
    )


def _written_meanwhile(
    match: Match,
    inputs: Collection[Node],
    placement: Placement,
    aliases: AliasAnalysis,
    unseen: Collection[Node],
) -> NoMatch | None:
    first, last = match.nodes[0], max(match.nodes[-1], placement.before)
    if aliases.any_writer_between(first, last) is None:
        return None
    writer = aliases.writer_between(first, last, {*inputs, *match.nodes}, ignored=unseen)
    # New nodes go before placement.before, so what it writes comes too late, unless a removed node
    # read it even later.
    late = writer is placement.before and match.nodes[-1] < placement.before
    if writer is not None and not late:
        return NoMatch(f"`{writer.name}` writes a value of the match meanwhile", (writer,))
    return None


def _written_later(
    match: Match,
    inputs: Collection[Node],
    aliases: AliasAnalysis,
    unseen: Collection[Node],
    shares_memory: bool,
) -> NoMatch | None:
    """Return a write after which it shows that an output has its own memory, or no longer has."""
    if not aliases.writes_anywhere():
        return None
    for node in match.outputs.values():
        source = node.args[0] if node.target is operator.getitem else node
        # What it shared, through its unseen write, nobody reads any more.
        if not shares_memory and source in unseen:
            continue
        if _shares_as_before(node, inputs, aliases, shares_memory):
            continue
        writer = aliases.writer_between(match.nodes[0], None, {node, *inputs}, ignored=unseen)
        if writer is not None:
            return NoMatch(
                f"`{node.name}` or what replaces it may share memory with an input of the match, "
                f"and `{writer.name}` writes it later",
                (node, writer),
            )
    return None


def _shares_as_before(
    node: Node, inputs: Collection[Node], aliases: AliasAnalysis, shares_memory: bool
) -> bool:
    """Return whether an output surely shares memory with the inputs that its replacement does."""
    near = (
        []
        if aliases.owns_memory(node)
        else [each for each in inputs if aliases.group(node) is aliases.group(each)]
    )
    if not shares_memory:
        return not near
    # An output that surely is a view of the input, and stays one, may be written.
    return bool(near) and all(aliases.surely_share(node, each) for each in near)
