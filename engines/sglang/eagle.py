"""SGLang with an EAGLE-3 draft on simulated CANN: its own graphs and ours, on one load.

Run as ``cann-sim run -- python -m engines.sglang.eagle``. Three runners replay graphs in a step:
the target's verification, the draft's steps, which are all in one graph with lengths of their own,
and the draft's extension. `stock` is the engine without this repository's plugin; `ours` updates
the graphs of all three on one lane, and captures prefill of target and draft. With greedy
verification a wrong draft costs accepted tokens, and a wrong target other tokens, so both are
compared. `control` is the engine of `ours` with lengths of verification that are one too small.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from engines.load.decode_load import compare_load
from engines.running.process_group import rows_of_variant, run_given
from engines.running.session_rows import (
    beside_stock,
    compare_tokens,
    find_errors,
    find_unexpected,
    find_wrong_tokens,
    print_table,
)
from engines.running.session_run import ROOT
from engines.sglang.session import Variant, describe, make_engine
from engines.sglang.without_device import stand_ins

OUT = ROOT / "build" / "engines" / "sglang-eagle.json"
STEPS = 3
COLUMNS = dict.fromkeys(
    (
        "name",
        "sequences",
        "retracted",
        "graph_steps",
        "waits_in_graph_steps",
        "verifications",
        "task_updates",
        "synchronisations",
        "num_tokens",
        "equal_tokens",
    ),
    "",
)


def run_variant(variant: Variant, folder: Path, count: int) -> list[dict[str, Any]]:
    """Run the load on an engine with a draft; with ours, also the load of the control."""
    target, draft = folder / "target", folder / "draft"
    if not target.exists():
        import torch
        from engines.models.tiny_eagle3 import write_draft
        from engines.models.tiny_qwen3 import write_checkpoint

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
    rows = [run_load(engine, variant, count, shift=0)]
    if variant.name == "ours":
        control = dataclasses.replace(variant, name="control")
        rows.append(run_load(engine, control, count, shift=-1))
    return rows


def run_load(engine: Any, variant: Variant, count: int, *, shift: int) -> dict[str, Any]:
    """Run the load; lengths of the target's verifications grow by the given number."""
    prompts, lengths = compare_load(count)
    sampling = [
        {"max_new_tokens": length, "temperature": 0, "ignore_eos": True} for length in lengths
    ]
    with tempfile.TemporaryDirectory() as folder:
        counted = Path(folder) / "counted.json"
        engine.collective_rpc("begin_load", shift=shift)
        outputs = engine.generate(input_ids=prompts, sampling_params=sampling)
        engine.collective_rpc("end_load", out=str(counted))
        return {
            **describe(variant),
            "sequences": count,
            "tokens": [list(output["output_ids"]) for output in outputs],
            "verifications": sum(output["meta_info"]["spec_verify_ct"] for output in outputs),
            **json.loads(counted.read_text()),
        }


def verdict(rows: list[dict[str, Any]]) -> list[str]:
    """Return the failures; empty if all is right."""
    wrong = find_errors(rows)
    for row, stock, what in beside_stock(rows):
        wrong += find_wrong_tokens(row, what)
        if stock is None or row["name"] != "ours":
            continue
        same = ("verifications", "graph_steps", "retracted")
        expected = {name: stock[name] for name in same} | {"waits_in_graph_steps": 0}
        wrong += find_unexpected(row, what, {**expected, "backend": "UpdatedDecodeBackend"})
        if not row["task_updates"] or row["synchronisations"] >= stock["synchronisations"]:
            waits = f"{row['synchronisations']} waits, stock {stock['synchronisations']}"
            wrong.append(f"{what}: {row['task_updates']} updates, {waits}")
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
    stand_ins.set_environment()
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
                __spec__.name,
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
