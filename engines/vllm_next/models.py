"""vLLM 0.30.0 and vllm-ascend 0.30.0rc2 on simulated CANN with other models than a dense Qwen3.

Run as ``cann-sim run -- python -m engines.vllm_next.models``. One model is DeepSeek-V3, whose
attention is latent (MLA), also with a number of heads that is padded and with experts; one is
Qwen3-MoE, one Mistral with a sliding window, and one a dense Qwen3 with ATB's paged attention in
graphs of some sizes. `stock` is the engine alone, `ours` has our attention update, and `control` is
the engine of `ours` once more with key lengths that are one too small. Rows go to
build/engines/vllm-next-models.json.
"""

from __future__ import annotations

import functools
import sys
from typing import TYPE_CHECKING, Any

from engines.running.session_run import make_parser
from engines.vllm.models import PAGED_SIZES, ModelVariant
from engines.vllm.session import run_session
from engines.vllm_next.session import COLUMNS, run_apart, run_load, stock_and_ours, verdict
from engines.vllm_next.without_device import stand_ins

if TYPE_CHECKING:
    import argparse
    from pathlib import Path

# What runs, by model and mode.
RUNS = (
    ("DeepSeek", "FULL_DECODE_ONLY"),
    ("DeepSeek", "FULL_AND_PIECEWISE"),
    ("DeepSeek, 3 heads", "FULL_DECODE_ONLY"),
    ("DeepSeek, experts", "FULL_DECODE_ONLY"),
    ("Qwen3-MoE", "FULL_DECODE_ONLY"),
    ("Qwen3-MoE", "FULL_AND_PIECEWISE"),
    ("Mistral, window of 64", "FULL_DECODE_ONLY"),
    ("Qwen3, paged attention", "FULL_DECODE_ONLY"),
)


def run_model(variant: ModelVariant, checkpoint: Path, count: int) -> list[dict[str, Any]]:
    """Run the load on an engine and return its row; with ours, also the row of the control."""
    return run_load(variant, checkpoint, count, functools.partial(install_for, variant))


def install_for(variant: ModelVariant) -> None:
    """Replace what the simulator cannot run, and what the engine refuses of its own."""
    stand_ins.install()
    if variant.model.startswith("DeepSeek"):
        stand_ins.let_deepseek_compile()


def choose_variants(options: argparse.Namespace) -> list[ModelVariant]:
    """Return the variants selected by the options."""
    return [
        variant
        for number, (model, mode) in enumerate(RUNS)
        if options.runs is None or number in options.runs
        for variant in stock_and_ours(
            (mode,),
            model=model,
            num_layers=options.layers,
            paged_sizes=PAGED_SIZES if "paged" in model else (),
        )
    ]


def main() -> int:
    """Run all variants; return 1 if something is wrong."""
    parser = make_parser("vllm-next-models", __doc__)
    parser.set_defaults(layers=2)
    parser.add_argument("--runs", type=int, nargs="*", help="numbers in RUNS")
    options = parser.parse_args()
    variants = choose_variants(options)
    run = functools.partial(run_apart, load=run_model)
    return run_session(variants, options, run, COLUMNS, verdict, prepare=stand_ins.prepare)


if __name__ == "__main__":
    sys.exit(main())
