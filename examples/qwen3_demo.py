"""Decode a Qwen3 model in every compile mode on simulated CANN, and compare the results.

Run by ``./nox -s demo``; options after ``--``. Without ``--checkpoint`` a tiny random model is
written first. The exit status is 0 only if every verdict is good.
"""

from __future__ import annotations

import sys

import cann_sim


def main() -> int:
    """Activate the simulator, then run the demo."""
    # Before torch is imported: it may load torch_npu, which looks for the device libraries.
    cann_sim.activate()
    from qwen3_engine.demonstration.demo import run_demo  # noqa: PLC0415

    return run_demo(sys.argv[1:], count_launches=lambda: cann_sim.counters().launches)


if __name__ == "__main__":
    sys.exit(main())
