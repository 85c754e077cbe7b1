"""The way back: values of a functional graph are written into the memory they came from."""

from __future__ import annotations

import operator
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

import torch
from torch.fx import Node
from torch.fx.experimental.symbolic_shapes import statically_known_true

from fx_passes.functional.memory_map import (
    MemoryMap,
    is_view_operator,
    returns_argument,
    same_layout,
    same_size,
    same_strides,
)
from fx_passes.functional.mutable_calls import MutableCall, auto_functionalized_v2
from fx_passes.graph_argument import nodes_in
from fx_passes.graph_pass import GraphPass
from fx_passes.memory.effect import EffectTable
from fx_passes.normal_form.operator_signature import overload_names
from fx_passes.reports.report import MatchRecord, NearMiss, PassReport, RuleReport
from fx_passes.rewriting.checks.overwritten_values import operator_name, writes_a_part
from fx_passes.torch_internals import OpOverload, OpOverloadPacket, schema_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from torch.fx import Graph, GraphModule


aten = torch.ops.aten
_VIEWS_OF_SCATTERS = MappingProxyType(
    {
        aten.diagonal_scatter.default: aten.diagonal.default,
        aten.select_scatter.default: aten.select.int,
        aten.slice_scatter.default: aten.slice.Tensor,
        aten.as_strided_scatter.default: aten.as_strided.default,
    }
)
_DEPENDS_ON_STRIDES = frozenset(
    {aten.as_strided.default, aten.as_strided_scatter.default, auto_functionalized_v2}
)


@dataclass(frozen=True, kw_only=True)
class ReinplacePass(GraphPass):
    """Turns a functional graph of AOTAutograd into one that writes in place.

    Runs after all rules, once; a rule sees functional graphs only. See `reinplace_graph`.
    """

    name: str = "reinplace"

    def run(self, graph_module: GraphModule) -> PassReport:
        """Write values in place if possible; near misses are the copies that remain."""
        report = reinplace_graph(graph_module.graph)
        return PassReport(name=self.name, modified=bool(report.matches), rules=(report,))


def reinplace_graph(graph: Graph) -> RuleReport:
    """Write values of a functional graph into the memory they came from; in place.

    The graph is one that AOTAutograd made: functional but for `copy_` into placeholders at its
    end. Written in place are calls of operators that write (`auto_functionalized_v2`), values of
    which a part is replaced (`slice_scatter`, `index_put`, `index_copy`, ...), also through views,
    and all else whose result is copied into the input it was computed from. A value stays a copy
    where the old one is read later, where an output shows it, or where it is not known to be the
    same memory. A graph that writes elsewhere is left as it is. Doing it twice changes nothing.

    Args:
        graph: The graph. Values need metadata. The owning module is not recompiled.

    Returns:
        A match for each write in place and each copy that is gone; a near miss, with the reason,
        for each copy that remains.
    """
    return _Reinplacer(graph).run()


class _Reinplacer:
    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._map = MemoryMap(graph)
        self._matches: list[MatchRecord] = []
        self._misses: list[NearMiss] = []
        # For each placeholder that the graph writes, the copy at the end of the graph.
        self._epilogue: dict[Node, Node] = {}

    def run(self) -> RuleReport:
        effects = EffectTable()
        for node in self._graph.nodes:
            if effects.of(node).writes:
                target = node.args[0] if node.target is aten.copy_.default else None
                if not isinstance(target, Node) or target.op != "placeholder":
                    self._miss(node, "the graph is not functional: this node writes memory")
                    return self._report()
                self._epilogue[target] = node
            if returns_argument(node.target) and len(effects.of(node).aliases) > 1:
                self._miss(node, "it is not known which of its arguments this call may return")
                return self._report()
        for node in list(self._graph.nodes):
            self._write(node)
        for memory, copy in self._epilogue.items():
            self._drop_copy(memory, copy)
        for node in reversed(list(self._graph.nodes)):
            if not node.users and is_view_operator(node.target):
                self._graph.erase_node(node)
        return self._report()

    def _report(self) -> RuleReport:
        return RuleReport(
            rule="reinplace", matches=tuple(self._matches), near_misses=tuple(self._misses)
        )

    def _write(self, node: Node) -> None:
        call = MutableCall.of(node)
        if call is not None:
            self._write_call(call)
        elif node.target in _VIEWS_OF_SCATTERS:
            self._write_scatter(node)
        elif (twin := _in_place_twin(node.target)) is not None:
            self._write_with_twin(node, twin)

    def _write_with_twin(self, node: Node, twin: OpOverload) -> None:
        base, *others = node.args
        if not isinstance(base, Node):
            return
        root = self._map.root(base)
        if root not in self._epilogue and not writes_a_part(node.target):
            return
        value, region = node.meta.get("val"), self._map.region(base)
        if not isinstance(value, torch.Tensor) or region is None:
            return
        if value.dtype != region.dtype or not same_size(value, region):
            self._miss(node, f"its dtype or shape is not that of `{base.name}`")
            return
        rest = nodes_in((others, node.kwargs))
        problem = self._problem(node, node, base, rest)
        if problem is not None:
            self._miss(node, problem)
            return
        node.target = twin
        self._map.share(node, base)
        node.meta["val"] = region
        self._match(node, removed=(), created=())

    def _write_scatter(self, node: Node) -> None:
        base, source, *arguments = node.args
        if not isinstance(base, Node) or not isinstance(source, Node) or node.kwargs:
            return
        view = _VIEWS_OF_SCATTERS[node.target]  # type: ignore[index]
        # The part of `base` that the scatter replaces may be the new value already.
        written = self._map.same_memory(base, source) and same_layout(
            self._map.view_of(base, view, tuple(arguments)), self._map.region(source)
        )
        problem = self._problem(node, node, base, (source,) if not written else ())
        if problem is not None:
            self._miss(node, problem)
            return
        created: list[Node] = []
        if not written:
            with self._graph.inserting_before(node):
                part = self._graph.call_function(view, (base, *arguments))
                part.meta = {
                    **_carried(node),
                    "val": self._map.view_of(base, view, tuple(arguments)),
                }
                created.append(part)
                copy = self._graph.call_function(aten.copy_.default, (part, source))
                copy.meta = {**_carried(node), "val": part.meta["val"]}
                created.append(copy)
            for each in created:
                self._map.add(each)
        self._map.share(node, base)
        self._match(node, removed=(node,), created=created)
        node.replace_all_uses_with(base)
        self._graph.erase_node(node)

    def _write_call(self, call: MutableCall) -> None:
        node = call.node
        elements = {each.args[1]: each for each in node.users if each.target is operator.getitem}
        if call.bases and len(elements) != len(node.users):
            self._miss(node, "its results are used as a whole")
            return
        memory: list[Node] = []
        written: list[Node] = []
        for number, base in enumerate(call.bases):
            # Behind the results of the operator come the new values of the bases.
            new = elements.get(call.results() + number)
            others = [each for each in call.bases if each is not base]
            problem = self._problem(node, new, base, (*call.read, *others))
            region = self._map.region(base)
            if problem is None and not same_strides(base.meta.get("val"), region):
                problem = f"the memory of `{base.name}` is laid out otherwise than its value"
            if problem is None:
                memory.append(base)
                written.append(base)
                if new is not None:
                    self._map.share(new, base)
                continue
            self._miss(node, problem)
            if not _is_dense(base.meta.get("val")):
                self._miss(node, f"`{base.name}` has gaps, so all that is written stays a copy")
                return
            with self._graph.inserting_before(node):
                clone = self._graph.call_function(aten.clone.default, (base,))
            clone.meta = {**_carried(node), "val": base.meta.get("val")}
            self._map.add(clone)
            memory.append(clone)
        if written or not call.bases:
            self._match(node, removed=(node,), created=())
        created = call.write(self._graph, memory)
        for each in created:
            self._map.add(each)

    def _problem(
        self, node: Node, new: Node | None, base: Node, others: Iterable[Node]
    ) -> str | None:
        """Return why a node may not write its new value over the old one, `base`, or None."""
        root = self._map.root(base)
        problem = self._problem_of_memory(base, root)
        if problem is not None:
            return problem
        shared = next((each for each in others if self._map.root(each) is root), None)
        if shared is not None:
            return f"it reads `{shared.name}`, which shares memory with `{base.name}`"
        reader = self._late_reader(node, new, base, root)
        if reader is not None:
            return f"`{reader.name}` reads the old value of `{base.name}` later"
        if new is None:
            return None
        if not self._views_fit(new, base):
            return f"a view of `{new.name}` does not exist in the memory of `{base.name}`"
        return self._problem_at_the_end(new, base, root)

    def _problem_of_memory(self, base: Node, root: Node) -> str | None:
        if not self._map.certain(base):
            return f"`{base.name}` may be a copy of what it views"
        given = root.op == "placeholder" and root not in self._epilogue
        if given or root.op not in {"placeholder", "call_function"}:
            return f"`{root.name}` must keep its value"
        region = self._map.region(base)
        if region is None or _overlaps_itself(region):
            return f"`{base.name}` shows the same element twice, or it is not known"
        return None

    def _late_reader(self, node: Node, new: Node | None, base: Node, root: Node) -> Node | None:
        memory = self._map
        for reader, read in memory.readers(memory.members(root)):
            if reader is node or reader < node:
                continue
            # A scatter may read everything except the part that it would replace.
            if (
                new is not None
                and reader.args[:1] == (read,)
                and self._place_in_time(reader, new, base) is not None
            ):
                continue
            return reader
        return None

    def _place_in_time(self, node: Node, new: Node, base: Node) -> object:
        """Return where a value would be in memory if the new value were written over `base`.

        Known for the new value, for its views, and for the result of a scatter of it into the
        memory around `base`, if the scatter puts it where it already is.
        """
        if node is new:
            return self._map.region(base)
        first = node.args[0] if node.args else None
        if not isinstance(first, Node):
            return None
        view = _VIEWS_OF_SCATTERS.get(node.target)  # type: ignore[call-overload]
        if view is None:
            is_view = node.target is operator.getitem or is_view_operator(node.target)
            region = self._place_in_time(first, new, base) if is_view else None
            return None if region is None else self._map.run_view(node, region)
        source = node.args[1]
        inside = self._map.root(first) is self._map.root(base) and self._map.certain(first)
        if node.kwargs or not isinstance(source, Node) or not inside:
            return None
        replaced = self._map.view_of(first, view, tuple(node.args[2:]))
        now = self._place_in_time(source, new, base)
        return self._map.region(first) if same_layout(replaced, now) else None

    def _views_fit(self, new: Node, base: Node) -> bool:
        if same_strides(new.meta.get("val"), self._map.region(base)):
            return True
        for view in self._map.views(new):
            if any(user.target in _DEPENDS_ON_STRIDES for user in view.users):
                return False
            if view is not new and self._place_in_time(view, new, base) is None:
                return False
        return True

    def _problem_at_the_end(self, new: Node, base: Node, root: Node) -> str | None:
        """Return the problem if the graph writes the input at its end, or None."""
        copy = self._epilogue.get(root)
        if copy is None:
            return None
        source = copy.args[1]
        views = set(self._map.views(new))
        if source in views:
            region = self._place_in_time(source, new, base)  # type: ignore[arg-type]
            if not same_layout(region, self._map.region(root)):
                return f"`{copy.name}` copies another part of it into `{root.name}`"
            return None
        for reader, _ in self._map.readers(tuple(views)):
            if copy < reader:
                return f"`{reader.name}` reads it after `{copy.name}` wrote `{root.name}`"
        return None

    def _drop_copy(self, memory: Node, copy: Node) -> None:
        source = copy.args[1]
        if (
            isinstance(source, Node)
            and self._map.same_memory(memory, source)
            and (same_layout(self._map.region(memory), self._map.region(source)))
        ):
            self._match(copy, removed=(copy,), created=())
            copy.replace_all_uses_with(memory)
            self._graph.erase_node(copy)
        else:
            self._miss(copy, f"`{source}` was computed elsewhere than in `{memory.name}`")

    def _match(self, node: Node, *, removed: Iterable[Node], created: Iterable[Node]) -> None:
        self._matches.append(
            MatchRecord(
                anchor=node.name,
                removed=tuple(each.name for each in removed),
                created=tuple(each.name for each in created),
            )
        )

    def _miss(self, node: Node, reason: str) -> None:
        self._misses.append(NearMiss(anchor=node.name, reason=reason, nodes=(node.name,)))


def _in_place_twin(target: object) -> OpOverload | None:
    """Return the operator that computes the same and writes it over its first argument."""
    # The twin of a view, such as `t_`, writes no values; it turns the tensor itself.
    if not isinstance(target, OpOverload) or target.is_view:
        return None
    packet = getattr(getattr(torch.ops, target.namespace), f"{operator_name(target)}_", None)
    overload = schema_of(target).overload_name or "default"
    if not isinstance(packet, OpOverloadPacket) or overload not in overload_names(packet):
        return None
    twin: OpOverload = getattr(packet, overload)
    arguments = schema_of(target).arguments
    others = schema_of(twin).arguments
    written = [each.name for each in others if each.alias_info and each.alias_info.is_write]
    same = [(each.name, str(each.type)) for each in arguments]
    if written != [arguments[0].name] or same != [(each.name, str(each.type)) for each in others]:
        return None
    return twin


def _carried(node: Node) -> dict[str, object]:
    return {key: value for key, value in node.meta.items() if key != "val"}


def _overlaps_itself(value: torch.Tensor) -> bool:
    """Return whether two elements may be the same memory, as those of an expanded tensor are."""
    return not all(
        statically_known_true(size == 1) or statically_known_true(stride != 0)
        for size, stride in zip(value.shape, value.stride(), strict=True)
    )


def _is_dense(value: object) -> bool:
    """Return whether a clone has the strides of the tensor itself, surely."""
    return isinstance(value, torch.Tensor) and same_strides(torch.empty_like(value), value)
