"""vllm-ascend's newest release with model runner v2 and two processes for one model.

Run as ``cann-sim run -- python -m engines.vllm_next.ranks_v2``. As engines/vllm_next/ranks.py, also
with each prompt divided between the ranks (PCP). Rows go to
build/engines/vllm-next-runner-v2-ranks.json.
"""

from __future__ import annotations

import functools
import sys

from engines.running.session_run import make_parser
from engines.vllm.models import COLUMNS
from engines.vllm.ranks import LONGEST_SECONDS
from engines.vllm.session import run_session
from engines.vllm_next.ranks import ENVIRONMENT, choose_variants, run_tokens, verdict
from engines.vllm_next.runner_v2 import install_for
from engines.vllm_next.session import run_apart
from engines.vllm_next.without_device import stand_ins

MODELS = ("Qwen3", "DeepSeek", "Qwen3, DCP", "DeepSeek, DCP", "Qwen3, PCP", "DeepSeek, PCP")


def main() -> int:
    """Run all variants; return 1 if something is wrong."""
    parser = make_parser("vllm-next-runner-v2-ranks", __doc__)
    parser.set_defaults(layers=2)
    parser.add_argument("--models", nargs="*", default=list(MODELS), choices=MODELS)
    options = parser.parse_args()
    load = functools.partial(run_tokens, install=install_for)
    return run_session(
        choose_variants(options, ("FULL_DECODE_ONLY",)),
        options,
        functools.partial(run_apart, load=load, limit=LONGEST_SECONDS),
        COLUMNS,
        functools.partial(verdict, waits=0),
        prepare=stand_ins.prepare,
        VLLM_USE_V2_MODEL_RUNNER="1",
        **ENVIRONMENT,
    )


if __name__ == "__main__":
    sys.exit(main())
