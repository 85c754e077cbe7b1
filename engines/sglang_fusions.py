"""SGLang's decode steps on simulated CANN, fused by fx_passes: what is fused, and its tokens.

Run as ``cann-sim run -- python engines/sglang_fusions.py``. `stock` is the engine alone, `fused`
has its decode graphs captured of what our passes made of the model's forward. `apart` is `fused`
with each fused operator computed by the operators it replaced: where that gives the tokens of
`stock`, the rounding inside those operators is all that `fused` differs by. `control` is `fused`
with norms that are wrong. Rows go to build/engines/sglang-fusions.json.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import re
import signal
import sys
import tempfile
from pathlib import Path
from typing import Any

import sglang_stand_ins
from decode_load import compare_load
from process_group import rows_of_variant, run_given
from session_rows import compare_tokens, print_table
from session_run import ROOT
from sglang_scheduler import ADDED_PASS
from sglang_session import Variant, describe, make_engine
from token_margins import first_differences

OUT = ROOT / "build" / "engines" / "sglang-fusions.json"
FLOAT = "float"
TOLD = re.compile(r"hook took effect: \w+ of (\d+) tokens is fused: (.*)")
# What the engine writes and nobody needs, at each layer.
NEEDLESS = {"remove_reshape": (0, 2), "remove_cast": (0, 2)}
# For each kind of checkpoint the rules that match, as (a, b): a times, and b times more for each
# layer. The engine itself fuses all that is not quantised.
EXPECTED: dict[str, dict[str, tuple[int, int]]] = {
    FLOAT: NEEDLESS,
    # Before the first norm there is nothing to add; behind the last nothing is quantised.
    "W8A8_DYNAMIC": {
        **NEEDLESS,
        "fuse_add_rms_norm_dynamic_quant": (-1, 2),
        "fuse_swiglu_dynamic_quant": (0, 1),
    },
    "W8A8": {**NEEDLESS, "fuse_add_rms_norm_quant": (-1, 2)},
}
# The kernel divides by the scale, of which the engine keeps the reciprocal alone: to compute that
# again costs as much as is saved where one token is normed.
NOT_OF_ONE_TOKEN = "fuse_add_rms_norm_quant"
# What two ranks run too.
RANKED = "W8A8_DYNAMIC"
COLUMNS = dict.fromkeys(
    (
        "name",
        "dtype",
        "num_layers",
        "sequences",
        "retracted",
        "replays",
        "replayed_kernels",
        "fused",
        "differ",
        "widest",
        "num_tokens",
        "equal_tokens",
    ),
    "",
)
# By how much the two tokens may differ where two variants first do: natural logarithms of their
# probabilities by the stock engine.
WIDEST = {FLOAT: 0.0, "W8A8_DYNAMIC": 0.3, "W8A8": 0.6}


@dataclasses.dataclass(frozen=True, kw_only=True)
class FusedVariant(Variant):
    """One engine to run.

    Attributes:
        quantisation: Of the checkpoint.
        added: What graphs go through behind our passes; None for nothing.
        ranks: How many processes hold a part of each layer.
    """

    quantisation: str = FLOAT
    added: str | None = None
    ranks: int = 1

    def environment(self) -> dict[str, str]:
        """Return the environment of the engine's processes."""
        given = {**super().environment(), "CANN_SIM_DEVICES": str(self.ranks)}
        return given if self.added is None else {**given, ADDED_PASS: self.added}


def described(variant: FusedVariant) -> dict[str, Any]:
    """Return what the row of a variant begins with."""
    # Rows are compared with the stock engine's of the same dtype.
    ranks = f", {variant.ranks} ranks" if variant.ranks > 1 else ""
    kind = {"dtype": f"{variant.dtype}, {variant.quantisation}{ranks}"}
    return {**describe(variant), **kind, "quantisation": variant.quantisation}


def run_variant(variant: FusedVariant, folder: Path, count: int) -> list[dict[str, Any]]:
    """Run the load on an engine, and return its one row."""
    checkpoint = write_checkpoints(folder, variant)
    options = {} if variant.quantisation == FLOAT else {"quantization": "modelslim"}
    engine = make_engine(variant, checkpoint, tp_size=variant.ranks, **options)
    prompts, lengths = compare_load(count)
    sampling = [
        {"max_new_tokens": length, "temperature": 0, "ignore_eos": True} for length in lengths
    ]
    counted = folder / f"{variant.name}-counted.json"
    engine.collective_rpc("begin_load", shift=0)
    outputs = engine.generate(
        input_ids=prompts, sampling_params=sampling, return_logprob=True, top_logprobs_num=8
    )
    engine.collective_rpc("end_load", out=str(counted))
    tops = [output["meta_info"]["output_top_logprobs"] for output in outputs]
    row = {
        **described(variant),
        "sequences": count,
        "tokens": [list(output["output_ids"]) for output in outputs],
        "tops": [
            [([each[1] for each in top], [each[0] for each in top], 1.0) for top in sequence]
            for sequence in tops
        ],
        **json.loads(counted.read_text()),
    }
    return [row]


def write_checkpoints(folder: Path, variant: FusedVariant) -> Path:
    """Write the checkpoint of a variant, if it is not there, and return it."""
    import torch
    from quantised_checkpoint import quantise_checkpoint
    from tiny_qwen3 import write_checkpoint

    source, checkpoint = folder / FLOAT, folder / variant.quantisation
    if not source.exists():
        dtype = getattr(torch, variant.dtype)
        write_checkpoint(source, num_layers=variant.num_layers, dtype=dtype)
    if not checkpoint.exists():
        quantise_checkpoint(source, checkpoint, variant.quantisation)
    return checkpoint


def read_fusions(log: Path) -> dict[str, dict[str, int]]:
    """Return how often each rule matched, by the number of tokens, as the engine's log says."""
    found: dict[str, dict[str, int]] = {}
    for size, told in TOLD.findall(log.read_text(errors="replace")):
        pairs = [each.rpartition(" ") for each in told.split(", ") if each[-1].isdigit()]
        found[size] = {rule: int(count) for rule, _, count in pairs}
    return found


def measure_margins(rows: list[dict[str, Any]]) -> None:
    """Add to each row in how many sequences it differs, and the widest of the margins there."""
    stock = {row["dtype"]: row for row in rows if row["name"] == "stock" and "tokens" in row}
    for row in rows:
        theirs = stock.get(row["dtype"])
        if "tokens" in row and theirs is not None:
            margins = first_differences(row["tokens"], theirs["tokens"], theirs["tops"])
            row |= {"differ": len(margins), "widest": round(max(margins, default=0.0), 3)}


def verdict(rows: list[dict[str, Any]]) -> list[str]:
    """Return what is wrong; nothing is missing if it is empty."""
    wrong = [f"{row['name']}, {row['dtype']}: {row['error']}" for row in rows if "error" in row]
    for row in rows:
        what, name = f"{row['name']}, {row['dtype']}", row["name"]
        if "equal_tokens" not in row or name == "stock":
            continue
        equal, kind = row["equal_tokens"] == row["num_tokens"], row["quantisation"]
        if (name == "apart" and not equal) or (name == "control" and equal):
            wrong.append(f"{what}: {row['equal_tokens']} of {row['num_tokens']} tokens of stock")
        if (row["widest"] > WIDEST[kind]) != (name == "control"):
            wrong.append(f"{what}: differs by {row['widest']} (rule: {WIDEST[kind]})")
        if not row["fusions"]:
            wrong.append(f"{what}: the engine's log tells of no fused graph")
        for size, found in row["fusions"].items():
            expected = {
                rule: first + each * row["num_layers"]
                for rule, (first, each) in EXPECTED[kind].items()
                if (rule, size) != (NOT_OF_ONE_TOKEN, "1")
            }
            if found != expected:
                wrong.append(f"{what}: expected {expected} at {size} tokens, found {found}")
    return wrong


def choose_variants(options: argparse.Namespace) -> list[FusedVariant]:
    """Return the variants that a run was asked for."""
    variable = '{"fusions": true}'
    named: dict[str, dict[str, Any]] = {
        "stock": {"plugins": "none"},
        "fused": {"variable": variable},
        "apart": {"variable": variable, "added": "take_apart"},
        "captured": {"variable": '{"fusions": true, "decode": "capture"}'},
        "control": {"variable": variable, "added": "make_norms_wrong"},
    }
    kinds = [(quantisation, 1) for quantisation in options.quantisations]
    if RANKED in options.quantisations:
        kinds.append((RANKED, 2))
    return [
        FusedVariant(
            name=name,
            dtype="bfloat16",
            num_layers=options.layers,
            quantisation=quantisation,
            ranks=ranks,
            **given,
        )
        for quantisation, ranks in kinds
        for name, given in named.items()
        if not options.only or name in options.only
    ]


def main() -> int:
    """Run all variants; return 1 if something is wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sequences", type=int, default=200)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--quantisations", nargs="*", default=list(EXPECTED), choices=EXPECTED)
    parser.add_argument("--only", nargs="*", help="names of variants: stock, fused, ...")
    parser.add_argument("--limit", type=float, default=1200, help="seconds for a variant")
    parser.add_argument("--run", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.run:
        run_given(options.run, FusedVariant, run_variant)
        return 0
    sglang_stand_ins.set_environment()
    # What ends the session ends what it started.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    OUT.parent.mkdir(parents=True, exist_ok=True)
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        for number, variant in enumerate(choose_variants(options)):
            log = OUT.with_name(f"{OUT.stem}-{number}.log")
            made = rows_of_variant(
                __file__,
                variant,
                Path(folder),
                options.sequences,
                environment=variant.environment(),
                described=described(variant),
                log=log,
                out=Path(folder) / f"{number}.json",
                limit=options.limit,
            )
            for row in made:
                row["fusions"] = read_fusions(log)
                row["fused"] = sum(sum(each.values()) for each in row["fusions"].values())
            rows += made
            compare_tokens(rows)
            measure_margins(rows)
            OUT.write_text(json.dumps(rows, indent=1))
    print_table(rows, COLUMNS, "SGLang 0.5.23's decode steps fused, on simulated CANN")
    wrong = verdict(rows)
    print("\n".join(wrong) or "every variant is right")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
