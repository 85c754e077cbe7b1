"""vLLM-Ascend on simulated CANN with the fusions of fx_passes: what they fuse, and its tokens.

Run as ``cann-sim run -- python engines/vllm_fusions.py``. The engine compiles in pieces; every
variant is a process forked from one that has imported vLLM. `stock` is the engine alone, `behind`
has our pass behind its own, `fused` has ours and none of its own, and `control` is `fused` with
norms that are wrong. Rows, with the near
misses and their reasons, go to build/engines/vllm-fusions.json.
"""

from __future__ import annotations

import dataclasses
import functools
import sys
from collections import Counter
from typing import TYPE_CHECKING, Any

import vllm_stand_ins
from decode_load import compare_load
from forked_variant import run_forked
from session_rows import TOKEN_COLUMNS, judgements
from session_run import conclude, make_parser, run_variants
from vllm_session import Variant, describe, generate, make_engine, worker_of

import cann_sim

if TYPE_CHECKING:
    import argparse
    from pathlib import Path

    from torch.fx import GraphModule

FLOAT = "float"
# For each quantisation the rules that match, as (a, b): a times, and b times more for each layer.
EXPECTED: dict[str, dict[str, tuple[int, int]]] = {
    FLOAT: {},
    # Before the first norm there is nothing to add; behind the last nothing is quantised.
    "W8A8_DYNAMIC": {
        "fuse_add_rms_norm_dynamic_quant": (-1, 2),
        "fuse_swiglu_dynamic_quant": (0, 1),
    },
    "W8A8": {
        "vllm_ascend_quantize": (0, 4),
        "fuse_add_rms_norm_quant": (-1, 2),
    },
}
# How far below the likeliest token of the float model a chosen one may lie, in standard deviations
# of the logits: what rounding and quantisation leave. Seen were 0.02, 0.13 and 0.30, the engine
# alone and with ours alike, and 5.2 with wrong norms.
WORST_TOKEN = {FLOAT: 0.1, "W8A8_DYNAMIC": 0.3, "W8A8": 0.6}
COLUMNS = {
    **dict.fromkeys(("name", "dtype", "quantisation", "num_layers", "graphs"), ""),
    **dict.fromkeys(("launches", "fused"), ""),
    **TOKEN_COLUMNS,
}


def run_load(variant: Variant, checkpoint: Path, count: int) -> list[dict[str, Any]]:
    """Return the row of a variant: its tokens, and what was fused."""
    if variant.name == "control":
        make_norms_wrong()
    llm = make_engine(variant, checkpoint)
    before = cann_sim.counters()
    tokens = generate(llm, *compare_load(count))
    row = {
        **described(variant),
        "sequences": count,
        "tokens": tokens,
        "launches": (cann_sim.counters() - before).launches,
    }
    fusions = getattr(worker_of(llm), "fusions", None)
    if fusions is not None:
        report = fusions.passes.report
        row["graphs"] = len(fusions.passes.results)
        row["fusions"] = {rule: made for rule, made in report.match_counts().items() if made}
        row["fused"] = sum(row["fusions"].values())
        row["near_misses"] = {
            rule: Counter(miss.reason for miss in report.near_misses(rule))
            for rule in report.match_counts()
            if report.near_misses(rule)
        }
        row["not_tried"] = sorted(
            {each.rule for each in report.rule_reports() if each.waiting_for or each.left_out}
        )
    return [row]


def make_norms_wrong() -> None:
    """Let our passes put another epsilon into what they fused, to see that tokens tell it."""
    import fx_passes
    import vllm_npu_graph.fusions as door
    from fx_passes.inductor import PostGradPasses

    def change(module: GraphModule) -> bool:
        norms = [node for node in module.graph.nodes if "rms_norm" in str(node.target)]
        for node in norms:
            node.kwargs = {**node.kwargs, "epsilon": 10.0}
            node.args = node.args[: 2 if "npu_rms_norm." in str(node.target) else 3]
        return bool(norms)

    def make() -> PostGradPasses:
        passes = PostGradPasses()
        passes.add(fx_passes.FunctionPass(name="wrong_norms", function=change))
        return passes

    door.PostGradPasses = make  # type: ignore[assignment,misc]


def described(variant: Variant) -> dict[str, Any]:
    """Return what the row of a variant begins with."""
    # Rows are compared with the stock engine's of the same dtype.
    quantisation = variant.quantisation or FLOAT
    return {
        **describe(variant),
        "dtype": f"{variant.dtype}, {quantisation}",
        "quantisation": quantisation,
    }


def verdict(rows: list[dict[str, Any]]) -> list[str]:
    """Return what is wrong; nothing is missing if it is empty."""
    wrong = [f"{row['name']}, {row['dtype']}: {row['error']}" for row in rows if "error" in row]
    for row in rows:
        what = f"{row['name']}, {row['dtype']}"
        if "tokens" not in row:
            continue
        most = WORST_TOKEN[row["quantisation"]]
        is_wrong = row.get("worst_token", 0.0) > most
        if "worst_token" in row and is_wrong != (row["name"] == "control"):
            worst = f"lies {row['worst_token']:.3f} below the likeliest (rule: {most})"
            wrong.append(f"{what}: the worst token {worst}")
        fusions = row.get("fusions", {})
        if not fusions and row.get("equal_tokens") != row.get("num_tokens"):
            equal = f"{row['equal_tokens']} of {row['num_tokens']}"
            wrong.append(f"{what}: nothing is fused, and {equal} tokens are those of stock")
        expected = {
            rule: first + each * row["num_layers"]
            for rule, (first, each) in EXPECTED[row["quantisation"]].items()
        }
        if row["name"] == "fused" and fusions != expected:
            wrong.append(f"{what}: expected {expected} fusions, found {fusions}")
    return wrong


def choose_variants(options: argparse.Namespace) -> list[Variant]:
    """Return the variants that a run was asked for."""
    made = functools.partial(Variant, dtype="bfloat16", num_layers=options.layers, mode="PIECEWISE")
    stock = made(name="stock", worker=False)
    behind = made(name="behind", key={"fusions": True})
    fused = dataclasses.replace(behind, name="fused", own_fusions=False)
    pairs = [
        dataclasses.replace(each, quantisation=quantisation)
        for quantisation in (None, "W8A8_DYNAMIC", "W8A8")
        for each in (stock, behind, fused)
    ]
    control = dataclasses.replace(fused, name="control", quantisation="W8A8_DYNAMIC")
    judges = [
        made(name="transformers", quantisation=quantisation)
        for quantisation in (None, "W8A8_DYNAMIC", "W8A8")
    ]
    return [
        each
        for each in (*pairs, control, *judges)
        if (each.quantisation or FLOAT) in options.quantisations
    ]


def run_apart(
    variant: Variant,
    number: int,
    rows: list[dict[str, Any]],
    options: argparse.Namespace,
    folder: Path,
) -> list[dict[str, Any]]:
    """Run a variant in a process forked from this one, and return its rows."""
    import torch
    from quantised_checkpoint import quantise_checkpoint
    from tiny_qwen3 import write_checkpoint

    source = folder / FLOAT
    if not source.exists():
        write_checkpoint(source, num_layers=variant.num_layers, dtype=torch.bfloat16)
    checkpoint = folder / (variant.quantisation or FLOAT)
    if not checkpoint.exists():
        quantise_checkpoint(source, checkpoint, variant.quantisation)
    log = options.out.with_name(f"vllm-fusions-{number}.log")
    call = functools.partial(run_load, variant, checkpoint, options.sequences)
    if variant.name == "transformers":
        dtype = described(variant)["dtype"]
        call = functools.partial(judgements, rows, dtype, source, options.sequences)
    return run_forked(call, described(variant), log)


def main() -> int:
    """Run all variants; return 1 if something is wrong."""
    parser = make_parser("vllm-fusions", __doc__)
    parser.set_defaults(sequences=16, layers=2)
    parser.add_argument("--quantisations", nargs="*", default=list(EXPECTED), choices=EXPECTED)
    options = parser.parse_args()
    vllm_stand_ins.set_environment()
    kept = vllm_stand_ins.prepare()
    import vllm_ascend.platform  # noqa: F401

    rows = run_variants(choose_variants(options), options, run_apart)
    del kept
    return conclude(rows, COLUMNS, "vLLM 0.23.0 + vllm-ascend 0.23.0", verdict(rows))


if __name__ == "__main__":
    sys.exit(main())
