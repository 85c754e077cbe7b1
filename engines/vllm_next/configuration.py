"""The resolved configuration of vllm-ascend 0.30.0rc2 with this repository and without.

Run as ``cann-sim run -- python -m engines.vllm_next.configuration``. As
engines/vllm/configuration.py: nothing but the class of the worker may differ from the engine alone,
neither where the engine is made nor in the workers of a Qwen3-MoE with tensor, data and expert
parallelism, whose tokens have to be those of stock. This release has our worker and the variable
VLLM_NPU_GRAPH. Rows go to build/engines/vllm-next-configuration.json.
"""

from __future__ import annotations

import functools
import sys

from engines.vllm.configuration import KEYS, Release, make_sides, run_release
from engines.vllm_next.session import start_engine
from engines.vllm_next.without_device import stand_ins


def main() -> int:
    """Compare all sides; return 1 if something is wrong."""
    release = Release(
        module=__spec__.name,
        out="vllm-next-configuration.json",
        sides=make_sides(("worker_cls",), KEYS),
        prepare=stand_ins.prepare,
        make=functools.partial(start_engine, install=stand_ins.install),
        takes_key=False,
    )
    return run_release(release, __doc__)


if __name__ == "__main__":
    sys.exit(main())
