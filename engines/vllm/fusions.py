"""vLLM-Ascend on simulated CANN with the fusions of fx_passes: what they fuse, and its tokens.

Run as ``cann-sim run -- python -m engines.vllm.fusions``. The engine compiles in pieces; every
variant is a process forked from one that has imported vLLM. Two are the engine alone: `stock`, and
`unfused` with its own fusions off. `behind` has our pass behind the engine's, `fused` has ours and
none of its own, `exact` only our rules that change no bit. `apart` is `fused` with each fused
operator that rounds otherwise computed by the operators it replaced: where that gives the tokens
of `unfused`, the rounding inside those operators is all that `fused` differs by. `control` is
`fused` with norms that are wrong. Where the engine captures whole steps it compiles by npugraph_ex:
there our platform plugin's compiler fuses what npugraph_ex is handed, and `unfused` is compared
with. Rows, with the near misses and their reasons, go to build/engines/vllm-fusions.json.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import sys
from collections import Counter
from typing import TYPE_CHECKING, Any

from engines.load.decode_load import compare_load
from engines.load.token_margins import TokenMargins, first_differences
from engines.running.forked_variant import run_forked
from engines.running.fused_operators import make_norms_wrong, take_apart
from engines.running.session_rows import TOKEN_COLUMNS, judgements
from engines.running.session_run import conclude, make_parser, run_variants
from engines.vllm.graphs import PLUGINS
from engines.vllm.session import (
    OWN_FUSIONS,
    Variant,
    count_preemptions,
    describe,
    generate,
    make_engine,
    runner_of,
    worker_of,
)
from engines.vllm.without_device import stand_ins

import cann_sim

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable
    from pathlib import Path

    from torch.fx import GraphModule

FLOAT = "float"
# What the engine's layers emit for q and k, at each layer: a cut, two norms and a rotation in
# place of one kernel, which gives rows that are taken for heads again.
HEADS = {"fuse_split_qkv_rms_norm_rotary_embedding": (0, 1), "merge_reshapes": (0, 6)}
# For each quantisation the rules that match, as (a, b): a times, and b times more for each layer.
EXPECTED: dict[str, dict[str, tuple[int, int]]] = {
    FLOAT: HEADS,
    # There is nothing to add before the first norm, and nothing is quantised after the last.
    "W8A8_DYNAMIC": {
        **HEADS,
        "fuse_add_rms_norm_dynamic_quant": (-1, 2),
        "fuse_swiglu_dynamic_quant": (0, 1),
    },
    "W8A8": {
        **HEADS,
        "vllm_ascend_quantize": (1, 2),
        "vllm_ascend_plain_norm_quantize": (-1, 2),
    },
}
BY_EX = "FULL_DECODE_ONLY"
"""The mode in which the engine compiles by npugraph_ex."""
# There the heads stay as they are: their kernel is declared with the engine's own fusion.
EXPECTED_BY_EX = {
    kind: {rule: times for rule, times in rules.items() if rule not in HEADS}
    for kind, rules in EXPECTED.items()
}
# With which variant the tokens of one are compared, if not with the stock engine's.
COMPARED = {"exact": "unfused", "apart": "unfused"}
# Variants whose tokens are all those of the other.
EQUAL = {(FLOAT, "fused"), (FLOAT, "behind")} | {
    (quantisation, name) for quantisation in EXPECTED for name in COMPARED
}
# How far below the likeliest token of the float model a chosen one may be, in standard deviations
# of the logits: what rounding and quantisation leave. Seen were 0.02, 0.13 and 0.30, the engine
# alone and with ours alike, and 5.2 with wrong norms.
WORST_TOKEN = {FLOAT: 0.1, "W8A8_DYNAMIC": 0.3, "W8A8": 0.6}
# By how much the two tokens may differ where two variants first do, in standard deviations of the
# logits of the one compared with.
WIDEST = {FLOAT: 0.1, "W8A8_DYNAMIC": 0.3, "W8A8": 0.6}
COLUMNS = {
    **dict.fromkeys(("name", "dtype", "num_layers", "graphs"), ""),
    **dict.fromkeys(("launches", "kernels", "fused"), ""),
    **TOKEN_COLUMNS,
    "differ": "",
    "widest": ".3f",
}


def run_load(variant: Variant, checkpoint: Path, count: int) -> list[dict[str, Any]]:
    """Return the row of a variant: its tokens, and what was fused."""
    if variant.name == "control":
        add_pass("wrong_norms", make_norms_wrong)
    if variant.name == "apart":
        add_pass("apart", take_engine_apart)
    llm = make_engine(variant, checkpoint)
    margins = TokenMargins(runner_of(llm))
    preempted = count_preemptions(llm)
    before = cann_sim.counters()
    tokens = generate(llm, *compare_load(count))
    counted = cann_sim.counters() - before
    row = {
        **described(variant),
        "sequences": count,
        "preempted": len(preempted),
        "tokens": tokens,
        "tops": margins.read(),
        "launches": counted.launches,
        "kernels": counted.launches + counted.replayed_kernels,
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


def add_pass(name: str, function: Callable[[GraphModule], bool]) -> None:
    """Apply a function to every graph after our passes."""
    import fx_passes
    import vllm_npu_graph.v0_23.fusions as door
    from fx_passes.inductor import PostGradPasses

    def make() -> PostGradPasses:
        passes = PostGradPasses()
        passes.add(fx_passes.FunctionPass(name=name, function=function))
        return passes

    door.PostGradPasses = make  # type: ignore[assignment,misc]


def take_engine_apart(module: GraphModule) -> bool:
    """Replace fused operators, including the engine's own, by those that they replaced."""
    import torch

    heads = getattr(torch.ops.vllm, "qkv_rmsnorm_rope", None)
    return take_apart(module, {} if heads is None else {heads.default: norms_and_rotation})


def norms_and_rotation(
    qkv: Any,
    table: Any,
    positions: Any,
    q_weight: Any,
    k_weight: Any,
    *sizes: Any,
    **_none: Any,
) -> tuple[Any, Any, Any]:
    """Compute `vllm::qkv_rmsnorm_rope` by the operators that the layers emit."""
    import torch
    import torch_npu

    q_width, k_width, head_dim, epsilon = sizes
    q, k, v = qkv.split([q_width, k_width, k_width], -1)
    normed = [
        torch_npu.npu_rms_norm(part.view(len(qkv), -1, head_dim), weight, epsilon)[0]
        for part, weight in ((q, q_weight), (k, k_weight))
    ]
    flat = (part.view(len(qkv), -1) for part in normed)
    rotated = torch.ops.vllm.npu_rotary_embedding
    return (*rotated(positions, *flat, table, head_dim, table.shape[1], True), v.contiguous())


def described(variant: Variant) -> dict[str, Any]:
    """Return the first fields of a variant's row."""
    # Rows are compared with the stock engine's of the same dtype.
    quantisation = variant.quantisation or FLOAT
    by_ex = variant.mode == BY_EX
    return {
        **describe(variant),
        "dtype": f"{variant.dtype}, {quantisation}{', npugraph_ex' if by_ex else ''}",
        "quantisation": quantisation,
        "mode": variant.mode,
        "compared_with": "unfused" if by_ex else COMPARED.get(variant.name, "stock"),
    }


def measure_margins(rows: list[dict[str, Any]]) -> None:
    """Add to each row in how many sequences it differs, and the widest of the margins there."""
    given = {(row["name"], row["dtype"]): row for row in rows if "tokens" in row}
    for row in given.values():
        other = given.get((row["compared_with"], row["dtype"]))
        if list(map(len, row["tops"])) != list(map(len, row["tokens"])):
            raise ValueError(f"{row['name']}: logits were kept of other tokens than those given")
        if other is not None and "differ" not in row:
            margins = first_differences(row["tokens"], other["tokens"], other["tops"])
            row |= {"margins": margins, "differ": len(margins), "widest": max(margins, default=0.0)}


def verdict(rows: list[dict[str, Any]]) -> list[str]:
    """Return the failures; empty if all is right."""
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
        kind = row["quantisation"]
        if "equal_tokens" not in row:
            wrong.append(f"{what}: there is no {row['compared_with']} engine to compare with")
        elif (kind, row["name"]) in EQUAL and row["equal_tokens"] != row["num_tokens"]:
            equal = f"{row['equal_tokens']} of {row['num_tokens']}"
            wrong.append(f"{what}: {equal} tokens are those of {row['compared_with']}")
        if "widest" in row and (row["widest"] > WIDEST[kind]) != (row["name"] == "control"):
            wrong.append(f"{what}: differs by {row['widest']:.3f} (rule: {WIDEST[kind]})")
        rules = (EXPECTED_BY_EX if row["mode"] == BY_EX else EXPECTED)[kind]
        expected = {rule: first + each * row["num_layers"] for rule, (first, each) in rules.items()}
        if row["name"] in {"fused", "apart"} and fusions != expected:
            wrong.append(f"{what}: expected {expected} fusions, found {fusions}")
        if row["name"] == "exact" and not fusions:
            wrong.append(f"{what}: nothing is fused")
    return wrong


def choose_variants(options: argparse.Namespace) -> list[Variant]:
    """Return the variants selected by the options."""
    made = functools.partial(Variant, dtype="bfloat16", num_layers=options.layers, mode="PIECEWISE")
    stock = made(name="stock", worker=False)
    unfused = dataclasses.replace(stock, name="unfused", left_out=OWN_FUSIONS)
    behind = made(name="behind", key={"fusions": True})
    fused = dataclasses.replace(behind, name="fused", left_out=OWN_FUSIONS)
    exact = dataclasses.replace(fused, name="exact", key={"fusions": {"exact": True}})
    apart = dataclasses.replace(fused, name="apart")
    control = dataclasses.replace(fused, name="control")
    chosen: dict[str | None, tuple[Variant, ...]] = {
        None: (stock, unfused, behind, fused, control),
        "W8A8_DYNAMIC": (stock, unfused, behind, fused, apart, control),
        "W8A8": (stock, unfused, fused, exact, apart, control),
    }
    judge = made(name="transformers")
    pairs = [
        dataclasses.replace(each, quantisation=quantisation)
        for quantisation, variants in chosen.items()
        for each in (*variants, judge)
    ]
    pairs += [
        dataclasses.replace(each, quantisation=quantisation, mode=BY_EX)
        for quantisation in ("W8A8_DYNAMIC", "W8A8")
        for each in (unfused, fused, apart, control)
    ]
    return [each for each in pairs if (each.quantisation or FLOAT) in options.quantisations]


def run_apart(
    variant: Variant,
    number: int,
    rows: list[dict[str, Any]],
    options: argparse.Namespace,
    folder: Path,
) -> list[dict[str, Any]]:
    """Run a variant in a process forked from this one, and return its rows."""
    import torch
    from engines.models.quantised_checkpoint import quantise_checkpoint
    from engines.models.tiny_qwen3 import write_checkpoint

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
    parser.set_defaults(layers=2)
    parser.add_argument("--quantisations", nargs="*", default=list(EXPECTED), choices=EXPECTED)
    options = parser.parse_args()
    stand_ins.set_environment()
    os.environ["VLLM_PLUGINS"] = ",".join(PLUGINS)
    kept = stand_ins.prepare()
    import vllm_ascend.platform  # noqa: F401

    rows = run_variants(choose_variants(options), options, run_apart)
    measure_margins(rows)
    options.out.write_text(json.dumps(rows, indent=1))
    del kept
    return conclude(rows, COLUMNS, "vLLM 0.23.0 + vllm-ascend 0.23.0", verdict(rows))


if __name__ == "__main__":
    sys.exit(main())
