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

from engines.running.session_run import make_parser
from engines.vllm.idle_rank import COLUMNS, LONGEST_SECONDS, RANKS, run_ranks
from engines.vllm.session import run_session
from engines.vllm_next import ranks
from engines.vllm_next.session import MODES, run_apart, shift_worker, start_engine, stock_and_ours
from engines.vllm_next.without_device import stand_ins

if TYPE_CHECKING:
    from pathlib import Path

    from engines.vllm.models import ModelVariant


def run_tokens(variant: ModelVariant, checkpoint: Path, count: int) -> list[dict[str, Any]]:
    """Run the load on both engines and return their row; with ours, also the row of the control."""
    make = functools.partial(start_engine, install=stand_ins.install)
    return run_ranks(variant, checkpoint, count, make=make, shift_lengths=shift_worker)


def find_wrong(rows: list[dict[str, Any]]) -> list[str]:
    """Return the failures; empty if all is right."""
    idle = [row for row in rows if "tokens" in row and row["dummy_steps"] == 0]
    return ranks.verdict(rows) + [f"{row['name']}: no rank was idle" for row in idle]


def main() -> int:
    """Run all variants; return 1 if something is wrong."""
    parser = make_parser("vllm-next-idle-rank", __doc__)
    parser.set_defaults(layers=2)
    options = parser.parse_args()
    variants = stock_and_ours(MODES, model="Qwen3-MoE, data parallel", num_layers=options.layers)
    return run_session(
        variants,
        options,
        functools.partial(run_apart, load=run_tokens, limit=LONGEST_SECONDS),
        COLUMNS,
        find_wrong,
        prepare=stand_ins.prepare,
        CANN_SIM_DEVICES=str(RANKS),
    )


if __name__ == "__main__":
    sys.exit(main())
