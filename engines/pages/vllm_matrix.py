"""The page of vLLM-Ascend's runs: models, modes and our parts, or the reason for no run.

Run as ``python -m engines.pages.vllm_matrix`` after the sessions, whose rows it reads from
build/engines/vllm*.json. It prints the page; ``--write`` writes docs/engines-vllm.md. Cells that
were not run again keep their text; a cell without a run says why.
"""

from __future__ import annotations

import functools
import json
from typing import TYPE_CHECKING, Any

from engines.pages.engine_page import ROOT, print_or_write

if TYPE_CHECKING:
    from pathlib import Path

PAGE = ROOT / "docs" / "engines-vllm.md"
MODES = ("FULL_DECODE_ONLY", "PIECEWISE", "FULL_AND_PIECEWISE")
PARTS = {
    "ours": "attention update",
    "graphs": "graphs",
    "both": "attention update, graphs",
    "default": "attention update, in the engine's default, in which it hangs alone",
    "behind": "fusions after the engine's",
    "fused": "fusions in place of the engine's",
    "exact": "fusions that change no bit",
    "apart": "fusions, each computed by what it replaced",
    "control": "control, with wrong norms or lengths",
    "draft control": "control, with wrong lengths of the draft: other drafts, and the same tokens",
}
LENGTHS = ("ours", "both", "default", "control", "draft control")
"""Parts of which captured attention is updated."""
FUSIONS = ("behind", "fused", "exact", "apart")
# Why a cell has no run, by part and mode.
NO_ATTENTION = "no attention is captured"
AS_ALONE = "its steps of decode are those of FULL_DECODE_ONLY, and no attention is in its pieces"
UNTRIED = "not run"
REASONS: dict[tuple[str, str], str] = {
    **dict.fromkeys(((part, "PIECEWISE") for part in LENGTHS), NO_ATTENTION),
    **dict.fromkeys(((part, "FULL_AND_PIECEWISE") for part in LENGTHS), AS_ALONE),
    ("graphs", "PIECEWISE"): "not run: pieces ran with Qwen3, and hold nothing that is new here",
    ("graphs", "FULL_DECODE_ONLY"): "not run: the row below holds them",
    ("fused", "FULL_DECODE_ONLY"): "not run: floats were in PIECEWISE, int8 in both",
    ("exact", "FULL_DECODE_ONLY"): "not run: the same rules as in PIECEWISE",
    ("graphs", "FULL_AND_PIECEWISE"): "not run: its graphs are those of the other two modes",
    ("behind", "FULL_DECODE_ONLY"): "npugraph_ex compiles, after which no pass runs",
    **dict.fromkeys(
        ((part, "FULL_AND_PIECEWISE") for part in FUSIONS),
        "not run: its graphs are compiled as in PIECEWISE",
    ),
}
# Models of which nothing was run with a part of ours, and why.
OTHERS = {
    "LoRA from rank 128 on": "the engine alone does not start: npugraph_ex of torch_npu 2.13 ends "
    "with a TypeError on `repeat_interleave` of the engine's adapters",
    "model runner v2 of vLLM 0.23.0": "vllm-ascend 0.23.0 switches it off",
    "model runner v2: LoRA, graphs that do not break, drafts over a part of the keys": "left to "
    "the engine, which the log says",
    "encoder graphs of other models than Qwen3-VL": "not run; the engine updates those whose "
    "lengths are not in `cu_seqlens` alone, as InternVL and Qwen2.5-VL",
    "DeepSeek, drafts by ngram": "the engine alone ends in its update of a whole graph, with "
    "more key lengths than sequences; attention update is left to it",
    "drafts over a part of the keys (DCP, PCP)": "not run; the engine updates them itself, but for "
    "`ngram` under DCP of vLLM 0.30.0",
}


def read_rows(folder: Path) -> list[dict[str, Any]]:
    """Return the rows of all sessions that compare tokens, each with model, mode and part.

    Sessions that were run in several calls have a file for each call.
    """
    found = []
    for pattern, describe in SESSIONS.items():
        for path in sorted(folder.glob(pattern)):
            rows = json.loads(path.read_text())
            kernels = {(row["name"], row["dtype"]): row.get("kernels") for row in rows}
            found += [
                {
                    **row,
                    **describe(row),
                    "kernels_of_other": kernels.get((row.get("compared_with"), row["dtype"])),
                }
                for row in rows
                if "equal_tokens" in row and row["name"] in PARTS
            ]
    return found


def of_session(row: dict[str, Any]) -> dict[str, str]:
    """Return model and mode of a row of engines/vllm/session.py."""
    return {"model": f"Qwen3, {row['dtype']}", "mode": "FULL_DECODE_ONLY"}


def of_fusions(row: dict[str, Any]) -> dict[str, str]:
    """Return those of a row of engines/vllm/fusions.py."""
    model = row["dtype"].removesuffix(", npugraph_ex").removesuffix(", float")
    return {"model": f"Qwen3, {model}", "mode": row.get("mode", "PIECEWISE")}


def of_graphs(row: dict[str, Any]) -> dict[str, str]:
    """Return those of a row of engines/vllm/graphs.py."""
    dtype, _, mode = row["dtype"].partition(", ")
    return {"model": f"Qwen3, {dtype}", "mode": mode}


def of_models(row: dict[str, Any]) -> dict[str, str]:
    """Return those of a row of engines/vllm/models.py."""
    return {"model": row["model"], "mode": row["mode"]}


def of_next(row: dict[str, Any], runner: str = "") -> dict[str, str]:
    """Return those of a row of a session in engines/vllm_next."""
    dtype = row["dtype"].partition(",")[0]
    return {
        "model": f"{row.get('model', f'Qwen3, {dtype}')}; vLLM 0.30.0{runner}",
        "mode": row.get("mode", row["dtype"].partition(", ")[2] or "FULL_DECODE_ONLY"),
        "note": f"{row['waits_in_full_steps']} waits in {row['full_steps']} replays",
    }


def of_breakable(row: dict[str, Any]) -> dict[str, str]:
    """Return those of a row of a session in engines/vllm_next/breaking."""
    waits, steps = row["waits_in_full_steps"], row["full_steps"]
    note = f"{waits} waits in {steps} steps; `stock` in PIECEWISE, where attention runs eagerly"
    return {
        "model": f"{row['model']}, breakable; vLLM 0.30.0",
        "mode": row["mode"],
        "note": note,
    }


SESSIONS = {
    **dict.fromkeys(
        (
            "vllm-ranks.json",
            "vllm-idle-rank.json",
            "vllm-drafts.json",
            "vllm-lora.json",
            "vllm-sleep.json",
        ),
        of_models,
    ),
    "vllm.json": of_session,
    "vllm-fusions*.json": of_fusions,
    "vllm-graphs.json": of_graphs,
    "vllm-models*.json": of_models,
    "vllm-next.json": of_next,
    "vllm-next-[deilm]*.json": of_next,
    "vllm-next-breakable*.json": of_breakable,
    "vllm-next-ranks.json": of_next,
    "vllm-next-runner-v2*.json": functools.partial(of_next, runner=", model runner v2"),
}
"""Files of rows, and what says of what model and mode a row is."""


def read_page(text: str) -> dict[tuple[str, str, str], str]:
    """Return the cells of a page with results of runs, by model, name of the part and mode."""
    found = {}
    for line in text.splitlines():
        texts = line.strip("| ").split(" | ")
        if len(texts) == 2 + len(MODES):
            ran = {
                mode: each
                for mode, each in zip(MODES, texts[2:], strict=True)
                if "tokens of" in each
            }
            found |= {(texts[0], texts[1], mode): each for mode, each in ran.items()}
    return found


def cell(row: dict[str, Any]) -> str:
    """Return the text for the result of a run."""
    other = row.get("compared_with", "stock")
    told = f"{row['equal_tokens']:,} of {row['num_tokens']:,} tokens of `{other}`"
    told += f", {row['sequences']} sequences"
    if row.get("preempted"):
        told += f", {row['preempted']} preempted"
    if row.get("differ"):
        told += (
            f"; first differences in {row['differ']} sequences, margin at most {row['widest']:.3f}"
        )
    if row.get("kernels_of_other"):
        told += f"; {row['kernels']:,} kernels, {row['kernels_of_other']:,} of `{other}`"
    if row.get("note"):
        told += f"; {row['note']}"
    made = row.get("fusions", {}).items()
    return told + "".join(f"; `{rule}` {count}" for rule, count in made)


def reason(model: str, part: str, mode: str) -> str:
    """Return why a cell has no run."""
    known = REASONS.get((part, mode), UNTRIED)
    # Those of "not run" are about compiled graphs.
    return UNTRIED if "breakable" in model and known.startswith(UNTRIED) else known


def page(rows: list[dict[str, Any]], before: str = "") -> str:
    """Return the page; cells that were not run again are copied from the previous page."""
    cells = read_page(before)
    for row in rows:
        cells[row["model"], PARTS[row["name"]], row["mode"]] = cell(row)
    lines = [f"| model | part | {' | '.join(MODES)} |", "|---|---|" + "---|" * len(MODES)]
    for model in sorted({model for model, _, _ in cells}):
        for part, name in PARTS.items():
            own = {mode: cells.get((model, name, mode)) for mode in MODES}
            if any(own.values()):
                told = (own[mode] or reason(model, part, mode) for mode in MODES)
                lines.append(f"| {model} | {name} | {' | '.join(told)} |")
    lines += [f"| {model} | all | {why} | | |" for model, why in OTHERS.items()]
    table = "\n".join(lines)
    return f"""# Results in vLLM 0.23.0 with vllm-ascend 0.23.0

`python -m engines.pages.vllm_matrix --write` generates this page from the rows of the sessions of
`./nox -s "engine(vllm)"`, on simulated CANN. Rows that name vLLM 0.30.0 are of
`"engine(vllm-next)"`, with vllm-ascend 0.30.0rc2. Sequences join and leave, and are preempted if
blocks are short; one that is preempted twice counts twice. *stock* is the engine without our parts,
*unfused* the engine with its own fusions off. A margin says how far the other token was below the
engine's own, in standard deviations of the engine's logits, where two variants first differ.

{table}
"""


if __name__ == "__main__":
    print_or_write(__doc__, PAGE, lambda folder, before: page(read_rows(folder), before))
