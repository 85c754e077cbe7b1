"""vllm-ascend 0.30.0rc2 on simulated CANN under faults that seeds decide.

Run as ``cann-sim run -- python -m engines.vllm_next.failing.seeded_failures``. As
engines/vllm/failing/seeded_failures.py, with the graphs of this release: an update fails, a step
has other lengths or lacks the metadata of a layer, or something fails after a replay. Rows go to
build/engines/vllm-next-seeded-failures.json.
"""

from __future__ import annotations

import dataclasses
import functools
import sys
from typing import TYPE_CHECKING, Any

from engines.vllm.failing.seeded_failures import KINDS_OF_BOTH, FaultSession, run_session
from engines.vllm.failing.worker_faults import damage
from engines.vllm.session import Variant
from engines.vllm_next.session import graphs_of, start_engine
from engines.vllm_next.without_device import stand_ins

import cann_sim

if TYPE_CHECKING:
    from engines.faults.seeded_faults import Fault

VARIANT = Variant(name="ours", dtype="bfloat16", num_layers=2)
ENGINES = {
    name: dataclasses.replace(VARIANT, key={"updater": name}) for name in ("native", "kernels")
}


def begin_failing(worker: Any, fault: Fault) -> None:
    """Start the fault in the graphs of a worker."""
    worker.mended = []
    if fault.kind == "update":
        cann_sim.set_faults(f"task_update:{fault.first}")
        return
    seen: list[Fault] = []

    def is_now() -> bool:
        seen.append(fault)
        return len(seen) == fault.first

    for graph in graphs_of(worker.model_runner.model):
        fail_graph(worker, graph, fault, is_now)


def fail_graph(worker: Any, graph: Any, fault: Fault, is_now: Any) -> None:
    """Make a step of a graph fail before its replay, because of its arguments, or after it."""
    take, replay = graph.resolve_tasks, graph.replay

    def take_otherwise(source: Any) -> Any:
        if is_now():
            source = dataclasses.replace(source, context=damage(source.context, fault))
        return take(source)

    def fail_after_replay() -> None:
        replay()
        if is_now():
            raise RuntimeError("injected replay")

    if fault.kind == "replay":
        graph.replay = fail_after_replay
    else:
        graph.resolve_tasks = take_otherwise
    worker.mended.append(lambda: vars(graph).update(resolve_tasks=take, replay=replay))


def main() -> int:
    """Run all seeds; return 1 if one did not end as it should."""
    session = FaultSession(
        name="vllm-next-seeded-failures",
        engines=ENGINES,
        kinds=lambda _engine: KINDS_OF_BOTH,
        make=functools.partial(start_engine, install=stand_ins.install),
        begin=begin_failing,
        prepare=stand_ins.prepare,
    )
    return run_session(session, __doc__)


if __name__ == "__main__":
    sys.exit(main())
