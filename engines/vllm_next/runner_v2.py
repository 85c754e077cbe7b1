"""vllm-ascend's newest release with model runner v2: its attention update and ours, on one load.

Run as ``cann-sim run -- python -m engines.vllm_next.runner_v2``. Variants are those of
engines/vllm_next/session.py, and those of engines/vllm_next/drafts.py for drafts by an EAGLE-3
head, by a DeepSeek's own layer and by DFlash; vLLM refuses `ngram` with this runner. It captures
the draft's first step and its further steps as two graphs, and DFlash, which drafts all tokens at
once, as one. Log-probabilities are not compared: the kernel that
computes them is Triton's. Rows go to build/engines/vllm-next-runner-v2.json.
"""

from __future__ import annotations

import functools
import sys
from typing import TYPE_CHECKING, Any

from engines.load.decode_load import MOST_SEQUENCES, compare_load
from engines.models.tiny_models import write_model
from engines.running.session_rows import (
    DESCRIBED,
    TOKEN_COLUMNS,
    beside_stock,
    find_errors,
    find_unexpected,
    find_wrong_tokens,
)
from engines.running.session_run import make_parser
from engines.vllm.drafts import method_of, speculation, write_checkpoints
from engines.vllm.models import ModelVariant
from engines.vllm.session import Variant, generate, run_session, runner_of
from engines.vllm.workers import worker_counts
from engines.vllm_next.drafts import find_wrong_drafts, is_moved, measure_drafts
from engines.vllm_next.session import (
    COUNTED,
    KEYS,
    measure_steps,
    measure_with_control,
    run_apart,
    shift_graphs,
    start_engine,
)
from engines.vllm_next.without_device import speculator_v2, stand_ins, stand_ins_v2

if TYPE_CHECKING:
    from pathlib import Path

# What runs, by model.
RUNS = {
    "Qwen3": ("stock", "off", "ours"),
    "DeepSeek": ("stock", "ours"),
    "Qwen3, drafts by eagle3": ("stock", "ours"),
    "DeepSeek, drafts by mtp": ("stock", "ours"),
    "Qwen3, drafts by dflash": ("stock", "ours"),
}
# So that the graph of the draft's further steps has more than one.
DRAFTED = 3
SIZES = (1, 2, 4, 8, MOST_SEQUENCES, 2 * MOST_SEQUENCES, (1 + DRAFTED) * MOST_SEQUENCES)
SAME = ("preempted", "full_steps", "replays", "waits_in_full_steps", "synchronisations")
COLUMNS = {
    "accepted": "",
    **DESCRIBED,
    **dict.fromkeys(dict.fromkeys((*SAME, *COUNTED)), ""),
    **TOKEN_COLUMNS,
}


def run_load(variant: ModelVariant, checkpoint: Path, count: int) -> list[dict[str, Any]]:
    """Run the load on an engine and return its row; with ours, also those of the controls."""
    method = method_of(variant) if "drafts" in variant.model else None
    given = {}
    if method is not None:
        given["speculative_config"] = speculation(method, checkpoint, DRAFTED)
    llm = start_engine(variant, checkpoint, functools.partial(install_for, variant), **given)
    runner = runner_of(llm)
    step, is_full = (runner.cudagraph_manager, "run_fullgraph"), lambda: True
    if method is None:
        serve = functools.partial(generate, llm, *compare_load(count))
        measure = functools.partial(
            measure_steps, llm, variant, lambda: {"tokens": serve()}, step=step, is_full=is_full
        )
        return measure_with_control(llm, measure)
    measure = functools.partial(
        measure_drafts, llm, variant, count, drafts=True, step=step, is_full=is_full
    )
    return measure_with_control(llm, measure, functools.partial(shift_draft, runner.speculator))


def shift_draft(speculator: Any) -> None:
    """Make the key lengths of a draft's steps one too small."""
    for name in ("prefill", "decode", "query"):
        manager = getattr(speculator, f"{name}_cudagraph_manager", None)
        if manager is None:
            continue
        if hasattr(manager, "update"):
            worker_counts.shift_steps(manager.update, -1)
        else:
            shift_graphs(manager.graphs.values(), -1)


def install_for(variant: ModelVariant) -> None:
    """Replace what the simulator cannot run, and what the engine refuses of its own."""
    stand_ins_v2.install()
    speculator_v2.install()
    if variant.model.startswith("DeepSeek"):
        stand_ins.let_deepseek_compile()


def write_both(variant: ModelVariant, checkpoint: Path) -> None:
    """Write the model of a variant, with its draft if it has one."""
    write = write_checkpoints if "drafts" in variant.model else write_model
    write(variant, checkpoint)


def verdict(rows: list[dict[str, Any]]) -> list[str]:
    """Return the failures; empty if all is right."""
    wrong = find_errors(rows)
    for row, theirs, what in beside_stock(rows):
        wrong += find_wrong_drafts(row, theirs, what)
        if theirs is None or row["name"] == "stock":
            continue
        if not is_moved(row, theirs):
            wrong += find_wrong_tokens(row, what)
        # Other tokens have other drafts, of which the engine accepts others.
        if "accepted" not in row or row["name"] == "ours":
            wrong += find_unexpected(row, what, {name: theirs[name] for name in SAME})
    return wrong


def main() -> int:
    """Run all variants; return 1 if something is wrong."""
    parser = make_parser("vllm-next-runner-v2", __doc__)
    parser.add_argument("--models", nargs="*", default=list(RUNS), choices=RUNS)
    options = parser.parse_args()
    variants = [
        ModelVariant(
            name=name,
            dtype="bfloat16",
            num_layers=2 if "mtp" in model else options.layers,
            model=model,
            capture_sizes=SIZES if "drafts" in model else Variant.capture_sizes,
            **KEYS[name],
        )
        for model in options.models
        for name in RUNS[model]
    ]
    return run_session(
        variants,
        options,
        functools.partial(run_apart, load=run_load, write=write_both),
        COLUMNS,
        verdict,
        prepare=stand_ins.prepare,
        VLLM_USE_V2_MODEL_RUNNER="1",
    )


if __name__ == "__main__":
    sys.exit(main())
