"""SGLang on simulated CANN with two ranks that share experts, one of which may have nothing to do.

Run as ``cann-sim run -- python -m engines.sglang.idle_rank``. Data parallelism of attention: two
schedulers have sequences of their own and a half of the experts' weights, and exchange tokens by
HCCL in every step; one without a sequence takes part with none. Sequences go to both ranks in
turns, or all to the first. Variants are those of engines/sglang/models.py; what is counted is added
up over the ranks. Rows go to build/engines/sglang-idle-rank.json.
"""

from __future__ import annotations

import functools
import sys
from typing import TYPE_CHECKING, Any

from engines.running.session_run import make_parser
from engines.sglang.models import ModelVariant, choose_variants, described, run_session
from engines.sglang.session import run_load

if TYPE_CHECKING:
    from pathlib import Path

RANKS = 2
RUNS = (
    ("Qwen3-MoE, data parallel", "bfloat16"),
    ("Qwen3-MoE, data parallel with one rank idle", "bfloat16"),
)


def run_variant(variant: ModelVariant, checkpoint: Path, count: int) -> list[dict[str, Any]]:
    """Run a variant in this process and those of its engine, and return its rows."""
    given = {"routed_dp_rank": 0} if "idle" in variant.model else {}
    options = {**variant.options(), "dp_size": RANKS, "enable_dp_attention": True}
    rows = run_load(variant, checkpoint, count, given, **options)
    return [row | described(variant) | {"name": row["name"]} for row in rows]


if __name__ == "__main__":
    parser = make_parser("sglang-idle-rank", __doc__)
    choose = functools.partial(choose_variants, RUNS, ranks=RANKS)
    sys.exit(run_session(__spec__.name, parser, choose, run=run_variant))
