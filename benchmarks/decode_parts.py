"""Where the host time of a decode step goes, and the floor of each part, for bench_decode.py.

A part is timed inside real steps: the calls that it consists of are replaced on the objects of one
runner by timed ones, each without what is timed inside it. That costs under a microsecond a call,
so such steps are apart from those whose whole is reported.

| part | what it is | its floor |
|---|---|---|
| inputs | padding, packing, one copy | the bare copy and the event behind it |
| checks | of inputs, addresses, lengths | none is needed: 0 |
| replay | from loaded buffers to queued graphs, attention apart | torch_npu's replay calls |
| attention | eager, of modes that split | the operator from Python, arguments bound ahead |
| update | of all layers' lengths | the bare aclnn calls from C++ |
| logits | one eager product, outside the graph | itself |
| rest | the engine around it | none |
"""

from __future__ import annotations

import functools
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import torch

from bench_attn_update import make_floor, make_workload

if TYPE_CHECKING:
    from collections.abc import Callable

    from npu_graph_runtime import GraphedCallable
    from qwen3_engine.serving.compiled_model_runner import CompiledModelRunner

PARTS = ("inputs", "checks", "replay", "attention", "update", "logits")
# The innermost call of a replay, torch_npu's own.
DEVICE_REPLAY = "device replay"


class PartTimes:
    """Microseconds of each part of the steps of one runner since the last `take`."""

    def __init__(self) -> None:
        self._spent: dict[str, float] = {}
        self._inside = [0.0]

    def timed(self, part: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return the function, timed as this part without timed calls inside it."""

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            self._inside.append(0.0)
            began = time.perf_counter()
            try:
                return function(*args, **kwargs)
            finally:
                whole = time.perf_counter() - began
                self._spent[part] = self._spent.get(part, 0.0) + whole - self._inside.pop()
                self._inside[-1] += whole

        return call

    def watch(self, owner: object, name: str, part: str) -> None:
        """Put the timed function in the place of one of this object's."""
        setattr(owner, name, self.timed(part, getattr(owner, name)))

    def take(self) -> dict[str, float]:
        """Return the microseconds and begin anew."""
        spent, self._spent = self._spent, {}
        return {part: seconds * 1e6 for part, seconds in spent.items()}


def watch_parts(runner: CompiledModelRunner) -> PartTimes:
    """Time the parts of a runner's steps from now on; its graphs are captured."""
    times = PartTimes()
    decode, lane = runner._decode_runner, runner._lane
    schedule, steps = decode._schedule, decode._steps
    times.watch(runner, "_logits", "logits")
    times.watch(steps._inputs, "load_checked", "inputs")
    times.watch(decode._form, "given", "checks")
    times.watch(schedule, "key_of", "checks")
    times.watch(steps, "check", "checks")
    times.watch(steps, "load_and_call", "replay")
    times.watch(lane, "_check", "checks")
    times.watch(lane, "run", "update")
    for captured in captured_graphs(runner):
        inputs = captured.inputs
        captured.inputs = SimpleNamespace(check=times.timed("checks", inputs.check))
        segments = getattr(captured.graph, "segments", None)
        if segments is None:
            captured.replay = times.timed(DEVICE_REPLAY, captured.replay)
            continue
        captured.graph._replays = tuple(
            times.timed(DEVICE_REPLAY if hasattr(segment, "graph") else "attention", replay)
            for segment, replay in zip(segments, captured.graph._replays, strict=True)
        )
    return times


def captured_graphs(runner: CompiledModelRunner) -> list[Any]:
    """Return the objects that a decode runner's callables keep for its keys."""
    keys = set(runner._decode_runner._schedule.keys.values())
    graphed: tuple[GraphedCallable, ...] = runner.compiled.graphed_callables
    return [each._graphs[key] for each in graphed for key in keys if each.is_captured(key)]


def floors(runner: CompiledModelRunner, layers: int, sequences: int) -> dict[str, Any]:
    """Return a function of the number of the step for each floor that is a call of its own."""
    workload = make_workload(layers, sequences)
    update = make_floor(workload)
    buffers = runner._decode_runner._steps._inputs
    host = buffers._ring[0]
    given = {
        **workload.arguments,
        "out": [torch.empty_like(workload.arguments["query"]), torch.empty(1, device="npu")],
    }
    attend: Any = torch.ops.npu.npu_fused_infer_attention_score.out

    def copy(_: int) -> None:
        buffers._packed.copy_(host.packed, non_blocking=True)
        host.event.record(buffers._device.current_stream())

    def attention(step: int) -> None:
        given.update(workload.lengths(step))
        for _ in range(layers):
            attend(**given)

    return {"inputs": copy, "attention": attention, "update": update}
