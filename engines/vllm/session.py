"""vLLM-Ascend on simulated CANN: its own attention update and ours, on one load.

Run as ``cann-sim run -- python -m engines.vllm.session``. vLLM is imported once; every variant is
a process forked from that, with an engine of its own. `stock` is the engine without this
repository, `off` has our worker and not the key, `control` is the engine of `ours` once more, with
key lengths that are one too small. Tokens are compared with real kernels, host time is measured
with kernels that do nothing, in turns of one process. Rows go to build/engines/vllm.json.
"""

from __future__ import annotations

import dataclasses
import functools
import os
import sys
import time
from collections import defaultdict
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from engines.load.decode_load import BLOCK_SIZE, BLOCKS, MOST_SEQUENCES, compare_load
from engines.running.forked_variant import run_forked
from engines.running.session_rows import (
    DESCRIBED,
    TOKEN_COLUMNS,
    beside_stock,
    find_unexpected,
    find_wrong,
    judgements,
)
from engines.running.session_run import conclude, make_parser, run_variants
from engines.running.stopwatch import Stopwatch, least_disturbed
from engines.vllm.without_device import stand_ins
from engines.vllm.workers import worker_counts
from engines.vllm.workers.worker_counts import COUNTED

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Mapping
    from pathlib import Path

Load = tuple[list[list[int]], list[int]] | tuple[list[list[int]], list[int], list[Any]]
"""Prompts, how many tokens each is given, and with adapters which, as the engine names them."""

WORKER = "vllm_npu_graph.worker.NpuGraphWorker"
# Its registration runs torch_npu's rotary embedding on memory that nothing wrote, which that keeps
# for good: graphs that hold the embedding unfused are wrong with it (docs/upstream).
ROTATION = "fuse_qknorm_rope"
OWN_FUSIONS = ("fuse_norm_quant", ROTATION, "fuse_muls_add")
TURNS, STEPS_OF_TURN = 6, 12
COLUMNS = {
    **DESCRIBED,
    **dict.fromkeys(("preempted", "full_steps", "waits_in_full_steps", *COUNTED), ""),
    **TOKEN_COLUMNS,
}
# The parts of a step of the model runner.
PARTS = {
    "_update_states": "update states",
    "_prepare_inputs": "prepare inputs",
    "_build_attention_metadata": "build metadata",
    "_model_forward": "replay and update",
    "_sample": "sample",
    "_bookkeeping_sync": "read tokens",
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Variant:
    """One engine to run.

    Attributes:
        name: In the table.
        dtype: Of the model.
        num_layers: Number of the model's layers.
        key: The value of ``npu_graph``; None for no key.
        worker: Whether our worker is the engine's.
        timed: The numbers of sequences whose host time is measured, with kernels that do nothing;
            empty where tokens are compared.
        mode: The graphs that the engine captures.
        quantisation: How the checkpoint is quantised; None for floats.
        left_out: What of the engine's compilation is switched off.
        ranks: How many processes the model has.
        decode_parts: Over how many of them the keys of a sequence are spread in decode (DCP); they
            share each layer too.
        prefill_parts: Over how many of them prompts and keys are spread (PCP); each of these has
            whole layers.
        capture_sizes: Numbers of tokens of the graphs, where nothing is timed.
        paged_sizes: Those with ATB's paged attention.
    """

    name: str
    dtype: str
    num_layers: int
    key: object = None
    worker: bool = True
    timed: tuple[int, ...] = ()
    mode: str = "FULL_DECODE_ONLY"
    quantisation: str | None = None
    left_out: tuple[str, ...] = ()
    ranks: int = 1
    decode_parts: int = 1
    prefill_parts: int = 1
    capture_sizes: tuple[int, ...] = (1, 2, 4, 8, 16)
    paged_sizes: tuple[int, ...] = ()


def make_engine(
    variant: Variant,
    checkpoint: Path,
    additional_config: Mapping[str, object] | None = None,
    compilation_config: Mapping[str, object] | None = None,
    install: Callable[[], None] = stand_ins.install,
    **options: Any,
) -> Any:
    """Return the engine of a variant, which captured its decode graphs.

    Args:
        variant: Of the session.
        checkpoint: Of the model.
        additional_config: Of vllm-ascend, besides what is here.
        compilation_config: Of vLLM, besides what is here.
        install: Replaces what the simulator cannot run of this release.
        options: Of the engine, besides those here; they may replace `skip_tokenizer_init` and
            `max_num_seqs`.
    """
    from vllm import LLM

    install()
    own: dict[str, Any] = {"worker_cls": WORKER} if variant.worker else {}
    config: dict[str, Any] = dict(additional_config or {})
    if variant.key is not None:
        config["npu_graph"] = variant.key
    if variant.paged_sizes:
        config["pa_shape_list"] = list(variant.paged_sizes)
    # A block has so many tokens on each of them.
    parts = variant.decode_parts * variant.prefill_parts
    if variant.left_out:
        config["ascend_compilation_config"] = dict.fromkeys(variant.left_out, False)
    most = max(variant.timed, default=MOST_SEQUENCES)
    options = {"skip_tokenizer_init": True, "max_num_seqs": most} | options
    return LLM(
        model=str(checkpoint),
        dtype=variant.dtype,
        quantization="ascend" if variant.quantisation else None,
        tensor_parallel_size=variant.ranks // variant.prefill_parts,
        decode_context_parallel_size=variant.decode_parts,
        prefill_context_parallel_size=variant.prefill_parts,
        max_model_len=512,
        gpu_memory_utilization=0.5,
        # Too few for the load: now and then a sequence that runs is preempted.
        num_gpu_blocks_override=None if variant.timed else BLOCKS // parts,
        block_size=BLOCK_SIZE,
        enable_prefix_caching=False,
        # A split prompt is padded with what follows it: -1, if the engine planned ahead.
        async_scheduling=None if variant.prefill_parts == 1 else False,
        compilation_config={
            "cudagraph_mode": variant.mode,
            "cudagraph_capture_sizes": list(variant.timed or variant.capture_sizes),
            **(compilation_config or {}),
        },
        additional_config=config,
        **own,
        **options,
    )


def worker_of(llm: Any) -> Any:
    """Return the worker of an engine."""
    return llm.llm_engine.engine_core.engine_core.model_executor.driver_worker.worker


def runner_of(llm: Any) -> Any:
    """Return the model runner of an engine."""
    return worker_of(llm).model_runner


def generate(
    llm: Any, prompts: list[list[int]], lengths: list[int], adapters: list[Any] | None = None
) -> list[list[int]]:
    """Return the given number of likeliest tokens after each prompt."""
    from vllm import SamplingParams

    sampling = [
        SamplingParams(max_tokens=length, temperature=0, detokenize=False, ignore_eos=True)
        for length in lengths
    ]
    given = [{"prompt_token_ids": prompt} for prompt in prompts]
    outputs = llm.generate(given, sampling, use_tqdm=False, lora_request=adapters)
    return [list(output.outputs[0].token_ids) for output in outputs]


def run_load(
    variant: Variant, checkpoint: Path, count: int, _rows: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    """Run the load on an engine and return its row; with ours, also the row of the control."""
    llm = make_engine(variant, checkpoint)
    return measure_engine(llm, variant, compare_load(count))


def measure_engine(
    llm: Any,
    variant: Variant,
    load: Load,
    shift_lengths: Callable[[Any, int], None] = worker_counts.shift_lengths,
) -> list[dict[str, Any]]:
    """Run a load on an engine and return its row; with ours, also the row of the control.

    Args:
        llm: The engine.
        variant: Of the session.
        load: What is decoded.
        shift_lengths: Changes the key lengths in the steps of a worker, for the control.
    """
    rows = [measure_load(llm, variant, load)]
    update = llm.collective_rpc(worker_counts.describe_update)[0]
    if update is None:
        # An engine's second load has a synchronisation more than its first: what the control's are
        # compared with.
        again = measure_load(llm, variant, load)
        rows[0]["synchronisations_of_second_load"] = again["synchronisations"]
    else:
        rows[0] |= update
        llm.collective_rpc(shift_lengths, args=(-1,))
        rows.append(measure_load(llm, variant, load) | {"name": "control"})
    return rows


def measure_load(llm: Any, variant: Variant, load: Load) -> dict[str, Any]:
    """Return tokens and their cost; with several ranks, the counts of the first."""
    preempted = count_preemptions(llm)
    llm.collective_rpc(worker_counts.begin_counting)
    tokens = generate(llm, *load)
    counted = llm.collective_rpc(worker_counts.end_counting)
    return {
        **describe(variant),
        "sequences": len(tokens),
        "preempted": len(preempted),
        "tokens": tokens,
        **counted[0],
    }


def count_preemptions(llm: Any) -> list[str]:
    """Return a list to which the name of each preempted sequence is appended from now on."""
    scheduler, preempted = llm.llm_engine.engine_core.engine_core.scheduler, []
    preempt = type(scheduler)._preempt_request.__get__(scheduler)

    def counted(request: Any, *args: Any, **kwargs: Any) -> None:
        preempted.append(request.request_id)
        preempt(request, *args, **kwargs)

    scheduler._preempt_request = counted
    return preempted


def run_judgement(
    variant: Variant, checkpoint: Path, count: int, rows: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    """Return the judgement of transformers on the tokens of each engine of this dtype."""
    return judgements(rows, variant.dtype, checkpoint, count)


class StepStopwatch(Stopwatch):
    """Adds up, by name, the microseconds of calls within one step of the engine.

    Args:
        runner: The engine's model runner, which says what a step was.
        mode: Of the steps that count.
    """

    def __init__(self, runner: Any, mode: str = "FULL") -> None:
        super().__init__()
        self._is_kept = False
        forward = runner._model_forward

        def seen(*args: Any, **kwargs: Any) -> Any:
            from vllm.config import CUDAGraphMode
            from vllm.forward_context import get_forward_context

            self._is_kept = get_forward_context().cudagraph_runtime_mode == CUDAGraphMode[mode]
            return forward(*args, **kwargs)

        runner._model_forward = seen

    def wrap_step(self, owner: Any, attribute: str) -> None:
        """Time whole steps; those are kept that replayed a graph."""
        call: Callable[..., Any] = getattr(owner, attribute)

        def measured(*args: Any, **kwargs: Any) -> Any:
            self.step.clear()
            self._is_kept = False
            begin = time.perf_counter()
            result = call(*args, **kwargs)
            self.step["step"] = 1e6 * (time.perf_counter() - begin)
            if self._is_kept:
                self.steps.append(dict(self.step))
            return result

        setattr(owner, attribute, measured)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Side:
    """One of the two sides that take turns on an engine: its graphs and their update.

    Attributes:
        name: In the table.
        model: The wrapper of its graphs.
        impls: The attention of each layer.
        update: Ours; None for the engine's own.
    """

    name: str
    model: Any
    impls: dict[str, Any]
    update: Any = None

    def take(self, runner: Any) -> None:
        """Make the engine continue with this side's graphs."""
        layers = runner.compilation_config.static_forward_context
        for name, impl in self.impls.items():
            layers[name].impl = impl
        runner.model, runner.attention_update = self.model, self.update


def make_sides(runner: Any) -> list[Side]:
    """Return the sides of an engine that has ours, all of which have captured their graphs."""
    from vllm_ascend.compilation.acl_graph import ACLGraphWrapper

    from attn_update import UpdateLane
    from npu_graph_runtime import NpuDevice
    from vllm_npu_graph.recording.attention_update import AttentionUpdate
    from vllm_npu_graph.recording.recorded_graphs import RecordedGraphs

    update = runner.attention_update
    ours, theirs = find_impls(runner)
    model = runner.model
    given = {
        "runnable": model.unwrap(),
        "vllm_config": model.vllm_config,
        "runtime_mode": model.runtime_mode,
        "cudagraph_options": model.aclgraph_options,
    }
    wrapper = ACLGraphWrapper(**given)
    made = [
        Side(name="stock", model=wrapper, impls=theirs),
        Side(name=f"ours, {update.lane.updater}", model=model, impls=ours, update=update),
    ]
    if update.lane.updater != "kernels":
        lane = UpdateLane(NpuDevice(0), updater="kernels")
        other = AttentionUpdate(lane, frozenset(ours))
        impls = {name: type(ours[name])(impl, name, other) for name, impl in theirs.items()}
        graphs = RecordedGraphs(update=other, **given)
        made.append(Side(name="ours, kernels", model=graphs, impls=impls, update=other))
    for side in made:
        if side.model is not model:
            side.take(runner)
            runner.capture_model()
    return made


def run_turns(
    variant: Variant, checkpoint: Path, _count: int, _rows: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    """Decode on the sides in turns; return a row for each side and number of sequences."""
    os.environ["CANN_SIM_KERNELS"] = "null"
    llm = make_engine(variant, checkpoint)
    runner = runner_of(llm)
    sides = make_sides(runner)
    return measure_turns(llm, variant, sides, watch_updates(runner, sides))


def find_impls(runner: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return our attention of each layer that we record, and the engine's in its place."""
    layers = runner.compilation_config.static_forward_context
    ours = {name: layer.impl for name, layer in layers.items() if hasattr(layer, "impl")}
    theirs = {}
    for name, impl in ours.items():
        # Ours inherits from the engine's.
        base = type(impl).__bases__[-1]
        theirs[name] = base.__new__(base)
        theirs[name].__dict__.update(impl.__dict__)
    return ours, theirs


def watch_updates(runner: Any, sides: list[Side]) -> StepStopwatch:
    """Return a watch of the updates of sides from `make_sides`."""
    watch = StepStopwatch(runner)
    watch.wrap(runner, "_update_full_graph_params_if_needed", "update")
    for side in sides:
        if side.update is not None:
            # Before the replay, and after it.
            watch.wrap(side.update, "begin", "update")
            watch.wrap(side.update, "finish", "update")
    return watch


def measure_turns(
    llm: Any, variant: Variant, sides: list[Side], watch: StepStopwatch
) -> list[dict[str, Any]]:
    """Decode on the sides in turns; return a row for each side and number of sequences.

    Args:
        llm: The engine.
        variant: Of the session.
        sides: Of the engine, all of which have captured their graphs.
        watch: Times the updates of each side as the part ``update``.
    """
    runner = runner_of(llm)
    for attribute, name in PARTS.items():
        if hasattr(runner, attribute):
            watch.wrap(runner, attribute, name)
    core = llm.llm_engine.engine_core.engine_core
    watch.wrap(core.scheduler, "schedule", "schedule")
    watch.wrap(core.scheduler, "update_from_output", "take outputs")
    watch.wrap(llm.llm_engine.output_processor, "process_outputs", "process outputs")
    watch.wrap_step(llm.llm_engine, "step")
    rows = []
    for count in variant.timed:
        taken: dict[str, list[list[dict[str, float]]]] = defaultdict(list)
        for turn in range(TURNS):
            for side in sides:
                side.take(runner)
                watch.steps.clear()
                generate(llm, [[1 + turn] * 8] * count, [STEPS_OF_TURN] * count)
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
                    "update_us": parts["update"],
                    "step_us": parts["step"],
                    "parts_us": parts,
                }
            )
    return rows


def describe(variant: Variant) -> dict[str, Any]:
    """Return the first fields of a variant's row."""
    return {"name": variant.name, "dtype": variant.dtype, "num_layers": variant.num_layers}


def verdict(rows: list[dict[str, Any]]) -> list[str]:
    """Return the failures; empty if all is right."""
    wrong = find_wrong(rows)
    for row, theirs, what in beside_stock(rows):
        if row["name"] == "stock" or theirs is None:
            continue
        names = ("preempted", "full_steps", "replays", "synchronisations")
        expected = {name: theirs[name] for name in names}
        expected["waits_in_full_steps"] = theirs["waits_in_full_steps"]
        if row["name"] == "control":
            expected["synchronisations"] = theirs["synchronisations_of_second_load"]
        if row["name"] != "off":
            # One wait less for each step of a FULL graph, and none is left in them.
            expected["synchronisations"] -= theirs["full_steps"]
            expected["waits_in_full_steps"] = 0
        wrong += find_unexpected(row, what, expected)
    return wrong


def choose_variants(options: argparse.Namespace) -> list[Variant]:
    """Return the variants selected by the options."""
    names: dict[str, dict[str, Any]] = {
        "stock": {"worker": False},
        "off": {},
        "ours": {"key": True},
        "transformers": {},
    }
    chosen = [("bfloat16", name) for name in names]
    chosen += [("float16", name) for name in ("stock", "ours", "transformers")]
    return [
        *[
            Variant(name=name, dtype=dtype, num_layers=options.layers, **names[name])
            for dtype, name in chosen
        ],
        *[
            Variant(
                name="turns",
                dtype="bfloat16",
                num_layers=layers,
                key=True,
                timed=tuple(options.timed_sequences),
            )
            for layers in options.timed_layers
        ],
    ]


def run_apart(
    variant: Variant,
    number: int,
    rows: list[dict[str, Any]],
    options: argparse.Namespace,
    folder: Path,
) -> list[dict[str, Any]]:
    """Run a variant in a process forked from this one, and return its rows."""
    import torch
    from engines.models.tiny_qwen3 import write_checkpoint

    checkpoint = folder / f"{variant.dtype}-{variant.num_layers}"
    if not checkpoint.exists():
        dtype = getattr(torch, variant.dtype)
        write_checkpoint(checkpoint, num_layers=variant.num_layers, dtype=dtype)
    run = (
        run_turns
        if variant.timed
        else run_judgement
        if variant.name == "transformers"
        else run_load
    )
    call = functools.partial(run, variant, checkpoint, options.sequences, rows)
    return run_forked(call, describe(variant), options.out.with_name(f"vllm-{number}.log"))


def run_session(
    variants: list[Any],
    options: argparse.Namespace,
    run_apart: Callable[..., list[dict[str, Any]]],
    columns: dict[str, str],
    verdict: Callable[[list[dict[str, Any]]], list[str]],
    *,
    prepare: Callable[[], object] = stand_ins.prepare,
    **environment: str,
) -> int:
    """Run the variants of a session of this engine, each in a process of its own; judge the rows.

    Args:
        variants: What runs, in order.
        options: Of the command line.
        run_apart: Runs a variant and returns its rows.
        columns: Of the table of rows.
        verdict: Says of all rows what is wrong.
        prepare: Declares what importing the engine needs; its result is kept alive.
        environment: Variables of the processes, besides those of every session.

    Returns:
        1 if something is wrong, else 0.
    """
    stand_ins.set_environment()
    os.environ |= environment
    kept = prepare()
    import vllm_ascend.platform  # noqa: F401

    rows = run_variants(variants, options, run_apart)
    del kept
    engine = " + ".join(f"{name} {version(name)}" for name in ("vllm", "vllm-ascend"))
    return conclude(rows, columns, engine, verdict(rows))


def main() -> int:
    """Run all variants; return 1 if something is wrong."""
    options = make_parser("vllm", __doc__).parse_args()
    variants = choose_variants(options)
    return run_session(variants, options, run_apart, COLUMNS, verdict)


if __name__ == "__main__":
    sys.exit(main())
