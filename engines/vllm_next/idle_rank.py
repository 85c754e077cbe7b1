"""vllm-ascend 0.30.0rc2 on simulated CANN with two engines that share experts, one mostly idle.

Run as ``cann-sim run -- python -m engines.vllm_next.idle_rank``. As engines/vllm/idle_rank.py: data
parallelism in which the second engine gets few sequences, and then runs dummy steps. `stock` is the
engine alone, `ours` has our attention update, and `control` is `ours` once more with key lengths
that are one too small on both. Rows go to build/engines/vllm-next-idle-rank.json.
"""

from __future__ import annotations

import functools
import sys
from typing import TYPE_CHECKING, Any

from engines.models.tiny_models import write_model
from engines.running.forked_variant import run_forked
from engines.running.session_run import make_parser
from engines.vllm.idle_rank import COLUMNS, LONGEST_SECONDS, RANKS, run_ranks
from engines.vllm.models import KEYS, ModelVariant, described
from engines.vllm.session import run_session
from engines.vllm_next import ranks, stand_ins
from engines.vllm_next.session import shift_worker, start_engine

if TYPE_CHECKING:
    import argparse
    from pathlib import Path


def find_wrong(rows: list[dict[str, Any]]) -> list[str]:
    """Return the failures; empty if all is right."""
    idle = [row for row in rows if "tokens" in row and row["dummy_steps"] == 0]
    return ranks.verdict(rows) + [f"{row['name']}: no rank was idle" for row in idle]


def run_apart(
    variant: ModelVariant,
    number: int,
    rows: list[dict[str, Any]],
    options: argparse.Namespace,
    folder: Path,
) -> list[dict[str, Any]]:
    """Run a variant in processes forked from this one, and return its rows."""
    del rows
    checkpoint = folder / variant.model
    if not checkpoint.exists():
        write_model(variant, checkpoint)
    make = functools.partial(start_engine, install=stand_ins.install)
    call = functools.partial(
        run_ranks, variant, checkpoint, options.sequences, make=make, shift_lengths=shift_worker
    )
    log = options.out.with_name(f"{options.out.stem}-{number}.log")
    return run_forked(call, described(variant), log, LONGEST_SECONDS)


def main() -> int:
    """Run all variants; return 1 if something is wrong."""
    parser = make_parser("vllm-next-idle-rank", __doc__)
    parser.set_defaults(layers=2)
    options = parser.parse_args()
    variants = [
        ModelVariant(
            name=name,
            dtype="bfloat16",
            num_layers=options.layers,
            model="Qwen3-MoE, data parallel",
            **KEYS[name],
        )
        for name in ("stock", "ours")
    ]
    return run_session(
        variants,
        options,
        run_apart,
        COLUMNS,
        find_wrong,
        prepare=stand_ins.prepare,
        CANN_SIM_DEVICES=str(RANKS),
    )


if __name__ == "__main__":
    sys.exit(main())
