"""vLLM's breakable graphs on vllm-ascend's newest release: its captures and ours, on one load.

Run as ``cann-sim run -- python -m engines.vllm_next.breaking.breakable``. With
``VLLM_USE_BREAKABLE_CUDAGRAPH=1`` nothing is compiled: steps of mode PIECEWISE, prompts among them,
are captured in segments between attention, which runs eagerly. All rows of a model are compared
with `stock`, the engine alone in mode PIECEWISE, where no attention is captured. `graphs` has our
captures of segments, `both` also our attention update in FULL steps, `ours` this alone. `whole` is
the engine alone with FULL steps, in which it gives FIA no lengths (docs/upstream). Where its tokens
are right, the log-probabilities of `both` and `ours` must be those of `whole`, otherwise those of
`stock`. `control` is the engine of the row before with key lengths that are one too small. Rows go
to build/engines/vllm-next-breakable.json.
"""

from __future__ import annotations

import functools
import os
import sys
from collections import Counter
from typing import TYPE_CHECKING, Any

from engines.load.decode_load import compare_load
from engines.running.session_rows import (
    DESCRIBED,
    TOKEN_COLUMNS,
    beside_stock,
    find_errors,
    find_unexpected,
    find_wrong_tokens,
)
from engines.running.session_run import make_parser
from engines.vllm.models import ModelVariant
from engines.vllm.session import generate as generate_tokens
from engines.vllm.session import run_session, runner_of, worker_of
from engines.vllm.workers import worker_counts
from engines.vllm_next.session import (
    COUNTED,
    compare_logprobs,
    generate,
    measure_steps,
    run_apart,
    shift_worker,
    start_engine,
)
from engines.vllm_next.without_device import stand_ins, stand_ins_v2

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable
    from pathlib import Path

PIECEWISE, BOTH_MODES = "PIECEWISE", "FULL_AND_PIECEWISE"
KEYS: dict[str, tuple[str, dict[str, Any]]] = {
    "stock": (PIECEWISE, {"worker": False}),
    "graphs": (PIECEWISE, {"key": {"graphs": True}}),
    "whole": (BOTH_MODES, {"worker": False}),
    "ours": (BOTH_MODES, {"key": True}),
    "both": (BOTH_MODES, {"key": {"graphs": True}}),
}
V2 = ", model runner v2"
# What runs, by model.
RUNS = {
    "Qwen3": ("stock", "graphs", "whole", "ours", "both"),
    "Qwen3-MoE": ("stock", "graphs", "whole", "both"),
    "DeepSeek": ("stock", "graphs", "whole", "both"),
    f"Qwen3{V2}": ("stock", "graphs", "whole", "both"),
}
# Whole prompts fit in the largest.
SIZES = (1, 2, 4, 8, 16, 64, 256, 512)
SAME = ("preempted", "replays", "steps", "synchronisations")
COLUMNS = {
    **DESCRIBED,
    **dict.fromkeys(("mode", "steps", "preempted", "full_steps", "waits_in_full_steps"), ""),
    **dict.fromkeys((*COUNTED, "equal_logprobs"), ""),
    **{name: form for name, form in TOKEN_COLUMNS.items() if name.endswith("_tokens")},
}


def run_load(variant: ModelVariant, checkpoint: Path, count: int) -> list[dict[str, Any]]:
    """Run the load on an engine and return its row; with ours, also the row of the control."""
    is_v2 = variant.model.endswith(V2)
    if is_v2:
        os.environ["VLLM_USE_V2_MODEL_RUNNER"] = "1"
    install = stand_ins_v2.install if is_v2 else stand_ins.install
    llm = start_engine(variant, checkpoint, install)
    serve = functools.partial(serve_load, llm, count, has_logprobs=not is_v2)
    measure = functools.partial(measure_load, llm, variant, is_v2=is_v2, serve=serve)
    rows = [measure()]
    worker = worker_of(llm)
    if variant.mode == BOTH_MODES:
        rows[0] |= worker_counts.describe_update(worker) or {}
    if variant.name not in ("graphs", "both"):
        return rows
    if variant.mode == PIECEWISE:
        for owner, name in steps_of(llm, variant.mode, is_v2=is_v2):
            shift_steps(owner, name)
    else:
        shift_worker(worker, -1)
    return [*rows, measure() | {"name": "control"}]


def serve_load(llm: Any, count: int, *, has_logprobs: bool) -> dict[str, Any]:
    """Serve the load; return its part of a row."""
    if not has_logprobs:  # Triton's kernel computes them
        return {"tokens": generate_tokens(llm, *compare_load(count))}
    return dict(zip(("tokens", "logprobs"), generate(llm, *compare_load(count)), strict=True))


def measure_load(
    llm: Any, variant: ModelVariant, *, is_v2: bool, serve: Callable[[], dict[str, Any]]
) -> dict[str, Any]:
    """Serve the load, and return what was made and the cost of the steps with graphs of a kind."""
    modes: Counter[str] = Counter()
    ((owner, name),) = steps_of(llm, variant.mode, is_v2=is_v2)
    counted = "FULL" if variant.mode == BOTH_MODES else PIECEWISE

    def is_counted() -> bool:
        from vllm.forward_context import get_forward_context

        # A FULL step of model runner v2 has no forward context.
        mode = counted if is_v2 else get_forward_context().cudagraph_runtime_mode.name
        modes[mode] += 1
        return bool(mode == counted)

    made = measure_steps(llm, variant, serve, step=(owner, name), is_full=is_counted)
    return {**made, "steps": ", ".join(f"{each} {modes[each]}" for each in sorted(modes))}


def steps_of(llm: Any, mode: str, *, is_v2: bool) -> list[tuple[Any, str]]:
    """Return the owner and the name of the method that runs steps."""
    runner = runner_of(llm)
    if not is_v2:
        return [(runner, "_model_forward")]
    return [(runner.cudagraph_manager, "run_pw_graph" if mode == PIECEWISE else "run_fullgraph")]


def shift_steps(owner: Any, name: str) -> None:
    """Change the key lengths in the metadata of steps, which attention between segments reads."""
    run = getattr(owner, name)

    def shifted(*args: Any, **kwargs: Any) -> Any:
        from vllm.forward_context import get_forward_context

        context = get_forward_context()
        metadata = context.attn_metadata
        made = {id(each): worker_counts.shift_metadata(each, -1) for each in metadata.values()}
        context.attn_metadata = {layer: made[id(each)] for layer, each in metadata.items()}
        return run(*args, **kwargs)

    setattr(owner, name, shifted)


def run_variant(
    variant: ModelVariant,
    number: int,
    rows: list[dict[str, Any]],
    options: argparse.Namespace,
    folder: Path,
) -> list[dict[str, Any]]:
    """Run a variant in a process of its own; the rows of all modes of a model are compared."""
    made = run_apart(variant, number, [], options, folder, load=run_load, write=write_model)
    of_model = f"{variant.model}, {variant.dtype}"
    for row in made:
        row |= {"dtype": of_model, "model": of_model}
    compare_logprobs([*rows, *made])
    return made


def write_model(variant: ModelVariant, checkpoint: Path) -> None:
    """Write the checkpoint of a variant."""
    from dataclasses import replace

    from engines.models import tiny_models

    tiny_models.write_model(replace(variant, model=variant.model.removesuffix(V2)), checkpoint)


def verdict(rows: list[dict[str, Any]]) -> list[str]:
    """Return the failures; empty if all is right."""
    wrong = find_errors(rows)
    whole = {row["dtype"]: row for row in rows if row["name"] == "whole" and "tokens" in row}
    for row, stock, what in beside_stock(rows):
        if stock is None or row["name"] == "stock":
            continue
        if row["name"] == "whole" and row["task_updates"] == 0 and not row["model"].endswith(V2):
            # The engine's issue: lengths of the capture in each step.
            if row["equal_tokens"] == row["num_tokens"]:
                wrong.append(f"{what}: the tokens of stock without an update of attention")
            continue
        wrong += find_wrong_tokens(row, what)
        theirs = stock if row["mode"] == PIECEWISE else whole.get(row["dtype"])
        if row["name"] in ("control", "whole") or theirs is None:
            continue
        expected: dict[str, Any] = {name: theirs[name] for name in SAME}
        if row["mode"] != PIECEWISE:
            # One wait less for each step of a FULL graph, and none is left in them.
            expected["synchronisations"] -= theirs["waits_in_full_steps"]
        expected["waits_in_full_steps"] = 0
        wrong += find_unexpected(row, what, expected)
        # On one machine stock's own FULL steps rounded two tokens of DeepSeek differently.
        judge = theirs if theirs.get("equal_tokens") == theirs.get("num_tokens") else stock
        if row.get("logprobs") != judge.get("logprobs"):
            wrong.append(f"{what}: its log-probabilities are not those of `{judge['name']}`")
    return wrong


def choose_variants(options: argparse.Namespace) -> list[ModelVariant]:
    """Return the variants selected by the options."""
    return [
        ModelVariant(
            name=name,
            dtype="bfloat16",
            num_layers=options.layers,
            mode=KEYS[name][0],
            model=model,
            capture_sizes=SIZES,
            **KEYS[name][1],
        )
        for model in options.models
        for name in RUNS[model]
    ]


def main() -> int:
    """Run all variants; return 1 if something is wrong."""
    parser = make_parser("vllm-next-breakable", __doc__)
    parser.set_defaults(layers=2)
    parser.add_argument("--models", nargs="*", default=list(RUNS), choices=RUNS)
    options = parser.parse_args()
    variants = choose_variants(options)
    environment = {"VLLM_USE_BREAKABLE_CUDAGRAPH": "1"}
    return run_session(
        variants, options, run_variant, COLUMNS, verdict, prepare=stand_ins.prepare, **environment
    )


if __name__ == "__main__":
    sys.exit(main())
