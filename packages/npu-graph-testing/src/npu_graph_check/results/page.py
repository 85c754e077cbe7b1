"""Results as one self-contained HTML page."""

from __future__ import annotations

import html
import json
import re
from typing import TYPE_CHECKING

from npu_graph_check.probes.table import GROUPS
from npu_graph_check.register.register import row_words
from npu_graph_check.results.probe_result import ANSWERED, NOT_TRIED, OTHERWISE
from npu_graph_check.results.text import summary

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from npu_graph_check.results.probe_result import ProbeResult
    from npu_graph_check.results.result_file import Results

_STYLE = """
body{font:15px/1.5 system-ui,sans-serif;max-width:70rem;margin:2rem auto;padding:0 1rem}
body{color:#1f2328}table{border-collapse:collapse;margin:.3rem 0 .6rem}
td,th{padding:.1rem .7rem .1rem 0;text-align:left;vertical-align:top}
th{font-weight:600;color:#59636e}code{font-size:90%;overflow-wrap:anywhere}
details{border-top:1px solid #d1d9e0;padding:.35rem 0}summary{cursor:pointer}
.v{display:inline-block;min-width:6.5rem;font-weight:600}.confirmed .v{color:#1a7f37}
.otherwise .v{color:#cf222e}.not-tried .v{color:#9a6700}.differs td{color:#cf222e}
.answered .v{color:#0969da}.small{color:#59636e;font-size:90%}
"""


def as_page(results: Results) -> str:
    """Return a self-contained page on which unexpected results and answers are open."""
    parts = [
        "<!doctype html><html lang=en><meta charset=utf-8>",
        "<meta name=viewport content='width=device-width,initial-scale=1'>",
        f"<title>npu-graph-check</title><style>{_STYLE}</style>",
        f"<h1>npu-graph-check</h1><p><b>{html.escape(summary(results))}</b></p>",
        f"<p class=small>Begun {html.escape(results.begun)}; ",
        f"{html.escape(results.ended or 'it is still running, or was killed')}.</p>",
        *_links(results),
        "<details open><summary>Environment</summary><table>",
        *(_row(name, value) for name, value in results.environment.items()),
        "</table></details>",
    ]
    group, titles = "", {each.name: each.title for each in GROUPS}
    for result in results.probes:
        if result.group != group:
            group = result.group
            title = html.escape(titles.get(group, ""))
            parts.append(f"<h2>{html.escape(group)} <span class=small>{title}</span></h2>")
        parts += _probe(result)
    return "\n".join(parts) + "\n"


def _links(results: Results) -> Iterator[str]:
    """Yield a list of links for each verdict that a reader looks for first."""
    for verdict in (OTHERWISE, NOT_TRIED):
        names = [html.escape(each.id) for each in results.probes if each.verdict == verdict]
        if names:
            links = ", ".join(f'<a href="#{name}">{name}</a>' for name in names)
            yield f"<p>{verdict}: {links}</p>"


def _probe(result: ProbeResult) -> Iterator[str]:
    kind = result.verdict.replace(" ", "-")
    is_open = " open" if result.verdict in {ANSWERED, OTHERWISE} else ""
    yield f'<details id="{html.escape(result.id)}" class={kind}{is_open}>'
    yield f"<summary><span class=v>{result.verdict}</span>{_marked(result.title)}</summary>"
    yield f"<p class=small><code>{html.escape(result.id)}</code>, {result.seconds} s</p>"
    if result.because:
        yield f"<p>{_marked(result.because)}</p>"
    if result.observations:
        yield "<table><tr><th>what<th>seen<th>expected</tr>"
        for each in result.observations:
            differs = "" if each.agrees else " class=differs"
            yield f"<tr{differs}><td>{_marked(each.what)}<td>{_value(each.seen)}"
            yield f"<td>{_value(each.expected)}</tr>"
        yield "</table>"
    if result.figures:
        yield "<table><tr><th>figure<th>value</tr>"
        yield from (
            _row(each.name, f"{each.value} {each.unit}".rstrip()) for each in result.figures
        )
        yield "</table>"
    for row, words in row_words(result.rows).items():
        yield f"<p class=small><code>{row}</code> {_marked(words)}</p>"
    yield "</details>"


def _marked(text: str) -> str:
    """Return text as HTML, with what stands between backticks as code."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", html.escape(text))


def _row(name: str, value: str) -> str:
    return f"<tr><td>{html.escape(name)}<td>{html.escape(value)}</tr>"


def _value(value: Any) -> str:
    return f"<code>{html.escape(json.dumps(value, ensure_ascii=False))}</code>"
