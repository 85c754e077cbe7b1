"""Host time of attention updates in vllm-ascend 0.30.0rc2: the engine's and ours in turns.

Run as ``cann-sim run -- python -m engines.vllm_next.turns``. One engine decodes with kernels that
do nothing; in each turn its graphs are those that the engine updates, or those that our lane
updates: for FIA, for ATB's paged attention and for latent attention (MLA). The time of an update is
that of reading the metadata of the step and issuing the updates of all layers, without the replay
(which is inside ``_updatable_graph_replay``, except for MLA). The engine's wait before each replay
is not part of it. Rows go to build/engines/vllm-next-turns.json.
"""

from __future__ import annotations

import functools
import os
import sys
from typing import TYPE_CHECKING, Any

from engines.running.session_rows import find_wrong
from engines.running.session_run import make_parser
from engines.vllm.models import ModelVariant
from engines.vllm.session import (
    Side,
    StepStopwatch,
    make_sides,
    measure_turns,
    run_session,
    runner_of,
    watch_updates,
)
from engines.vllm_next.models import install_for
from engines.vllm_next.session import COLUMNS, run_apart, start_engine
from engines.vllm_next.without_device import stand_ins

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

MODELS = ("Qwen3", "Qwen3, paged attention", "DeepSeek")


def run_turns(variant: ModelVariant, checkpoint: Path, _count: int) -> list[dict[str, Any]]:
    """Decode with the engine's updates and with ours in turns; return a row for each."""
    from vllm_npu_graph.recording.attention_update import AttentionUpdate

    os.environ["CANN_SIM_KERNELS"] = "null"
    llm = start_engine(variant, checkpoint, functools.partial(install_for, variant))
    runner = runner_of(llm)
    if isinstance(runner.attention_update, AttentionUpdate):
        sides = make_sides(runner)
        return measure_turns(llm, variant, sides, watch_updates(runner, sides))
    watch, sides = StepStopwatch(runner), make_adopted_sides(runner)
    for side in sides:
        watch.wrap(side.model, "_updatable_graph_replay", "update")
        for entry in side.model.concrete_aclgraph_entries.values():
            watch.wrap(find_replayed(entry.aclgraph), "replay", "update", factor=-1)
    return measure_turns(llm, variant, sides, watch)


def find_replayed(graph: Any) -> Any:
    """Return the graph that torch_npu replays: the engine's, which ours contains."""
    from vllm_npu_graph.v0_30.adopted_graphs import LaneGraph

    return graph._updates._updatable._graph if isinstance(graph, LaneGraph) else graph


def make_adopted_sides(runner: Any) -> list[Side]:
    """Return the sides of an engine that has ours, all of which have captured their graphs."""
    from vllm_ascend.compilation.acl_graph import ACLGraphWrapper

    from attn_update import UpdateLane
    from npu_graph_runtime import NpuDevice
    from vllm_npu_graph.v0_30.adopted_graphs import AdoptedGraphs
    from vllm_npu_graph.v0_30.lane_graph_wrapper import LaneGraphWrapper

    model, update = runner.model, runner.attention_update
    names = ("vllm_config", "runtime_mode", "use_eagle", "update_stream")
    given = {name: getattr(model, name) for name in names}
    given |= {"runnable": model.unwrap(), "cudagraph_options": model.aclgraph_options}
    make_side = functools.partial(Side, impls={})
    sides = [
        make_side(name="stock", model=ACLGraphWrapper(**given)),
        make_side(name=f"ours, {update.lane.updater}", model=model, update=update),
    ]
    if update.lane.updater != "kernels":
        adopted = AdoptedGraphs(UpdateLane(NpuDevice(0), updater="kernels"))
        wrapper = LaneGraphWrapper(adopted=adopted, **given)
        sides.append(make_side(name="ours, kernels", model=wrapper, update=adopted))
    for side in sides:
        if side.model is not model:
            side.take(runner)
            runner.capture_model()
    return sides


def time_models(
    session: str,
    about: str | None,
    models: Sequence[str],
    run: Callable[..., list[dict[str, Any]]],
    **environment: str,
) -> int:
    """Run a session of turns; return 1 if a variant failed or a side was not timed.

    Args:
        session: Names its file of rows.
        about: Its text on the command line.
        models: What can be chosen.
        run: Runs the turns of a variant.
        environment: Variables of its processes.
    """
    parser = make_parser(session, about)
    parser.set_defaults(timed_layers=[28], timed_sequences=[4, 8, 16])
    parser.add_argument("--models", nargs="*", default=list(models), choices=models)
    options = parser.parse_args()
    variants = [
        ModelVariant(
            name="turns",
            dtype="bfloat16",
            model=model,
            num_layers=layers,
            key=True,
            paged_sizes=tuple(options.timed_sequences) if "paged" in model else (),
            timed=tuple(options.timed_sequences),
        )
        for model in options.models
        for layers in options.timed_layers
    ]
    return run_session(
        variants,
        options,
        functools.partial(run_apart, load=run),
        COLUMNS,
        find_wrong,
        prepare=stand_ins.prepare,
        **environment,
    )


if __name__ == "__main__":
    sys.exit(time_models("vllm-next-turns", __doc__, MODELS, run_turns))
