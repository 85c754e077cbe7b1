"""The page of SGLang's runs: loads and our parts, or the reason why there was no run.

Run as ``python -m engines.pages.sglang_matrix`` after the sessions, whose rows it reads from
build/engines/sglang*.json. It prints the page; ``--write`` writes docs/engines-sglang.md. Rows that
were not run again keep their text.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from engines.pages.engine_page import ROOT, print_or_write

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

PAGE = ROOT / "docs" / "engines-sglang.md"
# What is not run, and why.
OTHERS = {
    "`--enable-torch-compile`": "not run; the engine failed in Dynamo before any part of ours",
}


def told_of_decode(row: dict[str, Any]) -> str:
    """Return the text for a row of engines/sglang/session.py, besides its tokens."""
    waits, steps = row["waits_in_graph_steps"], row["graph_steps"]
    told = f"the host waits in {waits} of {steps} steps of a graph; {row['replays']} replays"
    return f"{told}{told_of_pages(row)}"


def told_of_pages(row: dict[str, Any]) -> str:
    """Return the text for a row about sequences that had to return their pages."""
    retracted = row.get("retracted")
    return f"; {retracted} sequences gave their pages back" if retracted else ""


def told_of_prefill(row: dict[str, Any]) -> str:
    """Return the text for a row of engines/sglang/prefill.py, besides its tokens."""
    return f"{row['chunks_by_graph']} of {row['chunks']} chunks by graph{told_of_pages(row)}"


def told_of_eagle(row: dict[str, Any]) -> str:
    """Return the text for a row of engines/sglang/eagle.py, besides its tokens."""
    return (
        f"{row['verifications']} verifications; {row['task_updates']} updates, "
        f"{row['synchronisations']} waits{told_of_pages(row)}"
    )


def told_of_fusions(row: dict[str, Any]) -> str:
    """Return the text for a row of engines/sglang/fusions.py, besides its tokens."""
    told = f"{row['replayed_kernels'] / row['replays']:.1f} kernels a step"
    if row["differ"]:
        differ = f"first differences in {row['differ']} sequences"
        told += f"; {differ}, margin at most {row['widest']:.3f}"
    largest = max(row["fusions"], key=int, default=None)
    for rule, count in row["fusions"].get(largest, {}).items():
        told += f"; `{rule}` {count}"
    return f"{told}{told_of_pages(row)}"


DECODE = {
    "stock": "the engine alone",
    "off": "our plugin, switched off",
    "ours": "attention update",
    "captured": "attention update, graphs by npu-graph-runtime",
    "control": "control: key lengths that are one too small",
}
SESSIONS: dict[str, tuple[str, dict[str, str], Callable[[dict[str, Any]], str]]] = {
    "sglang.json": ("decode", DECODE, told_of_decode),
    **{
        f"sglang-{session}.json": ("decode", DECODE, told_of_decode)
        for session in ("models", "lora", "ranks", "idle-rank")
    },
    "sglang-prefill.json": (
        "prefill in chunks",
        {
            "stock": "the engine alone, eager",
            "breakable": "the engine's own breakable graphs",
            "ours": "breakable graphs by npu-graph-runtime",
            "both": "breakable graphs, attention update, decode graphs by npu-graph-runtime",
            "control": "control: another last token in each captured chunk",
        },
        told_of_prefill,
    ),
    "sglang-eagle.json": (
        "EAGLE-3 draft",
        {
            "stock": "the engine alone",
            "ours": "attention update of all three runners",
            "control": "control: lengths of verification that are one too small",
        },
        told_of_eagle,
    ),
    "sglang-fusions.json": (
        "decode, fused",
        {
            "stock": "the engine alone",
            "fused": "fusions, attention update",
            "captured": "fusions, attention update, graphs by npu-graph-runtime",
            "apart": "fusions, each computed by what it replaced",
            "control": "control: norms that are wrong",
        },
        told_of_fusions,
    ),
}
"""Files of rows: the load, the names of the variants, and what is told of each."""


Line = tuple[str, str]
"""The load without the number of its sequences, and the part: what a line of the table is about."""


def read_rows(folder: Path) -> dict[Line, str]:
    """Return the lines of all rows."""
    lines = {}
    for file, (load, parts, tell) in SESSIONS.items():
        path = folder / file
        for row in json.loads(path.read_text()) if path.exists() else []:
            if "equal_tokens" in row and row["name"] in parts:
                what, part = f"{load}, {row['dtype']}", parts[row["name"]]
                told = f"{row['equal_tokens']} of {row['num_tokens']} | {tell(row)}"
                line = f"| {what}, {row['sequences']} sequences | {part} | {told} |"
                lines[what, part] = line
    return lines


def read_page(text: str) -> dict[Line, str]:
    """Return the lines of a page with results of runs."""
    found = re.finditer(r"^\| (.+), \d+ sequences \| (.+?) \| \d+ of .*$", text, re.MULTILINE)
    return {(line[1], line[2]): line[0] for line in found}


def order(line: Line) -> tuple[int, str, int]:
    """Return the sort key of a line: the load, its model, and the part."""
    loads = list(dict.fromkeys(load for load, _, _ in SESSIONS.values()))
    what, part = line
    number = next(number for number, load in enumerate(loads) if what.startswith(f"{load}, "))
    parts = [part for _, names, _ in SESSIONS.values() for part in names.values()]
    return number, what, parts.index(part)


def page(folder: Path, before: str) -> str:
    """Return the page; lines that were not run again are copied from the previous page."""
    lines = ["| load | part | tokens of the engine alone | |", "|---|---|---|---|"]
    found = read_page(before) | read_rows(folder)
    lines += [found[each] for each in sorted(found, key=order)]
    lines += [f"| {what} | all | {reason} | |" for what, reason in OTHERS.items()]
    table = "\n".join(lines)
    return f"""# Results in SGLang 0.5.23

`python -m engines.pages.sglang_matrix --write` generates this page from the rows of the sessions of
`./nox -s "engine(sglang)"`, on simulated CANN. Models have random weights; where none is named, it
is a dense Qwen3. Sequences join and leave. Those of prefill have common prefixes, are longer than a
chunk, or give their pages back. With two ranks, steps and waits are totals of both.

{table}
"""


if __name__ == "__main__":
    print_or_write(__doc__, PAGE, page)
