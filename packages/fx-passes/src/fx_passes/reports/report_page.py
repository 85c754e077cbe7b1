"""The page on which `PageObserver` shows fusions: HTML without scripts and other files."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

from fx_passes.reports.report import missing_operators

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from fx_passes.reports.graph_listing import GraphListing
    from fx_passes.reports.report import MatchRecord, NearMiss, PassReport, RuleReport


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
