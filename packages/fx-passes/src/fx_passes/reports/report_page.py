"""The page on which `PageObserver` shows fusions: HTML without scripts and other files."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

import torch
from torch.fx import Node

from fx_passes.graph_argument import nodes_in
from fx_passes.reports.report import missing_operators
from fx_passes.torch_internals import OpOverload

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from torch.fx import Graph, GraphModule

    from fx_passes.reports.report import MatchRecord, NearMiss, PassReport, RuleReport


class GraphListing:
    """The nodes of a graph at one time, by name and in order; some 10 microseconds a node.

    Attributes:
        nodes: For each its text, such as ``y: bfloat16[4, 64] = aten.neg.default(x)``, and the
            names of the nodes that it takes.
    """

    def __init__(self, graph: Graph) -> None:
        self.nodes = {node.name: _listed(node) for node in graph.nodes}

    def text(self) -> str:
        """Return the whole graph."""
        return "\n".join(text for text, _ in self.nodes.values())

    def part(self, names: set[str]) -> list[tuple[str, bool]]:
        """Return the lines of some nodes and of their inputs, in the graph's order.

        Returns:
            For each line its text, and whether it is one of these nodes.
        """
        inputs = {each for name in names if name in self.nodes for each in self.nodes[name][1]}
        return [
            (text, name in names)
            for name, (text, _) in self.nodes.items()
            if name in names or name in inputs
        ]


def _listed(node: Node) -> tuple[str, set[str]]:
    arguments = [_spelled(each) for each in node.args]
    arguments += [f"{name}={_spelled(each)}" for name, each in node.kwargs.items()]
    called = f"{_target(node)}({', '.join(arguments)})"
    kind = _kind(node.meta.get("val", node.meta.get("example_value")))
    named = f"{node.name}: {kind}" if kind else node.name
    text = {"placeholder": f"{named} = input", "output": f"return {', '.join(arguments)}"}.get(
        node.op, f"{named} = {called}"
    )
    return text, {each.name for each in nodes_in((node.args, node.kwargs))}


def _target(node: Node) -> str:
    target = node.target
    if node.op == "call_method":
        return f".{target}"
    if isinstance(target, (str, OpOverload)):
        return str(target)
    module = getattr(target, "__module__", "") or ""
    return f"{module.removeprefix('_')}.{getattr(target, '__name__', target)}".removeprefix(".")


def _spelled(argument: object) -> str:
    if isinstance(argument, Node):
        return argument.name
    if isinstance(argument, (tuple, list)):
        inside = ", ".join(map(_spelled, argument))
        return f"[{inside}]" if isinstance(argument, list) else f"({inside})"
    if isinstance(argument, slice):
        return ":".join(
            "" if each is None else _spelled(each) for each in (argument.start, argument.stop)
        )
    return str(argument) if isinstance(argument, torch.dtype) else repr(argument)


def _kind(value: object) -> str:
    """Return data type and shape, or those of each element; empty where nothing is known."""
    if isinstance(value, torch.Tensor):
        return f"{str(value.dtype).removeprefix('torch.')}[{', '.join(map(str, value.shape))}]"
    if isinstance(value, (tuple, list)):
        inside = ", ".join(_kind(each) or "None" for each in value)
        return f"({inside})"
    return f"{type(value).__name__} {value}" if isinstance(value, torch.SymInt) else ""


_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 80rem; padding: 0 1rem;
  color: #1c1c1c; background: #fff; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.2rem; margin-top: 2.5rem; } h3 { font-size: 1rem; }
table { border-collapse: collapse; margin: 1rem 0; }
th, td { border-bottom: 1px solid #ddd; padding: .25rem .75rem; text-align: left;
  vertical-align: top; }
td.number { text-align: right; }
pre { background: #f5f5f5; padding: .75rem; overflow-x: auto; margin: 0; font-size: 13px; }
.pair { display: grid; grid-template-columns: 1fr 1fr; gap: 1rem; margin: .5rem 0 1.5rem; }
.gone { background: #fde2e1; } .new { background: #dcf3df; } .near { color: #777; }
summary { cursor: pointer; padding: .2rem 0; } code { font-size: 13px; }
@media (max-width: 60rem) { .pair { grid-template-columns: 1fr; } }
@media (prefers-color-scheme: dark) { body { color: #e4e4e4; background: #171717; }
  pre { background: #222; } th, td { border-color: #3a3a3a; } .gone { background: #522; }
  .new { background: #243f29; } .near { color: #999; } }
"""


@dataclass(frozen=True, kw_only=True)
class PageStep:
    """One run of a pass on a graph; graphs are numbered from 1."""

    graph: int
    report: PassReport
    before: GraphListing
    after: GraphListing


def report_page(steps: Sequence[PageStep], introduction: str = "") -> str:
    """Return the page of some runs of passes, in the order in which they ran."""
    body = "\n".join((introduction, *_body(steps)))
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>Fusions</title><style>{_STYLE}</style></head>\n<body>\n{body}\n</body></html>\n"
    )


def _body(steps: Sequence[PageStep]) -> Iterator[str]:
    graphs = sorted({step.graph for step in steps})
    made = sum(len(rule.matches) for step in steps for rule in step.report.rules)
    yield f"<h1>Rewrites: {made}, graphs: {len(graphs)}</h1>"
    yield from _table(steps)
    for graph in graphs:
        own = [step for step in steps if step.graph == graph]
        first, last = own[0].before, own[-1].after
        yield f'<h2 id="graph-{graph}">Graph {graph}</h2>'
        yield f"<p>{len(first.nodes)} nodes before, {len(last.nodes)} after.</p>"
        told: set[tuple[str, NearMiss]] = set()
        for step in own:
            yield from _step(step, told)
        yield _folded("The whole graph before", first.text())
        yield _folded("The whole graph after", last.text())


def _table(steps: Sequence[PageStep]) -> Iterator[str]:
    """Yield how often each rule matched and nearly matched, and why it was not tried."""
    rules: dict[str, list[tuple[int, RuleReport]]] = {}
    for step in steps:
        for report in step.report.rules:
            rules.setdefault(report.rule, []).append((step.graph, report))
    idle: list[str] = []
    yield "<table><tr><th>rule</th><th>rewrites</th><th>near misses</th></tr>"
    for rule, reports in rules.items():
        matches = sum(len(report.matches) for _, report in reports)
        misses = len({(graph, miss) for graph, report in reports for miss in report.near_misses})
        name = f"<tr><td><code>{escape(rule)}</code></td>"
        if matches or misses:
            yield f'{name}<td class="number">{matches}</td><td class="number">{misses}</td></tr>'
        else:
            remark = _remark([report for _, report in reports])
            idle.append(f"{name}<td>{escape(remark)}</td></tr>")
    yield "</table>"
    if idle:
        yield f"<details><summary>Rules that had nothing to do: {len(idle)}</summary><table>"
        yield from idle
        yield "</table></details>"


def _remark(reports: Sequence[RuleReport]) -> str:
    for report in reports:
        if report.waiting_for:
            return f"not tried: {missing_operators(report.waiting_for)}"
        if report.left_out:
            return f"left out: {report.left_out}"
    if all(report.absent for report in reports):
        absent = sorted({call for report in reports for call in report.absent})
        return f"no graph has a call of {' or '.join(absent)}"
    return ""


def _step(step: PageStep, told: set[tuple[str, NearMiss]]) -> Iterator[str]:
    """Yield what a pass did; near misses that an earlier round has told are left out."""
    report = step.report
    misses = {
        rule.rule: [miss for miss in rule.near_misses if (rule.rule, miss) not in told]
        for rule in report.rules
    }
    told.update((rule, miss) for rule, found in misses.items() for miss in found)
    if report.modified or any(misses.values()):
        detail = f": {report.detail}" if report.detail else ""
        yield f"<h3>{escape(report.name)}, round {report.round}{escape(detail)}</h3>"
    for rule in report.rules:
        for match in rule.matches:
            yield from _match(step, rule.rule, match)
        if misses[rule.rule]:
            yield from _near_misses(rule.rule, misses[rule.rule])


def _match(step: PageStep, rule: str, match: MatchRecord) -> Iterator[str]:
    literals = ", ".join(f"{name}={value}" for name, value in match.literals.items())
    bound = f" [{escape(literals)}]" if literals else ""
    before = step.before.part({match.anchor, *match.removed, *match.replaced})
    after = step.after.part({*match.created, *match.replaced.values()})
    yield f"<div><code>{escape(rule)}</code> at <code>{escape(match.anchor)}</code>{bound}</div>"
    yield f'<div class="pair">{_lines(before, "gone")}{_lines(after, "new")}</div>'


def _lines(lines: Sequence[tuple[str, bool]], kind: str) -> str:
    if not lines:
        # What this pass made and another of its rewrites took in again.
        return '<pre class="near">rewritten again within this pass</pre>'
    shown = "\n".join(
        f'<span class="{kind if is_own else "near"}">{escape(text)}</span>'
        for text, is_own in lines
    )
    return f"<pre>{shown}</pre>"


def _near_misses(rule: str, misses: Sequence[NearMiss]) -> Iterator[str]:
    where: dict[str, list[str]] = {}
    for miss in misses:
        where.setdefault(miss.reason, []).append(miss.anchor)
    yield f"<details><summary><code>{escape(rule)}</code>: {len(misses)} near misses</summary><ul>"
    for reason, names in where.items():
        places = ", ".join(f"<code>{escape(name)}</code>" for name in names)
        yield f"<li>{escape(reason)} ({len(names)}): {places}</li>"
    yield "</ul></details>"


def _folded(title: str, text: str) -> str:
    return f"<details><summary>{escape(title)}</summary><pre>{escape(text)}</pre></details>"


class PageObserver:
    """Keeps the graph before and after each pass, and shows every fusion between them.

    One observer may observe many runs, one after the other: its page shows all graphs. A pass
    costs some 20 microseconds per node of the graph.
    """

    def __init__(self) -> None:
        self._steps: list[PageStep] = []
        self._before: GraphListing | None = None
        self._graph_module: GraphModule | None = None
        self._graphs = 0

    def before_pass(self, graph_module: GraphModule, name: str) -> None:
        """Keep the graph as it is."""
        del name
        if graph_module is not self._graph_module:
            self._graph_module, self._graphs = graph_module, self._graphs + 1
            self._before = GraphListing(graph_module.graph)

    def after_pass(self, graph_module: GraphModule, report: PassReport) -> None:
        """Keep the graph as it is now."""
        before = self._before or GraphListing(graph_module.graph)
        after = GraphListing(graph_module.graph) if report.modified else before
        self._steps.append(PageStep(graph=self._graphs, report=report, before=before, after=after))
        self._before = after

    def html(self, introduction: str = "") -> str:
        """Return the page: one self-contained text.

        Args:
            introduction: HTML above the fusions, for callers with more information about a
                compilation; inserted unchanged.
        """
        return report_page(self._steps, introduction)

    def write(self, path: Path) -> None:
        """Write the page; an existing file is replaced, missing folders are made."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(self.html(), encoding="utf-8")
