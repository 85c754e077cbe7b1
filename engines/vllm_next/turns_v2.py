"""Host time of attention updates in vllm-ascend 0.30.0rc2's model runner v2, in turns.

Run as ``cann-sim run -- python -m engines.vllm_next.turns_v2``. As engines/vllm_next/turns.py, for
FIA and latent attention (MLA). Rows go to build/engines/vllm-next-turns-v2.json.
"""

from __future__ import annotations

import copy
import functools
import importlib
import os
import sys
from typing import TYPE_CHECKING, Any

from engines.running.stopwatch import Stopwatch
from engines.vllm.session import Side, StepStopwatch, find_impls, measure_turns, runner_of
from engines.vllm_next.runner_v2 import install_for
from engines.vllm_next.session import start_engine
from engines.vllm_next.turns import time_models
from engines.vllm_next.without_device import stand_ins_v2

if TYPE_CHECKING:
    from pathlib import Path

    from engines.vllm.models import ModelVariant

MODELS = ("Qwen3", "DeepSeek")


class ManagerSide(Side):
    """A side whose `model` is a manager of graphs."""

    def take(self, runner: Any) -> None:
        """Make the engine continue with this side's graphs."""
        model = runner.model
        super().take(runner)
        runner.model, runner.cudagraph_manager = model, self.model


class ReplayStopwatch(StepStopwatch):
    """Keeps the steps that replayed a whole graph."""

    def __init__(self) -> None:
        Stopwatch.__init__(self)
        self._is_kept = False

    def watch(self, manager: Any) -> None:
        """Time what a manager does in a replay besides the replay itself."""
        run = manager.run_fullgraph

        def kept(desc: Any) -> Any:
            self._is_kept = True
            return run(desc)

        manager.run_fullgraph = kept
        for method in ("_updatable_graph_replay", "_graph_relay"):
            self.wrap(manager, method, "update")
        for graph in manager.graphs.values():
            self.wrap(graph, "replay", "update", factor=-1)


def run_turns(variant: ModelVariant, checkpoint: Path, _count: int) -> list[dict[str, Any]]:
    """Decode with the engine's updates and with ours in turns; return a row for each."""
    os.environ["CANN_SIM_KERNELS"] = "null"
    llm = start_engine(variant, checkpoint, functools.partial(install_for, variant))
    kernel = stand_ins_v2.Kernel(stand_ins_v2.count_without_kernels)
    inputs = importlib.import_module("vllm.v1.worker.gpu.input_batch")
    inputs._get_num_sampled_and_rejected_kernel = kernel  # type: ignore[attr-defined]
    runner, watch = runner_of(llm), ReplayStopwatch()
    sides = make_sides(runner)
    for side in sides:
        side.take(runner)
        side.model.graphs.clear()
        side.model._graphs_captured = False
        runner.capture_model()
        watch.watch(side.model)
    return measure_turns(llm, variant, sides, watch)


def make_sides(runner: Any) -> list[Side]:
    """Return the sides of an engine that has ours, without graphs."""
    from vllm_ascend.worker.v2.aclgraph_utils import ModelAclGraphManager

    from attn_update import UpdateLane
    from npu_graph_runtime import NpuDevice
    from vllm_npu_graph.recording.attention_update import AttentionUpdate
    from vllm_npu_graph.v0_30.adopted_graphs import AdoptedGraphs

    manager, update = runner.cudagraph_manager, runner.attention_update
    stock = copy.copy(manager)
    stock.__class__, stock.graphs = ModelAclGraphManager, {}
    lane = UpdateLane(NpuDevice(0), updater="kernels")
    ours: dict[str, Any] = {}
    theirs: dict[str, Any] = {}
    others: dict[str, Any] = {}
    if isinstance(update, AttentionUpdate):
        ours, theirs = find_impls(runner)
        other: Any = AttentionUpdate(lane, frozenset(ours))
        others = {name: type(ours[name])(impl, name, other) for name, impl in theirs.items()}
    else:
        other = AdoptedGraphs(lane)
    return [
        ManagerSide(name="stock", model=stock, impls=theirs),
        ManagerSide(name=f"ours, {update.lane.updater}", model=manager, impls=ours, update=update),
        ManagerSide(
            name="ours, kernels",
            model=type(manager)(copy.copy(stock), other),
            impls=others,
            update=other,
        ),
    ]


if __name__ == "__main__":
    given = {"VLLM_USE_V2_MODEL_RUNNER": "1"}
    sys.exit(time_models("vllm-next-turns-v2", __doc__, MODELS, run_turns, **given))
