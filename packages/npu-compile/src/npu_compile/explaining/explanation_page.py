"""The part of an explanation's page above the fusions: figures and pieces."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from npu_compile.explaining.layers import bytes_of, shown_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from npu_compile.explaining.layers import LayerGroup
    from piecewise_split import PlannedPiece, SplitPlan

_STYLE = """
.pieces { display: flex; flex-wrap: wrap; align-items: center; row-gap: .5rem; margin: 1rem 0; }
.piece { border-radius: .4rem; padding: .3rem .6rem; font-size: 13px; line-height: 1.3;
  background: #dcf3df; } .piece b { display: block; }
.splitting { background: #fbe3c8; } .held { padding: 0 .4rem; color: #777; font-size: 12px; }
@media (prefers-color-scheme: dark) { .piece { background: #243f29; }
  .splitting { background: #59401f; } .held { color: #999; } }
"""


def introduction(
    title: str,
    summary: Sequence[str],
    plan: SplitPlan | None,
    layers: Sequence[LayerGroup] = (),
) -> str:
    """Return the HTML."""
    figures = "".join(f"<li>{escape(line)}</li>" for line in summary)
    pieces = "" if plan is None else "".join(_pieces(plan))
    table = "".join(_layer_rows(layers))
    return f"<style>{_STYLE}</style><h1>{escape(title)}</h1><ul>{figures}</ul>{table}{pieces}"


def _layer_rows(layers: Sequence[LayerGroup]) -> Iterator[str]:
    """Yield a table of the launches of one layer of each group, and the bytes they move."""
    if not layers:
        return
    yield (
        "<h2>Layers</h2><table><tr><th>layers<th>launches each, before<th>after"
        "<th>bytes each, before<th>after</tr>"
    )
    for group in layers:
        cells = (
            group.title,
            str(len(group.before)),
            str(len(group.after)),
            shown_bytes(bytes_of(group.before)),
            shown_bytes(bytes_of(group.after)),
        )
        yield f"<tr>{''.join(f'<td>{escape(cell)}' for cell in cells)}</tr>"
    yield "</table>"


def _pieces(plan: SplitPlan) -> Iterator[str]:
    """Yield the pieces in order, each with the memory alive before it."""
    yield (
        f"<h2>{len(plan.pieces)} pieces</h2><p>Captured pieces and splitting ones, in the order "
        "in which they run; between them the bytes that are held at the cut.</p>"
        '<div class="pieces">'
    )
    for piece in plan.pieces:
        if piece.live:
            size = "? B" if piece.live_bytes is None else shown_bytes(piece.live_bytes)
            held = escape(", ".join(piece.live))
            yield f'<span class="held" title="{held}">&rarr; {size} &rarr;</span>'
        yield _piece(piece)
    yield f"</div><details><summary>As a table</summary><pre>{escape(str(plan))}</pre></details>"


def _piece(piece: PlannedPiece) -> str:
    kind = "piece splitting" if piece.is_splitting else "piece"
    if piece.is_splitting:
        what = str(piece.cut_reason.operator)
    else:
        what = f"{len(piece.nodes)} nodes"
        if piece.isomorphic_to != piece.index:
            what += f", as {piece.isomorphic_to}"
    where = f", from {piece.source}" if piece.source else ""
    hint = escape(f"{piece.cut_reason}{where}: {', '.join(piece.nodes)}")
    return f'<span class="{kind}" title="{hint}"><b>{piece.index}</b>{escape(what)}</span>'
