"""Lets readers of a buffer read the source of the copy into it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch.fx import Node

from fx_passes.graph_argument import value_of
from fx_passes.graph_pass import GraphPass
from fx_passes.matching.requirements import shapes_equal, sizes_equal
from fx_passes.memory import AliasAnalysis, EffectTable, escapes, views_of
from fx_passes.memory.undeclared import EMPTY_MEMORY
from fx_passes.reports.report import MatchRecord, NearMiss, PassReport, RuleReport
from fx_passes.rewriting.checks.substitution import placement_problem
from fx_passes.rewriting.recorded_values import record_again
from fx_passes.rewriting.run_scope import where_it_runs
from fx_passes.torch_internals import OpOverload

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from torch.fx import Graph, GraphModule


_COPY = torch.ops.aten.copy_.default
_NOTHING = RuleReport(rule="forward_copies", absent=(str(_COPY),))


@dataclass(frozen=True, kw_only=True)
class ForwardCopiesPass(GraphPass):
    """Lets operators after a `copy_` into a buffer read the source instead of the buffer.

    Engines use static buffers: `buffer.copy_(x)`, then a norm of the buffer. The norm then
    reads `x`, so it can be fused with the computation of `x`, and nothing waits for the copy.

    A reader is redirected if it certainly reads the same values: source and buffer have the same
    dtype, shape, layout and device and share no memory, both run under the same labels as the
    reader, and nothing writes either between copy and reader. A reader that views the buffer is
    redirected if nothing writes either from the copy on and the view stays in the graph.

    The copy itself is removed if nothing can read the buffer afterwards: nothing in the graph
    does, and the graph allocated the buffer itself. Inputs and tensors of the module may be read
    outside the graph, by the next step or by an operator that keeps them, so copies into these
    stay, unless the caller declares them private.

    Attributes:
        private: Names of inputs and of tensors of the module in the graph (the target of
            the placeholder or `get_attr`) whose content nothing outside the graph reads after
            the graph has written it: no later step, no other graph, and no caller of a function
            that returns it, which Dynamo graphs do not show. Names that a graph does not have
            are ignored.
    """

    private: tuple[str, ...] = ()
    name: str = "forward_copies"
    after: tuple[str, ...] = ("normalize",)
    repeats: bool = True

    def run(self, graph_module: GraphModule) -> PassReport:
        """Redirect readers and remove copies; near misses are readers and copies that stay."""
        copies = graph_module.graph.find_nodes(op="call_function", target=_COPY)
        if not copies:
            return PassReport(name=self.name, modified=False, rules=(_NOTHING,))
        forwarding = _Forwarding(graph_module.graph, frozenset(self.private))
        report = forwarding.run(copies)
        return PassReport(
            name=self.name,
            modified=bool(report.matches),
            rules=(report,),
            no_longer_written=tuple(forwarding.no_longer_written),
        )


class _Forwarding:
    """One run over one graph."""

    def __init__(self, graph: Graph, private: frozenset[str]) -> None:
        self.no_longer_written: list[str] = []
        self._graph = graph
        self._private = private
        self._effects = EffectTable()
        self._aliases = AliasAnalysis(graph, self._effects)
        # For each group of nodes that may share memory those nodes; made when first asked for.
        self._groups: dict[Node, list[Node]] = {}
        self._matches: list[MatchRecord] = []
        self._misses: list[NearMiss] = []

    def run(self, copies: Sequence[Node]) -> RuleReport:
        served = {copy for copy in copies if self._forward(copy)}
        # What a later copy into the same buffer reads of it must be gone before an earlier one is.
        for copy in reversed(copies):
            problem = self._remove(copy)
            if problem is not None and copy in served:
                self._miss(copy, problem)
        return RuleReport(
            rule="forward_copies", matches=tuple(self._matches), near_misses=tuple(self._misses)
        )

    def _forward(self, copy: Node) -> bool:
        """Let readers read the source of a copy; return whether any does now."""
        buffer, source = copy.args[:2]
        if not isinstance(buffer, Node) or not isinstance(source, Node):
            return False
        shown = (copy, *self._equal_views(buffer))
        readers = sorted({user for value in shown for user in value.users if copy < user})
        readers = [
            reader
            for reader in readers
            if reader.op != "output" and not set(shown) & set(self._effects.of(reader).writes)
        ]
        problem = self._copy_problem(copy, buffer, source) if readers else None
        if problem is not None:
            self._miss(copy, problem)
            return False
        redirected = False
        for reader in readers:
            problem = self._reader_problem(reader, copy, shown, source)
            if problem is not None:
                self._miss(reader, problem)
                continue
            views = any(value in self._effects.of(reader).aliases for value in shown)
            for value in shown:
                reader.replace_input_with(value, source)
            record_again((reader,))
            self._matches.append(
                MatchRecord(anchor=reader.name, removed=(), created=(), exact=True)
            )
            redirected = True
            if views:
                self._aliases = AliasAnalysis(self._graph, self._effects)
        return redirected

    def _equal_views(self, buffer: Node) -> Iterator[Node]:
        """Yield a buffer and the other nodes that are the same view of the same value."""
        yield buffer
        base = self._effects.of(buffer).view_of
        if base is None or not self._is_view(buffer):
            return
        for other in base.users:
            if (
                other is not buffer
                and other.target is buffer.target
                and (other.args, other.kwargs) == (buffer.args, buffer.kwargs)
            ):
                yield other

    def _is_view(self, node: Node) -> bool:
        """Return whether a node surely shows memory of another and does nothing besides."""
        effect = self._effects.of(node)
        return effect.view_of is not None and not effect.writes and not effect.barrier

    def _copy_problem(self, copy: Node, buffer: Node, source: Node) -> str | None:
        """Return why the content of the buffer after the copy differs from the source."""
        before, after = value_of(source), value_of(buffer)
        if not isinstance(before, torch.Tensor) or not isinstance(after, torch.Tensor):
            return f"no tensor metadata for `{buffer.name}` or `{source.name}`"
        if (before.dtype, before.device) != (after.dtype, after.device):
            return (
                f"`{copy.name}` turns {before.dtype} on {before.device} into {after.dtype} on "
                f"{after.device}"
            )
        if not shapes_equal(before.shape, after.shape):
            return f"`{copy.name}` spreads {list(before.shape)} over {list(after.shape)}"
        for size, old, new in zip(before.shape, before.stride(), after.stride(), strict=True):
            if not sizes_equal(old, new) and not sizes_equal(size, 1):
                return (
                    f"`{copy.name}` turns the strides {list(before.stride())} into "
                    f"{list(after.stride())}"
                )
        if self._aliases.group(buffer) is self._aliases.group(source):
            return f"`{buffer.name}` and `{source.name}` may share memory"
        return None

    def _reader_problem(
        self, reader: Node, copy: Node, shown: Sequence[Node], source: Node
    ) -> str | None:
        """Return why a user of the buffer must go on to read it there."""
        if reader.op != "call_function" or not isinstance(reader.target, OpOverload):
            return f"`{reader.name}` is no call of an operator"
        if where_it_runs(reader) != where_it_runs(copy):
            return f"`{reader.name}` and `{copy.name}` run under different labels"
        views = any(value in self._effects.of(reader).aliases for value in shown)
        last = None if views else reader
        writer = self._aliases.writer_between(copy.next, last, (shown[1], source))
        if writer is not None:
            return (
                f"`{writer.name}` writes what `{copy.name}` copied, or what it copied it into, "
                + ("later, and the reader is a view" if views else "before it is read")
            )
        if views and escapes(reader, self._effects):
            return f"`{reader.name}` is a view of the buffer that leaves the graph"
        family = views_of(reader, self._effects) if views else ()
        users = [reader, *(user for view in (reader, *family) for user in view.users if views)]
        moved = placement_problem(users, shown[0], source, self._effects)
        return None if moved is None else moved.reason

    def _remove(self, copy: Node) -> str | None:
        """Remove a copy that nobody reads, or return who may."""
        buffer = copy.args[0]
        if not isinstance(buffer, Node):
            return "it copies into no node"
        visible = self._visible(buffer)
        if visible is not None:
            return visible
        members = self._members(buffer)
        given = [node for node in members if node.op in {"placeholder", "get_attr"}]
        visible = next(filter(None, map(self._visible, given)), None)
        if visible is not None:
            return visible
        problem = self._reader_after(copy, members)
        if problem is None and not given:
            problem = self._keeper(self._aliases.group(buffer), members)
        if problem is not None:
            return f"the copy stays: {problem}"
        self.no_longer_written += [str(node.target) for node in given]
        copy.replace_all_uses_with(buffer)
        removed = [copy]
        self._graph.erase_node(copy)
        for member in reversed(members):
            unused = member is not copy and not member.users and member.op == "call_function"
            if unused and (self._is_view(member) or member.target in EMPTY_MEMORY):
                self._graph.erase_node(member)
                removed.append(member)
        for node in removed:
            members.remove(node)
        names = tuple(node.name for node in removed)
        self._matches.append(MatchRecord(anchor=copy.name, removed=names, created=(), exact=True))
        return None

    def _visible(self, buffer: Node) -> str | None:
        """Return why the base of a view is read outside the graph, None if unknown."""
        owner = self._effects.owner(buffer)
        if owner.op not in {"placeholder", "get_attr"} or str(owner.target) in self._private:
            return None
        return (
            f"the copy stays: `{owner.target}` is given to the graph and may be read outside of "
            "it; name it in `private` if nobody does"
        )

    def _members(self, buffer: Node) -> list[Node]:
        """Return the nodes that may share memory with a buffer, in order; updated on removals."""
        if not self._groups:
            for node in self._graph.nodes:
                self._groups.setdefault(self._aliases.group(node), []).append(node)
        return self._groups[self._aliases.group(buffer)]

    def _reader_after(self, copy: Node, members: Sequence[Node]) -> str | None:
        """Return a user of the memory after a copy; a view alone does not count."""
        for member in members:
            for user in member.users:
                if copy < user and not self._is_view(user):
                    return f"`{user.name}` uses the memory later"
        return None

    def _keeper(self, owner: Node, members: Sequence[Node]) -> str | None:
        """Return why memory that was not given to the graph may be known outside of it."""
        target, effect = owner.target, self._effects.of(owner)
        # One that returns what its library keeps need not declare it.
        foreign = isinstance(target, OpOverload) and target.namespace != "aten"
        opaque = effect.aliases or effect.writes or effect.barrier
        if owner.op != "call_function" or foreign or opaque:
            return f"it is not known whose memory `{owner.name}` is"
        for member in members:
            for user in member.users:
                if self._effects.of(user).barrier:
                    return f"`{user.name}` may keep the memory"
        return None

    def _miss(self, node: Node, reason: str) -> None:
        self._misses.append(NearMiss(anchor=node.name, reason=reason, nodes=(node.name,)))
