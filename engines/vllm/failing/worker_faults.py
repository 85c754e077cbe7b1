"""What fails on purpose in a worker of a vLLM engine that has our attention update.

`begin_failing` and `end_failing` take a worker, and are handed to `LLM.collective_rpc`, which runs
them in all workers.
"""

from __future__ import annotations

import dataclasses
import gc
import os
import signal
from typing import TYPE_CHECKING, Any

import cann_sim

if TYPE_CHECKING:
    from engines.faults.seeded_faults import Fault


def begin_failing(worker: Any, fault: Fault) -> None:
    """Start the fault, if this is the worker that it concerns."""
    worker.mended = []
    if worker.rank != fault.rank:
        return
    if fault.kind == "update":
        cann_sim.set_faults(f"task_update:{fault.first}")
    elif fault.kind == "capture":
        fail_capture(worker, fault)
    else:
        fail_step(worker, fault)


def end_failing(worker: Any) -> None:
    """End the fault."""
    cann_sim.set_faults("")
    for mend in worker.mended:
        mend()


def fail_capture(worker: Any, fault: Fault) -> None:
    """Make a capture fail while the engine recaptures all graphs; later it recaptures once more."""
    worker.mended.append(lambda: capture_again(worker))
    cann_sim.set_faults(f"capture_end:{fault.first}")
    capture_again(worker)


def capture_again(worker: Any) -> None:
    """Release all graphs of the engine, as its sleep mode does, and capture them again."""
    from vllm_ascend.device_allocator.sleep_mem_optimized import AclGraphSleepWakeupManager

    manager = AclGraphSleepWakeupManager(worker.vllm_config, lambda: worker.model_runner)
    manager.sleep()
    gc.collect()
    manager.wakeup()


def fail_step(worker: Any, fault: Fault) -> None:
    """Make a step fail before its replay, because of its arguments, or after it."""
    update, seen = worker.model_runner.attention_update, []
    begin, finish = update.begin, update.finish

    def is_now() -> bool:
        seen.append(fault)
        return len(seen) == fault.first

    def begin_otherwise(key: Any, metadata: dict[str, Any]) -> None:
        if is_now():
            if fault.kind == "death":
                os.kill(os.getpid(), signal.SIGKILL)
            metadata = damage(metadata, fault)
        begin(key, metadata)

    def fail_behind_replay() -> bool:
        if is_now():
            raise RuntimeError("injected replay")
        return bool(finish())

    if fault.kind == "replay":
        update.finish = fail_behind_replay
    else:
        update.begin = begin_otherwise
    worker.mended.append(lambda: vars(update).update(begin=begin, finish=finish))


def damage(metadata: dict[str, Any], fault: Fault) -> dict[str, Any]:
    """Return a step's metadata in which one layer's metadata is incomplete."""
    name = sorted(metadata)[fault.seed % len(metadata)]
    if fault.kind == "no metadata":
        return {layer: each for layer, each in metadata.items() if layer != name}
    shorter = dataclasses.replace(metadata[name], seq_lens_list=metadata[name].seq_lens_list[1:])
    return dict.fromkeys(metadata, shorter)
