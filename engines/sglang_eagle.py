"""SGLang with an EAGLE-3 draft on simulated CANN: its own graphs and ours, on one load.

Run as ``cann-sim run -- python engines/sglang_eagle.py``. Three runners replay graphs in a step:
the target's verification, the draft's steps, which are all in one graph with lengths of their own,
and the draft's extension. `stock` is the engine without this repository's plugin; `ours` updates
the graphs of all three on one lane, and captures prefill of target and draft. With greedy
verification a wrong draft costs accepted tokens, and a wrong target other tokens, so both are
compared.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import sglang_stand_ins
from decode_load import compare_load
from process_group import rows_of_variant, run_given
from session_rows import compare_tokens, print_table
from session_run import ROOT
from sglang_session import Variant, describe, make_engine

OUT = ROOT / "build" / "engines" / "sglang-eagle.json"
STEPS = 3
COLUMNS = dict.fromkeys(
    (
        "name",
        "sequences",
        "verifications",
        "task_updates",
        "synchronisations",
        "num_tokens",
        "equal_tokens",
    ),
    "",
)


def run_variant(variant: Variant, folder: Path, count: int) -> list[dict[str, Any]]:
    """Run the load on an engine with a draft, and return its one row."""
    target, draft = folder / "target", folder / "draft"
    if not target.exists():
        import torch
        from tiny_eagle3 import write_draft
        from tiny_qwen3 import write_checkpoint

        dtype = getattr(torch, variant.dtype)
        write_checkpoint(target, num_layers=variant.num_layers, dtype=dtype)
        write_draft(draft, dtype=dtype)
    captured = {"cuda_graph_backend_prefill": "breakable", "cuda_graph_bs_prefill": [64, 256]}
    engine = make_engine(
        variant,
        target,
        speculative_algorithm="EAGLE3",
        speculative_draft_model_path=str(draft),
        speculative_num_steps=STEPS,
        speculative_eagle_topk=1,
        speculative_num_draft_tokens=1 + STEPS,
        chunked_prefill_size=256,
        cuda_graph_bs_decode=[1, 2, 4, 8, 16],
        **({} if variant.variable is None else captured),
    )
    prompts, lengths = compare_load(count)
    sampling = [
        {"max_new_tokens": length, "temperature": 0, "ignore_eos": True} for length in lengths
    ]
    counted = folder / f"{variant.name}-counted.json"
    engine.collective_rpc("begin_load", shift=0)
    outputs = engine.generate(input_ids=prompts, sampling_params=sampling)
    engine.collective_rpc("end_load", out=str(counted))
    row = {
        **describe(variant),
        "sequences": count,
        "tokens": [list(output["output_ids"]) for output in outputs],
        "verifications": sum(output["meta_info"].get("spec_verify_ct", 0) for output in outputs),
        **json.loads(counted.read_text()),
    }
    return [row]


def verdict(rows: list[dict[str, Any]]) -> list[str]:
    """Return what is wrong; nothing is missing if it is empty."""
    wrong = [f"{row['name']}: {row['error']}" for row in rows if "error" in row]
    whole = {row["name"]: row for row in rows if "tokens" in row}
    if not wrong and whole:
        stock, ours = whole["stock"], whole["ours"]
        for name in ("num_tokens", "verifications"):
            found = ours["equal_tokens"] if name == "num_tokens" else ours[name]
            if found != stock[name]:
                wrong.append(f"ours: expected {stock[name]} {name} as stock, found {found}")
        if not ours["backend"].startswith("Updated") or not ours["task_updates"]:
            wrong.append(f"ours: {ours['task_updates']} updates by {ours['backend']}")
        if ours["synchronisations"] >= stock["synchronisations"]:
            waits = f"{ours['synchronisations']} of {stock['synchronisations']}"
            wrong.append(f"ours: the host waits as often as stock's, {waits}")
    return wrong


def main() -> int:
    """Run both engines; return 1 if something is wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sequences", type=int, default=200)
    parser.add_argument("--limit", type=float, default=1200, help="seconds for an engine")
    parser.add_argument("--run", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.run:
        run_given(options.run, Variant, run_variant)
        return 0
    sglang_stand_ins.set_environment()
    OUT.parent.mkdir(parents=True, exist_ok=True)
    rows = []
    described = {"dtype": "bfloat16", "num_layers": 4}
    variants = (
        Variant(name="stock", plugins="none", **described),
        Variant(name="ours", variable="1", **described),
    )
    with tempfile.TemporaryDirectory() as folder:
        for variant in variants:
            rows += rows_of_variant(
                __file__,
                variant,
                Path(folder),
                options.sequences,
                environment=variant.environment(),
                described=describe(variant),
                log=OUT.with_name(f"{OUT.stem}-{variant.name}.log"),
                out=Path(folder) / f"{variant.name}.json",
                limit=options.limit,
            )
            compare_tokens(rows)
            OUT.write_text(json.dumps(rows, indent=1))
    print_table(rows, COLUMNS, "SGLang 0.5.23 with an EAGLE-3 draft on simulated CANN")
    wrong = verdict(rows)
    print("\n".join(wrong) or "every variant is right")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
