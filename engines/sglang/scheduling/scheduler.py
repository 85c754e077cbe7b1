"""SGLang's scheduler process, as the session runs it: with stand-ins, counted and timed.

The engine starts `run_scheduler` in place of its own function, a class attribute of `Engine` that
is there for it. Its scheduler gets further methods, which `Engine.collective_rpc` calls.
"""

from __future__ import annotations

import dataclasses
import json
import os
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

from engines.running.stopwatch import Stopwatch, least_disturbed
from engines.sglang.failing.faults import FailingSteps
from engines.sglang.scheduling import device_lengths
from engines.sglang.scheduling.chunks import MeasuredChunks, first_page
from engines.sglang.without_device import stand_ins

import cann_sim

# Each process imports this module before the engine.
KEPT = stand_ins.prepare()

COUNTED = ("launches", "replays", "task_updates", "synchronisations", "replayed_kernels")
ADDED_PASS = "SGLANG_SESSION_PASS"
"""Environment variable: what every fused graph goes through behind our passes."""
DEVICE_LENGTHS = "SGLANG_SESSION_DEVICE_LENGTHS"
"""Environment variable: attention of decode graphs reads its lengths on the device."""
PLUGINS_FOLDER = "SGLANG_SESSION_PLUGINS_FOLDER"
"""Environment variable: a folder whose plugins the engine finds after all others."""
# The parts of a scheduler iteration; `Stopwatch.watch` says which object has each attribute.
SCHEDULER_PARTS = {
    "get_next_batch_to_run": "schedule",
    "run_batch": "run batch",
    "process_batch_result": "take results",
}


def run_scheduler(*args: Any, **kwargs: Any) -> None:
    """Run the engine's scheduler in this process."""
    stand_ins.install()
    from sglang.srt.managers import scheduler
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType

    bases = (Measured, MeasuredChunks, FailingSteps, scheduler.Scheduler)
    measured = type("MeasuredScheduler", bases, {})
    HookRegistry.register(
        f"{scheduler.__name__}.{scheduler.Scheduler.__name__}", measured, HookType.REPLACE
    )
    if DEVICE_LENGTHS in os.environ:
        HookRegistry.register(device_lengths.TARGET, device_lengths.attend, HookType.REPLACE)
    if ADDED_PASS in os.environ:
        add_pass(os.environ[ADDED_PASS])
    if PLUGINS_FOLDER in os.environ:
        sys.path.append(os.environ[PLUGINS_FOLDER])
    scheduler.run_scheduler_process(*args, **kwargs)


def add_pass(name: str) -> None:
    """Apply a function of `fused_operators` to every graph after our passes."""
    from engines.running import fused_operators

    import fx_passes
    import sglang_npu_graph.fused_forward as door

    mark, added = (
        fx_passes.FunctionPass(name=each, function=getattr(fused_operators, each))
        for each in ("mark_own", name)
    )
    pipeline = fx_passes.default_npu_pipeline()
    pipeline = dataclasses.replace(pipeline, passes=(mark, *pipeline.passes, added))
    door.default_npu_pipeline = lambda: pipeline  # type: ignore[assignment]


class IterationStopwatch(Stopwatch):
    """Adds up, by name, the microseconds of calls within one iteration of the scheduler."""

    def __init__(self) -> None:
        super().__init__()
        self._begin = 0.0

    def watch(self, scheduler: Any, runner: Any) -> None:
        """Time whole iterations; those are kept that replayed a graph."""
        for attribute, name in SCHEDULER_PARTS.items():
            self.wrap(scheduler, attribute, name)
        self.wrap(runner, "load_batch", "load batch")
        call = scheduler.ingest_requests

        def first_of_step(*args: Any, **kwargs: Any) -> Any:
            now = time.perf_counter()
            self.step["step"] = 1e6 * (now - self._begin)
            if "update" in self.step:
                self.steps.append(dict(self.step))
            self.step.clear()
            self._begin = time.perf_counter()
            try:
                return call(*args, **kwargs)
            finally:
                self.step["take requests"] = 1e6 * (time.perf_counter() - self._begin)

        scheduler.ingest_requests = first_of_step


class Measured:
    """Methods added to the engine's scheduler."""

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        from sglang.srt.runtime_context import get_parallel

        # With data parallelism of attention every rank listens for calls, and only those that the
        # first one gets are passed on.
        calls = self.ipc_channels.recv_from_rpc
        if calls is not None and get_parallel().tp_rank > 0:
            calls.close(linger=0)
            self.ipc_channels = dataclasses.replace(self.ipc_channels, recv_from_rpc=None)

    def graph_runner(self: Any) -> Any:
        """Return the object that replays the decode graphs."""
        return self.tp_worker.model_runner.decode_cuda_graph_runner

    def begin_load(self: Any, shift: int) -> None:
        """Start counting; key lengths of steps grow by the given number."""
        runner = self.graph_runner()
        if not hasattr(self, "waits"):
            execute = runner.execute

            def counted(*args: Any, **kwargs: Any) -> Any:
                before = cann_sim.counters().synchronisations
                result = execute(*args, **kwargs)
                self.waits.append(cann_sim.counters().synchronisations - before)
                self.idle_steps += args[0].forward_mode.is_idle()
                return result

            add = self._add_request_to_queue

            def counted_add(request: Any, is_retracted: bool = False) -> Any:
                self.retracted += is_retracted
                return add(request, is_retracted=is_retracted)

            runner.execute, self._add_request_to_queue = counted, counted_add
        self.retracted = 0
        if shift:
            replay = runner.backend.replay_with_input_update

            def shifted(key: Any, seq_lens: list[int], *args: Any, **kwargs: Any) -> Any:
                moved = [max(length + shift, 0) for length in seq_lens]
                return replay(key, moved, *args, **kwargs)

            runner.backend.replay_with_input_update = shifted
        self.waits: list[int] = []
        self.idle_steps = 0
        self.before = cann_sim.counters()

    def end_load(self: Any, out: str) -> None:
        """Write the counts; ranks after the first add their number to the file's name."""
        from sglang.srt.runtime_context import get_parallel

        counted = cann_sim.counters() - self.before
        backend = self.graph_runner().backend
        updates = getattr(backend, "updates", None)
        row: dict[str, Any] = {
            "backend": type(backend).__name__,
            "graph_steps": len(self.waits),
            "waits_in_graph_steps": sum(self.waits),
            "retracted": self.retracted,
            "idle_steps": self.idle_steps,
            **{name: getattr(counted, name) for name in COUNTED},
        }
        if updates is not None:
            lane = updates.lane
            row |= {"updater": lane.updater, "updater_reason": lane.updater_reason}
        rank = get_parallel().tp_rank
        Path(out + (f".{rank}" if rank else "")).write_text(json.dumps(row))

    def make_sides(self: Any) -> None:
        """Capture graphs for each side: the engine's, and ours for each updater."""
        from sglang.srt.managers.schedule_batch import Req

        from sglang_npu_graph.captured_decode_backend import CapturedDecodeBackend
        from sglang_npu_graph.decode_backend import Lanes, UpdatedDecodeBackend

        # The engine counts free pages on the device, where kernels that do nothing write no number:
        # every sequence gets the first page, and none is freed.
        allocator = self.token_to_kv_pool_allocator
        allocator.alloc_extend = first_page
        allocator.free = lambda *_: None
        # The sampled tokens are whatever memory holds; the engine ends a sequence at one that is
        # outside the vocabulary.
        Req._check_vocab_boundary_finish = lambda *_given: False
        runner = self.graph_runner()
        ours = runner.backend
        self.sides = {f"ours, {ours.updates.lane.updater}": ours}
        classes = {"stock": UpdatedDecodeBackend.__bases__[0]}
        shared = {"lanes": ours.lanes, "context": ours.context}
        classes["ours, captured"] = type("Captured", (CapturedDecodeBackend,), shared)
        if ours.updates.lane.updater != "kernels":
            lanes = {"lanes": Lanes("kernels", None)}
            classes["ours, kernels"] = type("Kernels", (UpdatedDecodeBackend,), lanes)
        for name, made in classes.items():
            runner.backend = self.sides[name] = made(runner)
            runner.capture()
        self.watch = IterationStopwatch()
        for side in self.sides.values():
            self.watch.wrap(side, "replay_with_input_update", "update")
        self.watch.watch(self, runner)
        self.taken: dict[tuple[str, int], list[list[dict[str, float]]]] = defaultdict(list)

    def begin_turn(self: Any, number: int) -> None:
        """Continue with the graphs of another side."""
        names = sorted(self.sides)
        self.turn = names[number % len(names)]
        self.graph_runner().backend = self.sides[self.turn]
        self.watch.steps.clear()

    def end_turn(self: Any, sequences: int) -> None:
        """Keep the steps of a turn except the first, whose caches were filled by another side."""
        self.taken[self.turn, sequences].append(self.watch.steps[2:])

    def write_turns(self: Any, out: str) -> None:
        """Write the times of a step, for each side and number of sequences."""
        rows = []
        for (name, sequences), turns in self.taken.items():
            parts = least_disturbed(turns)
            rows.append(
                {
                    "name": name,
                    "sequences": sequences,
                    "graph_steps": sum(map(len, turns)),
                    "update_us": parts["update"],
                    "step_us": parts["step"],
                    "parts_us": parts,
                }
            )
        Path(out).write_text(json.dumps(rows))
