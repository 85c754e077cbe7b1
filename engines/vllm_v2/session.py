"""vLLM-Ascend's model runner v2 on simulated CANN: its own attention update and ours, on one load.

Run as ``cann-sim run -- python -m engines.vllm_v2.session``. As in engines/vllm/session.py, `stock`
is the engine without this repository, `off` has our worker and not the key, `control` is the engine
of `ours` once more, with key lengths that are one too small; `turns` measures host time with
kernels that do nothing, in turns of one process. What a row names behind its dtype is another
model, or model runner v1 of the same engine. Rows go to build/engines/vllm-v2.json.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import importlib
import os
import sys
from collections import defaultdict
from typing import TYPE_CHECKING, Any

from engines.load.decode_load import compare_load
from engines.models.tiny_models import write_model
from engines.running.forked_variant import run_forked
from engines.running.session_rows import (
    DESCRIBED,
    TOKEN_COLUMNS,
    beside_stock,
    find_errors,
    find_unexpected,
    find_wrong,
    find_wrong_tokens,
)
from engines.running.session_run import make_parser
from engines.running.stopwatch import Stopwatch, least_disturbed
from engines.vllm import session
from engines.vllm.models import KEYS, ModelVariant
from engines.vllm.session import (
    STEPS_OF_TURN,
    TURNS,
    StepStopwatch,
    Variant,
    count_preemptions,
    describe,
    generate,
    make_engine,
    measure_engine,
    run_judgement,
    run_session,
    runner_of,
)
from engines.vllm.workers import worker_counts
from engines.vllm.workers.worker_counts import COUNTED
from engines.vllm_v2 import stand_ins

import cann_sim

if TYPE_CHECKING:
    import argparse
    from pathlib import Path

OF_V1 = ", runner v1"
MODELS = ("DeepSeek",)
WAITS = ("waits_in_replays", "waits_for_lengths")
COLUMNS = {
    **DESCRIBED,
    **dict.fromkeys(("preempted", "full_steps", *WAITS, *COUNTED), ""),
    **TOKEN_COLUMNS,
}
PARTS = {
    "prepare_inputs": "prepare inputs",
    "execute_model": "prepare, replay and update",
    "sample_tokens": "sample",
}


def start_engine(variant: Variant, checkpoint: Path) -> Any:
    """Return an engine with the model runner of a variant."""
    os.environ["VLLM_USE_V2_MODEL_RUNNER"] = "0" if variant.dtype.endswith(OF_V1) else "1"
    stand_ins.install()
    dtype, _ = split_dtype(variant)
    return make_engine(dataclasses.replace(variant, dtype=dtype), checkpoint)


def split_dtype(variant: Variant) -> tuple[str, str]:
    """Return the dtype of a variant, and its model."""
    dtype, _, other = variant.dtype.partition(", ")
    return dtype, other if other in MODELS else "Qwen3"


def run_load(
    variant: Variant, checkpoint: Path, count: int, _rows: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    """Run the load on an engine and return its row; with ours, also the row of the control."""
    llm, load = start_engine(variant, checkpoint), compare_load(count)
    if variant.dtype.endswith(OF_V1):
        return measure_engine(llm, variant, load)
    rows = [measure_load(llm, variant, load)]
    update = llm.collective_rpc(worker_counts.describe_update)[0]
    if update is not None:
        rows[0] |= update
        llm.collective_rpc(worker_counts.shift_lengths, args=(-1,))
        rows.append(measure_load(llm, variant, load) | {"name": "control"})
    return rows


def measure_load(llm: Any, variant: Variant, load: Any) -> dict[str, Any]:
    """Return the tokens of a load, and the cost of its steps."""
    runner, preempted = runner_of(llm), count_preemptions(llm)
    waits: dict[str, list[int]] = defaultdict(list)
    kept = [
        count_waits(runner.cudagraph_manager, "run_fullgraph", waits["waits_in_replays"]),
        count_waits(runner, "_update_seq_lens_cpu", waits["waits_for_lengths"]),
    ]
    before = cann_sim.counters()
    tokens = generate(llm, *load)
    counted = cann_sim.counters() - before
    for owner, attribute in kept:
        delattr(owner, attribute)
    return {
        **describe(variant),
        "mode": variant.mode,
        "sequences": len(tokens),
        "preempted": len(preempted),
        "tokens": tokens,
        "full_steps": len(waits["waits_in_replays"]),
        **{name: sum(waits[name]) for name in WAITS},
        **{name: getattr(counted, name) for name in COUNTED},
    }


def count_waits(owner: Any, attribute: str, waits: list[int]) -> tuple[Any, str]:
    """Make a method count the host's waits in each call; return what must be undone."""
    call = getattr(owner, attribute)

    def counted(*args: Any) -> Any:
        before = cann_sim.counters().synchronisations
        result = call(*args)
        waits.append(cann_sim.counters().synchronisations - before)
        return result

    setattr(owner, attribute, counted)
    return owner, attribute


class ReplayStopwatch(StepStopwatch):
    """Keeps the steps of a runner that replayed a graph; notified of each replay."""

    def __init__(self) -> None:
        Stopwatch.__init__(self)
        self._is_kept = False

    def keep(self, manager: Any) -> None:
        """Time the replays of a side, with what it does around them."""
        self.wrap(manager, "run_fullgraph", "replay and update")
        timed = manager.run_fullgraph

        def kept(desc: Any) -> Any:
            self._is_kept = True
            return timed(desc)

        manager.run_fullgraph = kept


@dataclasses.dataclass(frozen=True, kw_only=True)
class Side:
    """One of the sides that take turns on an engine: its graphs and their update.

    Attributes:
        name: In the table.
        manager: Captures and replays.
        impls: The attention of each layer.
        update: Ours; None for the engine's own.
    """

    name: str
    manager: Any
    impls: dict[str, Any]
    update: Any = None

    def take(self, runner: Any) -> None:
        """Make the engine continue with this side's graphs."""
        layers = runner.compilation_config.static_forward_context
        for name, impl in self.impls.items():
            layers[name].impl = impl
        runner.cudagraph_manager, runner.attention_update = self.manager, self.update


def make_sides(runner: Any) -> list[Side]:
    """Return the sides of an engine that has ours, all of which have captured their graphs."""
    from attn_update import UpdateLane
    from npu_graph_runtime import NpuDevice
    from vllm_npu_graph.recording.attention_update import AttentionUpdate

    update, manager = runner.attention_update, runner.cudagraph_manager
    layers = runner.compilation_config.static_forward_context
    ours = {name: layer.impl for name, layer in layers.items() if hasattr(layer, "impl")}
    theirs = {}
    for name, impl in ours.items():
        # Ours inherits from the engine's.
        base = type(impl).__bases__[-1]
        theirs[name] = base.__new__(base)
        theirs[name].__dict__.update(impl.__dict__)
    engines_own = copy.copy(manager)
    engines_own.__class__ = type(manager).__bases__[0]
    made = [
        Side(name="stock", manager=engines_own, impls=theirs),
        Side(name=f"ours, {update.lane.updater}", manager=manager, impls=ours, update=update),
    ]
    if update.lane.updater != "kernels":
        other = AttentionUpdate(UpdateLane(NpuDevice(0), updater="kernels"), frozenset(ours))
        impls = {name: type(ours[name])(impl, name, other) for name, impl in theirs.items()}
        own = type(manager)(manager, other)
        made.append(Side(name="ours, kernels", manager=own, impls=impls, update=other))
    for side in made:
        if side.manager is not manager:
            side.manager.graphs, side.manager._graphs_captured = {}, False
            side.take(runner)
            runner.capture_model()
    return made


def run_turns(
    variant: Variant, checkpoint: Path, _count: int, _rows: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    """Decode on the sides in turns; return a row for each side and number of sequences."""
    os.environ["CANN_SIM_KERNELS"] = "null"
    llm = start_engine(variant, checkpoint)
    kernel = stand_ins.Kernel(stand_ins.count_without_kernels)
    inputs = importlib.import_module("vllm.v1.worker.gpu.input_batch")
    setattr(inputs, "_get_num_sampled_and_rejected_kernel", kernel)  # noqa: B010 - of the engine
    runner, watch = runner_of(llm), ReplayStopwatch()
    sides = make_sides(runner)
    watch.wrap(
        importlib.import_module("vllm_ascend.worker.v2.aclgraph_utils"),
        "update_full_graph_params",
        "update",
    )
    for side in sides:
        watch.keep(side.manager)
        if side.update is not None:
            # Before the replay, and after it.
            watch.wrap(side.update, "begin", "update")
            watch.wrap(side.update, "finish", "update")
    for attribute, name in PARTS.items():
        watch.wrap(runner, attribute, name)
    watch.wrap_step(llm.llm_engine, "step")
    rows = []
    for count in variant.timed:
        taken: dict[str, list[list[dict[str, float]]]] = defaultdict(list)
        updates: dict[str, int] = defaultdict(int)
        for turn in range(TURNS):
            for side in sides:
                side.take(runner)
                watch.steps.clear()
                before = cann_sim.counters().task_updates
                generate(llm, [[1 + turn] * 8] * count, [STEPS_OF_TURN] * count)
                updates[side.name] += cann_sim.counters().task_updates - before
                # The first steps of a turn find the caches of another side's.
                taken[side.name].append(watch.steps[2:])
        for side in sides:
            turns = taken[side.name]
            parts = least_disturbed(turns)
            rows.append(
                {
                    **describe(variant),
                    "name": side.name,
                    "sequences": count,
                    "full_steps": sum(map(len, turns)),
                    "updates": updates[side.name],
                    "update_us": parts["update"],
                    "step_us": parts["step"],
                    "parts_us": parts,
                }
            )
    return rows


def verdict(rows: list[dict[str, Any]]) -> list[str]:
    """Return the failures; empty if all is right."""
    of_v1 = [row for row in rows if row["dtype"].endswith(OF_V1)]
    judged = [row for row in rows if ", " not in row["dtype"]]
    wrong = find_wrong(judged) + find_errors([row for row in rows if row not in judged])
    timed = [row for row in rows if "updates" in row]
    if len({(row["sequences"], row["updates"]) for row in timed}) > len(
        {row["sequences"] for row in timed}
    ):
        wrong.append("turns: the sides did not make the same number of updates")
    for row, theirs, what in beside_stock(rows):
        if row not in judged:
            wrong += find_wrong_tokens(row, what)
        if row["name"] == "stock" or theirs is None:
            continue
        names = ("preempted", "full_steps", "replays")
        expected = {name: theirs[name] for name in names}
        if row in of_v1:
            if row["name"] == "ours":
                expected["synchronisations"] = theirs["synchronisations"] - theirs["full_steps"]
                expected["waits_in_full_steps"] = 0
        else:
            is_ours = row["name"] != "off"
            fewer = theirs["waits_for_lengths"] if is_ours else 0
            expected["waits_in_replays"] = theirs["waits_in_replays"]
            expected["waits_for_lengths"] = theirs["waits_for_lengths"] - fewer
            if row["name"] != "control":
                expected["synchronisations"] = theirs["synchronisations"] - fewer
        wrong += find_unexpected(row, what, expected)
    return wrong


def choose_variants(options: argparse.Namespace) -> list[Variant]:
    """Return the selected variants: those of engines/vllm/session.py, and others."""
    others = [
        Variant(name=name, dtype=f"bfloat16{other}", num_layers=options.layers, **KEYS[name])
        for other in (OF_V1, *[f", {model}" for model in MODELS])
        for name in ("stock", "ours")
    ]
    return [
        dataclasses.replace(variant, mode=options.mode)
        for variant in (*session.choose_variants(options), *others)
        if variant.timed or not options.dtypes or variant.dtype in options.dtypes
    ]


def run_apart(
    variant: Variant,
    number: int,
    rows: list[dict[str, Any]],
    options: argparse.Namespace,
    folder: Path,
) -> list[dict[str, Any]]:
    """Run a variant in a process forked from this one, and return its rows."""
    dtype, model = split_dtype(variant)
    checkpoint = folder / f"{model}-{dtype}-{variant.num_layers}"
    if not checkpoint.exists():
        named = ModelVariant(name="", model=model, dtype=dtype, num_layers=variant.num_layers)
        write_model(named, checkpoint)
    is_judgement = variant.name == "transformers"
    run = run_turns if variant.timed else run_judgement if is_judgement else run_load
    call = functools.partial(run, variant, checkpoint, options.sequences, rows)
    return run_forked(call, describe(variant), options.out.with_name(f"vllm-v2-{number}.log"))


def main() -> int:
    """Run all variants; return 1 if something is wrong."""
    parser = make_parser("vllm-v2", __doc__)
    parser.add_argument("--mode", default="FULL_DECODE_ONLY")
    parser.add_argument("--dtypes", nargs="*", help="of rows, with what stands behind a dtype")
    parser.set_defaults(timed_layers=[28], timed_sequences=[4, 16])
    options = parser.parse_args()
    return run_session(choose_variants(options), options, run_apart, COLUMNS, verdict)


if __name__ == "__main__":
    sys.exit(main())
