"""docs/architectures.md, made of the rows."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING

import transformers

from fx_passes.raising import SITE_KINDS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from raising.architectures.architecture_row import ArchitectureRow

__all__ = ["table_of"]

_NAMES = {"norm": "norms", "rope": "rotary", "activation": "activations", "attention": "attention"}


def table_of(rows: Sequence[ArchitectureRow]) -> str:
    """Return the document."""
    return "\n".join(_lines(rows)) + "\n"


def _lines(rows: Sequence[ArchitectureRow]) -> Iterator[str]:
    tried = [row for row in rows if not row.skipped]
    version = ".".join(transformers.__version__.split(".")[:2])
    yield "# Architectures of transformers, raised"
    yield ""
    yield (
        "This page shows what `fx_passes.raising.raise_model` raises in the decoder architectures "
        f"of transformers {version}: tiny models with random weights, mostly of two layers, "
        "compiled by `torch.compile` on simulated CANN. `./nox -s architectures -- --write` "
        "generates it."
    )
    yield ""
    yield "| kind | raised | found | share |"
    yield "|---|---|---|---|"
    for kind in SITE_KINDS:
        raised = sum(row.raised.get(kind, 0) for row in tried)
        found = sum(row.found.get(kind, 0) for row in tried)
        yield f"| {_NAMES[kind]} | {raised} | {found} | {100 * raised / max(found, 1):.1f} % |"
    yield ""
    wrong = sum(row.values == "wrong" for row in tried)
    crashed = sum(bool(row.crashed) for row in tried)
    yield (
        f"{len(tried)} architectures: {wrong} with wrong values, {crashed} failed. A place is "
        "recognised by a typical node in the graph, such as a mean of squares, whether a rule "
        "supports it or not. If the model calls more modules named RMSNorm, or more functions that "
        "rotate halves or neighbours, than there are such nodes, those count. Values are compared "
        "with the model in float64: in bfloat16, or in float32 if rounding changes a model's "
        "choices, such as its experts."
    )
    yield ""
    heads = " | ".join(_NAMES[kind] for kind in SITE_KINDS)
    yield f"| architecture | {heads} | values as eager in |"
    yield "|---|" + "---|" * len(SITE_KINDS) + "---|"
    for row in tried:
        cells = [
            f"{row.raised.get(kind, 0)} of {row.found[kind]}" if row.found.get(kind) else "-"
            for kind in SITE_KINDS
        ]
        values = f"failed: {row.crashed}" if row.crashed else row.values
        yield f"| {row.kind} | {' | '.join(cells)} | {values} |"
    yield ""
    yield "## Places that are not raised, and why"
    yield ""
    yield "| architecture | kind | places | why |"
    yield "|---|---|---|---|"
    for row in tried:
        for kind in SITE_KINDS:
            reasons: Counter[str] = Counter()
            for reason, count in row.left.get(kind, {}).items():
                # Layers differ in the numbers of their nodes.
                text = re.sub(r"(`[a-z_]+?)_\d+`", r"\1`", reason.partition("; known is")[0])
                reasons[text.replace("|", "\\|")] += count
            for text, count in reasons.items():
                yield f"| {row.kind} | {_NAMES[kind]} | {count} | {text} |"
    skipped = [row for row in rows if row.skipped]
    if skipped:
        yield ""
        yield "## Without a tiny model"
        yield ""
        yield ", ".join(row.kind for row in skipped) + "."
