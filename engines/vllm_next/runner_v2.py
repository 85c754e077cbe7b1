"""vllm-ascend's newest release with model runner v2: its attention update and ours, on one load.

Run as ``cann-sim run -- python -m engines.vllm_next.runner_v2``. Variants are those of
engines/vllm_next/session.py. Log-probabilities are not compared: the kernel that computes them is
Triton's. Rows go to build/engines/vllm-next-runner-v2.json.
"""

from __future__ import annotations

import functools
import sys
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
from engines.vllm.session import generate, run_session, runner_of
from engines.vllm_next.session import (
    COUNTED,
    KEYS,
    measure_steps,
    measure_with_control,
    run_apart,
    start_engine,
)
from engines.vllm_next.without_device import stand_ins, stand_ins_v2

if TYPE_CHECKING:
    from pathlib import Path

# What runs, by model.
RUNS = {"Qwen3": ("stock", "off", "ours"), "DeepSeek": ("stock", "ours")}
SAME = ("preempted", "full_steps", "replays", "waits_in_full_steps", "synchronisations")
COLUMNS = {**DESCRIBED, **dict.fromkeys(dict.fromkeys((*SAME, *COUNTED)), ""), **TOKEN_COLUMNS}


def run_load(variant: ModelVariant, checkpoint: Path, count: int) -> list[dict[str, Any]]:
    """Run the load on an engine and return its row; with ours, also the row of the control."""
    llm = start_engine(variant, checkpoint, functools.partial(install_for, variant))
    manager = runner_of(llm).cudagraph_manager
    measure = functools.partial(
        measure_steps,
        llm,
        variant,
        lambda: {"tokens": generate(llm, *compare_load(count))},
        step=(manager, "run_fullgraph"),
        is_full=lambda: True,
    )
    return measure_with_control(llm, measure)


def install_for(variant: ModelVariant) -> None:
    """Replace what the simulator cannot run, and what the engine refuses of its own."""
    stand_ins_v2.install()
    if variant.model == "DeepSeek":
        stand_ins.let_deepseek_compile()


def verdict(rows: list[dict[str, Any]]) -> list[str]:
    """Return the failures; empty if all is right."""
    wrong = find_errors(rows)
    for row, theirs, what in beside_stock(rows):
        if theirs is None or row["name"] == "stock":
            continue
        wrong += find_wrong_tokens(row, what)
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
            num_layers=options.layers,
            model=model,
            **KEYS[name],
        )
        for model in options.models
        for name in RUNS[model]
    ]
    return run_session(
        variants,
        options,
        functools.partial(run_apart, load=run_load),
        COLUMNS,
        verdict,
        prepare=stand_ins.prepare,
        VLLM_USE_V2_MODEL_RUNNER="1",
    )


if __name__ == "__main__":
    sys.exit(main())
