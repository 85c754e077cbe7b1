"""The page of what was run of SGLang: loads and parts of ours, or why not.

Run as ``python engines/sglang_matrix.py`` behind the sessions, whose rows it reads from
build/engines/sglang*.json; it prints the page, and ``--write`` writes docs/engines-sglang.md.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "engines-sglang.md"
# What is not run, and why.
OTHERS = {
    "fusions of fx-passes": "not adopted: Dynamo fails on the engine's model",
    "quantised checkpoints": "not run",
    "DeepSeek-shaped (MLA), Qwen3-MoE": "not run",
    "LoRA": "not run",
    "tensor and data parallelism": "not run",
    "`--enable-torch-compile`": "not run; the engine failed in Dynamo before any part of ours",
}


def told_of_decode(row: dict[str, Any]) -> str:
    """Return what a row of sglang_session.py says beside its tokens."""
    waits, steps = row["waits_in_graph_steps"], row["graph_steps"]
    return f"the host waits in {waits} of {steps} steps of a graph; {row['replays']} replays"


def told_of_prefill(row: dict[str, Any]) -> str:
    """Return what a row of sglang_prefill.py says beside its tokens."""
    return (
        f"{row['chunks_by_graph']} of {row['chunks']} chunks by graph; {row['retracted']} "
        f"sequences gave their pages back"
    )


def told_of_eagle(row: dict[str, Any]) -> str:
    """Return what a row of sglang_eagle.py says beside its tokens."""
    return (
        f"{row['verifications']} verifications; {row['task_updates']} updates, "
        f"{row['synchronisations']} waits"
    )


SESSIONS: dict[str, tuple[str, dict[str, str], Callable[[dict[str, Any]], str]]] = {
    "sglang.json": (
        "decode",
        {
            "stock": "the engine alone",
            "off": "our plugin, switched off",
            "ours": "attention update",
            "captured": "attention update, graphs by npu-graph-runtime",
            "control": "control: key lengths that are one too small",
        },
        told_of_decode,
    ),
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
        {"stock": "the engine alone", "ours": "attention update of all three runners"},
        told_of_eagle,
    ),
}
"""Files of rows: the load, the names of the variants, and what is told of each."""


def read_lines(folder: Path) -> list[str]:
    """Return the lines of the table."""
    lines = []
    for file, (load, parts, tell) in SESSIONS.items():
        path = folder / file
        rows = json.loads(path.read_text()) if path.exists() else []
        for row in rows:
            if "equal_tokens" in row and row["name"] in parts:
                what = f"{load}, {row['dtype']}, {row['sequences']} sequences"
                tokens = f"{row['equal_tokens']} of {row['num_tokens']}"
                lines.append(f"| {what} | {parts[row['name']]} | {tokens} | {tell(row)} |")
    return lines


def page(folder: Path) -> str:
    """Return the page."""
    lines = ["| load | part | tokens of the engine alone | |", "|---|---|---|---|"]
    lines += read_lines(folder)
    lines += [f"| {what} | all | {reason} | |" for what, reason in OTHERS.items()]
    table = "\n".join(lines)
    return f"""# SGLang 0.5.23: what ran with our parts

Made by `python engines/sglang_matrix.py --write` from the rows of the sessions of `./nox -s
"engine(sglang)"`, on simulated CANN, with a dense Qwen3 of random weights. Sequences join and
leave; those of prefill begin alike, are longer than a chunk, or give their pages back.

{table}
"""


def main() -> None:
    """Print the page, or write it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--rows", type=Path, default=ROOT / "build" / "engines")
    options = parser.parse_args()
    text = page(options.rows)
    if options.write:
        PAGE.write_text(text)
    else:
        print(text)


if __name__ == "__main__":
    main()
