"""SGLang on simulated CANN with two processes for one model: its attention update and ours.

Run as ``cann-sim run -- python -m engines.sglang.ranks``. The engine starts two schedulers, each
with a simulated device of its own, which hold a half of every layer (tensor parallelism) and add up
what they computed by HCCL. Variants are those of engines/sglang/models.py; key lengths of `control`
are one too small on both ranks. What is counted is added up over the ranks. Rows go to
build/engines/sglang-ranks.json.
"""

from __future__ import annotations

import functools
import sys

from engines.running.session_run import make_parser
from engines.sglang.models import choose_variants, run_session

RANKS = 2
RUNS = (("Qwen3", "bfloat16"), ("DeepSeek", "bfloat16"), ("Qwen3-MoE", "bfloat16"))

if __name__ == "__main__":
    parser = make_parser("sglang-ranks", __doc__)
    choose = functools.partial(choose_variants, RUNS, ranks=RANKS)
    sys.exit(run_session(__spec__.name, parser, choose))
