"""SGLang's decode steps on simulated CANN, fused by fx_passes: what is fused, and its tokens.

Run as ``cann-sim run -- python -m engines.sglang.fusions``. `stock` is the engine alone, `fused`
has its decode graphs captured of what our passes made of the model's forward, by the engine, or by
npu-graph-runtime (`captured`). `apart` is `fused` with each fused operator computed by the
operators it replaced: where that gives the tokens of `stock`, the rounding inside those operators
is all that `fused` differs by. `control` is `fused` with norms that are wrong. Rows go to
build/engines/sglang-fusions.json.
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engines.load.decode_load import compare_load
from engines.load.token_margins import first_differences
from engines.models.tiny_models import scheme_of
from engines.running.session_rows import DESCRIBED, beside_stock, find_errors
from engines.running.session_run import make_parser
from engines.sglang.models import ModelVariant, described, run_apart, run_session
from engines.sglang.scheduling.scheduler import ADDED_PASS
from engines.sglang.session import make_engine

if TYPE_CHECKING:
    import argparse

# What runs, by model and number of ranks.
RUNS = (
    ("Qwen3", 1),
    ("Qwen3, W8A8_DYNAMIC", 1),
    ("Qwen3, W8A8", 1),
    ("Qwen3, W8A8_DYNAMIC", 2),
    ("Qwen3-MoE", 1),
    ("Qwen3-MoE, W8A8_DYNAMIC", 1),
)
NAMES: dict[str, dict[str, Any]] = {
    "stock": {"plugins": "none"},
    "fused": {"variable": '{"fusions": true}'},
    "apart": {"variable": '{"fusions": true}'},
    "captured": {"variable": '{"fusions": true, "decode": "capture"}'},
    "control": {"variable": '{"fusions": true}'},
}
# Functions applied to graphs after our passes, by the name of the variant.
ADDED = {"apart": "take_apart", "control": "make_norms_wrong"}
TOLD = re.compile(r"hook took effect: \w+ of (\d+) tokens is fused: (.*)")
# What the engine writes and nobody needs, at each layer; with experts, more of it.
NEEDLESS = {"remove_reshape": (0, 2), "remove_cast": (0, 2)}
NEEDLESS_OF_EXPERTS = {"remove_reshape": (0, 4), "remove_cast": (0, 5)}
# By model the rules that match, as (a, b): a times, and b times more for each layer. The engine
# itself fuses all that is not quantised.
EXPECTED: dict[str, dict[str, tuple[int, int]]] = {
    "Qwen3": NEEDLESS,
    # There is nothing to add before the first norm, and nothing is quantised after the last.
    "Qwen3, W8A8_DYNAMIC": {
        **NEEDLESS,
        "fuse_add_rms_norm_dynamic_quant": (-1, 2),
        "fuse_swiglu_dynamic_quant": (0, 1),
    },
    "Qwen3, W8A8": {**NEEDLESS, "fuse_add_rms_norm_quant": (-1, 2)},
    "Qwen3-MoE": NEEDLESS_OF_EXPERTS,
    # The router, which is not quantised, reads the second norm of a layer, and the engine itself
    # fuses what experts compute.
    "Qwen3-MoE, W8A8_DYNAMIC": {
        **NEEDLESS_OF_EXPERTS,
        "fuse_add_rms_norm_dynamic_quant": (-1, 1),
    },
}
# The kernel divides by the scale, of which the engine keeps the reciprocal alone: to compute that
# again costs as much as is saved where one token is normed.
NOT_OF_ONE_TOKEN = "fuse_add_rms_norm_quant"
# By how much the two tokens may differ where two variants first do: natural logarithms of their
# probabilities by the stock engine.
WIDEST = {None: 0.0, "W8A8_DYNAMIC": 0.3, "W8A8": 0.6}
COLUMNS = {
    **DESCRIBED,
    **dict.fromkeys(("retracted", "replays", "replayed_kernels", "fused", "differ"), ""),
    "widest": ".3f",
    "num_tokens": "",
    "equal_tokens": "",
}


class FusedVariant(ModelVariant):
    """One engine to run, whose graphs may get more passes than ours."""

    def environment(self) -> dict[str, str]:
        """Return the environment of the engine's processes."""
        given, added = super().environment(), ADDED.get(self.name)
        return given if added is None else {**given, ADDED_PASS: added}


def run_fused(variant: ModelVariant, checkpoint: Path, count: int) -> list[dict[str, Any]]:
    """Run the load on an engine, and return its one row."""
    engine = make_engine(variant, checkpoint, **variant.options())
    prompts, lengths = compare_load(count)
    sampling = [
        {"max_new_tokens": length, "temperature": 0, "ignore_eos": True} for length in lengths
    ]
    with tempfile.TemporaryDirectory() as folder:
        counted = Path(folder) / "counted.json"
        engine.collective_rpc("begin_load", shift=0)
        outputs = engine.generate(
            input_ids=prompts, sampling_params=sampling, return_logprob=True, top_logprobs_num=8
        )
        engine.collective_rpc("end_load", out=str(counted))
        row = json.loads(counted.read_text())
    tops = [output["meta_info"]["output_top_logprobs"] for output in outputs]
    row |= {
        "sequences": count,
        "tokens": [list(output["output_ids"]) for output in outputs],
        "tops": [
            [([each[1] for each in top], [each[0] for each in top], 1.0) for top in sequence]
            for sequence in tops
        ],
    }
    return [row | described(variant)]


def run_fused_apart(
    variant: ModelVariant,
    number: int,
    rows: list[dict[str, Any]],
    options: argparse.Namespace,
    folder: Path,
) -> list[dict[str, Any]]:
    """Run a variant in processes of its own; its row says what was fused, and where it differs."""
    made = run_apart(variant, number, rows, options, folder)
    log = options.out.with_name(f"{options.out.stem}-{number}.log")
    for row in made:
        row["fusions"] = read_fusions(log)
        row["fused"] = sum(sum(each.values()) for each in row["fusions"].values())
    for row, stock, _ in beside_stock([*rows, *made]):
        if stock is not None and "differ" not in row:
            margins = first_differences(row["tokens"], stock["tokens"], stock["tops"])
            row |= {"differ": len(margins), "widest": max(margins, default=0.0)}
    return made


def read_fusions(log: Path) -> dict[str, dict[str, int]]:
    """Return how often each rule matched, by the number of tokens, as the engine's log says."""
    found: dict[str, dict[str, int]] = {}
    for size, told in TOLD.findall(log.read_text(errors="replace")):
        pairs = [each.rpartition(" ") for each in told.split(", ") if each[-1].isdigit()]
        found[size] = {rule: int(count) for rule, _, count in pairs}
    return found


def verdict(rows: list[dict[str, Any]]) -> list[str]:
    """Return the failures; empty if all is right."""
    wrong = find_errors(rows)
    for row, stock, what in beside_stock(rows):
        name, kind = row["name"], scheme_of(row["model"])
        if stock is None:
            wrong.append(f"{what}: there is no stock engine to compare with")
        if stock is None or name == "stock":
            continue
        equal = row["equal_tokens"] == row["num_tokens"]
        if (name == "apart" and not equal) or (name == "control" and equal):
            wrong.append(f"{what}: {row['equal_tokens']} of {row['num_tokens']} tokens of stock")
        if (row["widest"] > WIDEST[kind]) != (name == "control"):
            wrong.append(f"{what}: differs by {row['widest']:.3f} (rule: {WIDEST[kind]})")
        if not row["fusions"]:
            wrong.append(f"{what}: the engine's log tells of no fused graph")
        for size, found in row["fusions"].items():
            expected = {
                rule: first + each * row["num_layers"]
                for rule, (first, each) in EXPECTED[row["model"]].items()
                if (rule, size) != (NOT_OF_ONE_TOKEN, "1")
            }
            if found != expected:
                wrong.append(f"{what}: expected {expected} at {size} tokens, found {found}")
    return wrong


def choose_variants(options: argparse.Namespace) -> list[ModelVariant]:
    """Return the variants selected by the options."""
    return [
        FusedVariant(
            name=name,
            dtype="bfloat16",
            num_layers=options.layers,
            model=model,
            ranks=ranks,
            **given,
        )
        for number, (model, ranks) in enumerate(RUNS)
        for name, given in NAMES.items()
        if options.runs is None or number in options.runs
    ]


if __name__ == "__main__":
    sys.exit(
        run_session(
            __spec__.name,
            make_parser("sglang-fusions", __doc__),
            choose_variants,
            run=run_fused,
            apart=run_fused_apart,
            judge=verdict,
            columns=COLUMNS,
        )
    )
