"""SGLang's prefill on simulated CANN: eager, by the engine's breakable graphs, and by ours.

Run as ``cann-sim run -- python -m engines.sglang.prefill``. `stock` is the engine as it is on NPUs,
whose prefill is eager; `breakable` is the engine without this repository's plugin, told to capture
prefill; `ours` captures it by the plugin, whose decode part is off; `both` captures decode too.
`control` is `ours` once more, with another last token in each captured chunk.

The load has prompts that begin alike, longer than a chunk, and more of them than the pool of pages
holds, so chunks have several sequences, hits of the prefix cache, continued prompts, and sequences
that had to give their pages back. Host time is measured with kernels that do nothing, in turns of
one process.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import random
import signal
import sys
import tempfile
from pathlib import Path
from typing import Any

from engines.load.decode_load import BLOCK_SIZE
from engines.running.process_group import rows_of_variant, run_given
from engines.running.session_rows import DESCRIBED, compare_tokens, print_table
from engines.running.session_run import ROOT
from engines.sglang.session import Variant, describe, make_engine
from engines.sglang.without_device import stand_ins

SIZES = (16, 32, 64, 96, 128, 192)
"""Tokens of the captured chunks. Larger chunks run eagerly, and smaller ones than 8, for which the
engine would pad too much."""
CHUNK, POOL_PAGES, TURNS, CHUNKS_OF_TURN = 256, 40, 8, 6
TIMED = ((16, 1), (64, 1), (64, 2), (192, 1), (192, 2))
"""Tokens and sequences of the chunks whose host time is measured."""
OUT = ROOT / "build" / "engines" / "sglang-prefill.json"
COUNTED = (
    "chunks",
    "chunks_by_graph",
    "larger",
    "several_sequences",
    "behind_a_prefix",
    "continued",
)
COLUMNS = {
    **DESCRIBED,
    **dict.fromkeys((*COUNTED, "cached_tokens", "retracted", "num_tokens", "equal_tokens"), ""),
}
TIME_COLUMNS = {
    "name": "",
    "num_layers": "",
    "tokens_of_chunk": "",
    "sequences": "",
    "launches": "",
    "chunk_us": ".0f",
    "below_eager": ".2f",
}


def prefill_load(count: int) -> tuple[list[list[int]], list[int]]:
    """Return prompts, and how many tokens to generate for each."""
    draw = random.Random(3)

    def tokens(length: int) -> list[int]:
        return [draw.randrange(1, 500) for _ in range(length)]

    # The cache keeps whole pages.
    shared = [tokens(length * BLOCK_SIZE) for length in (1, 1, 2)]
    prompts = [
        [*(draw.choice(shared) if draw.random() < 0.4 else ()), *tokens(draw.randint(3, 160))]
        for _ in range(count)
    ]
    return prompts, [draw.randint(2, 24) for _ in prompts]


def make_prefill_engine(variant: Variant, checkpoint: Path) -> Any:
    """Return the engine of a variant."""
    captured = {"cuda_graph_backend_prefill": "breakable", "cuda_graph_bs_prefill": list(SIZES)}
    sizes = {"max_total_tokens": POOL_PAGES * BLOCK_SIZE, "max_running_requests": 16}
    if variant.timed:
        sizes = {"max_total_tokens": 16 * BLOCK_SIZE, "max_running_requests": 8}
    return make_engine(
        variant,
        checkpoint,
        **sizes,
        cuda_graph_bs_decode=[1] if variant.timed else [1, 2, 4, 8, 16],
        chunked_prefill_size=CHUNK,
        disable_radix_cache=bool(variant.timed),
        **({} if variant.name == "stock" else captured),
    )


def generate(
    engine: Any, prompts: list[list[int]], lengths: list[int]
) -> tuple[list[list[int]], int]:
    """Return the likeliest tokens after each prompt, and how many came from the prefix cache."""
    sampling = [
        {"max_new_tokens": length, "temperature": 0, "ignore_eos": True} for length in lengths
    ]
    outputs = engine.generate(input_ids=prompts, sampling_params=sampling)
    cached = sum(output["meta_info"]["cached_tokens"] for output in outputs)
    return [list(output["output_ids"]) for output in outputs], cached


def run_load(variant: Variant, checkpoint: Path, count: int) -> list[dict[str, Any]]:
    """Run the load; with `ours`, also that of the control."""
    engine = make_prefill_engine(variant, checkpoint)
    names = [variant.name, "control"] if variant.name == "ours" else [variant.name]
    rows = []
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            out = Path(folder) / "counted.json"
            engine.flush_cache()
            engine.collective_rpc("begin_chunks", is_wrong=name == "control")
            tokens, cached = generate(engine, *prefill_load(count))
            engine.collective_rpc("end_chunks", out=str(out))
            counted = json.loads(out.read_text())
        row = {**describe(dataclasses.replace(variant, name=name)), "sequences": count}
        rows.append({**row, "tokens": tokens, "cached_tokens": cached, **counted})
    return rows


def run_turns(variant: Variant, checkpoint: Path) -> list[dict[str, Any]]:
    """Run chunks on the sides in turns; return a row for each side and chunk."""
    engine = make_prefill_engine(variant, checkpoint)
    engine.collective_rpc("make_chunk_sides")
    for tokens, sequences in TIMED:
        # The first of each side only counts, which waits for the device.
        for number in range(3 * (1 + TURNS)):
            is_counting = number < 3
            engine.collective_rpc("begin_chunk_turn", number=number, is_counting=is_counting)
            for chunk in range(1 if is_counting else CHUNKS_OF_TURN):
                prompts = [[1 + (number + chunk) % 9] * (tokens // sequences)] * sequences
                generate(engine, prompts, [1] * sequences)
            engine.collective_rpc("end_chunk_turn")
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "turns.json"
        engine.collective_rpc("write_chunk_turns", out=str(out))
        rows = [{**describe(variant), **row} for row in json.loads(out.read_text())]
    eager = {
        (row["tokens_of_chunk"], row["sequences"]): row["chunk_us"]
        for row in rows
        if row["name"] == "eager"
    }
    for row in rows:
        row["below_eager"] = eager[row["tokens_of_chunk"], row["sequences"]] / row["chunk_us"]
    return rows


def run_variant(variant: Variant, checkpoint: Path, count: int) -> list[dict[str, Any]]:
    """Run a variant in this process and those of its engine, and return its rows."""
    if not checkpoint.exists():
        import torch
        from engines.models.tiny_qwen3 import write_checkpoint

        dtype = getattr(torch, variant.dtype)
        write_checkpoint(checkpoint, num_layers=variant.num_layers, dtype=dtype)
    if variant.timed:
        return run_turns(variant, checkpoint)
    return run_load(variant, checkpoint, count)


def choose_variants(options: argparse.Namespace) -> list[Variant]:
    """Return the variants selected by the options."""
    variables = {
        "stock": None,
        "breakable": None,
        "ours": '{"decode": "engine"}',
        "both": '{"decode": "capture"}',
    }
    chosen = [("bfloat16", name) for name in variables]
    chosen += [("float16", "stock"), ("float16", "both")]
    chosen = [(dtype, name) for dtype, name in chosen if dtype in options.dtypes]
    variants = [
        Variant(
            name=name,
            dtype=dtype,
            num_layers=options.layers,
            variable=variables[name],
            plugins="none" if variables[name] is None else "npu_graph",
        )
        for dtype, name in chosen
    ]
    variants += [
        Variant(name="turns", dtype="bfloat16", num_layers=layers, variable="1", timed=(1,))
        for layers in options.timed_layers
    ]
    return [each for each in variants if not options.only or each.name in options.only]


def verdict(rows: list[dict[str, Any]]) -> list[str]:
    """Return the failures; empty if all is right."""
    wrong = [f"{row['name']}, {row['dtype']}: {row['error']}" for row in rows if "error" in row]
    backends = {"stock": "NoneType", "breakable": "BreakableCudaGraphBackend"}
    for row in rows:
        what = f"{row['name']}, {row['dtype']}"
        if "tokens" in row:
            if (row.get("equal_tokens") == row.get("num_tokens")) == (row["name"] == "control"):
                equal = f"{row.get('equal_tokens')} of {row.get('num_tokens')}"
                wrong.append(f"{what}: {equal} tokens are those of stock")
            expected = backends.get(row["name"], "BreakablePrefillBackend")
            if row["backend"] != expected:
                wrong.append(f"{what}: expected {expected}, found {row['backend']}")
            needed = ("cached_tokens", "retracted", *([] if row["name"] == "stock" else COUNTED))
            wrong += [f"{what}: there are no {name}" for name in needed if not row[name]]
        if "chunk_us" in row:
            what = f"{what}, {row['num_layers']} layers, {row['tokens_of_chunk']} tokens"
            if row["by_graph"] == (row["name"] == "eager"):
                wrong.append(f"{what}: by_graph is {row['by_graph']}")
            if row["name"] == "ours" and row["below_eager"] < 1:
                wrong.append(f"{what}: took {1 / row['below_eager']:.2f} of the eager host time")
    return wrong


def main() -> int:
    """Run all variants; return 1 if something is wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sequences", type=int, default=200)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--timed-layers", type=int, nargs="*", default=[28])
    parser.add_argument("--only", nargs="*", help="names of variants: stock, ours, turns, ...")
    parser.add_argument("--dtypes", nargs="*", default=["bfloat16", "float16"])
    parser.add_argument("--limit", type=float, default=1200, help="seconds for a variant")
    parser.add_argument("--run", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.run:
        run_given(options.run, Variant, run_variant)
        return 0
    stand_ins.set_environment()
    # What ends the session ends what it started.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    OUT.parent.mkdir(parents=True, exist_ok=True)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for number, variant in enumerate(choose_variants(options)):
            log, out = OUT.with_name(f"{OUT.stem}-{number}.log"), Path(folder) / f"{number}.json"
            checkpoint = Path(folder) / f"{variant.dtype}-{variant.num_layers}"
            rows += rows_of_variant(
                __spec__.name,
                variant,
                checkpoint,
                options.sequences,
                environment=variant.environment(),
                described=describe(variant),
                log=log,
                out=out,
                limit=options.limit,
            )
            compare_tokens(rows)
            OUT.write_text(json.dumps(rows, indent=1))
    print_table(rows, COLUMNS, "SGLang 0.5.23's prefill on simulated CANN")
    print_table(rows, TIME_COLUMNS, "host time of a chunk, and what it launches")
    wrong = verdict(rows)
    print("\n".join(wrong) or "every variant is right")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
