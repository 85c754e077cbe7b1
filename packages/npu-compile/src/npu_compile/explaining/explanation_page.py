"""What stands above the fusions on the page of an explanation: figures and the pieces."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from piecewise_split import PlannedPiece, SplitPlan

_STYLE = """
.pieces { display: flex; flex-wrap: wrap; align-items: center; row-gap: .5rem; margin: 1rem 0; }
.piece { border-radius: .4rem; padding: .3rem .6rem; font-size: 13px; line-height: 1.3;
  background: #dcf3df; } .piece b { display: block; }
.splitting { background: #fbe3c8; } .held { padding: 0 .4rem; color: #777; font-size: 12px; }
@media (prefers-color-scheme: dark) { .piece { background: #243f29; }
  .splitting { background: #59401f; } .held { color: #999; } }
"""


def introduction(title: str, summary: Sequence[str], plan: SplitPlan | None) -> str:
    """Return the HTML.

    Args:
        title: of the page.
        summary: lines of figures, as text.
        plan: how the graph is split, if it is.
    """
    figures = "".join(f"<li>{escape(line)}</li>" for line in summary)
    pieces = "" if plan is None else "".join(_pieces(plan))
    return f"<style>{_STYLE}</style><h1>{escape(title)}</h1><ul>{figures}</ul>{pieces}"


def _pieces(plan: SplitPlan) -> Iterator[str]:
    """Yield the pieces in their order, each with what is held in memory in front of it."""
    yield (
        f"<h2>{len(plan.pieces)} pieces</h2><p>Captured pieces and splitting ones, in the order "
        "in which they run; between them the bytes that are held at the cut.</p>"
        '<div class="pieces">'
    )
    for piece in plan.pieces:
        if piece.live:
            size = "? B" if piece.live_bytes is None else _readable(piece.live_bytes)
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


def _readable(count: int) -> str:
    """Return a number of bytes in the unit in which it is easiest read."""
    size, unit = float(count), "B"
    for larger in ("KiB", "MiB", "GiB"):
        if size < 1024:
            break
        size, unit = size / 1024, larger
    return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
