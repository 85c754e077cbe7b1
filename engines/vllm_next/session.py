"""vLLM-Ascend's newest release on simulated CANN: its own attention update and ours, on one load.

Run as ``cann-sim run -- python -m engines.vllm_next.session``. As in engines/vllm/session.py,
`stock` is the engine without this repository, `off` has our worker and not the key, and `control`
is the engine of `ours` once more, with key lengths that are one too small. What a row names behind
its dtype is another mode. Beside the tokens, the log-probabilities of the
likeliest tokens are compared bit by bit. Rows go to build/engines/vllm-next.json.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import sys
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
    find_wrong_tokens,
)
from engines.running.session_run import make_parser
from engines.vllm.models import KEYS as model_keys  # noqa: N811
from engines.vllm.models import ModelVariant, described
from engines.vllm.session import (
    Variant,
    count_preemptions,
    describe,
    make_engine,
    run_session,
    runner_of,
    worker_of,
)
from engines.vllm.workers import worker_counts
from engines.vllm_next.without_device import stand_ins

import cann_sim

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterable
    from pathlib import Path

COUNTED = ("replays", "task_updates", "synchronisations")
# As in the sessions of the stable release, and that release's worker without the key.
KEYS = {**model_keys, "off": {}}
MODES = ("FULL_DECODE_ONLY", "FULL_AND_PIECEWISE")
COLUMNS = {
    **DESCRIBED,
    **dict.fromkeys(("preempted", "full_steps", "waits_in_full_steps", *COUNTED), ""),
    "equal_logprobs": "",
    **TOKEN_COLUMNS,
}


def start_engine(
    variant: Variant, checkpoint: Path, install: Callable[[], None], **options: Any
) -> Any:
    """Return the engine of a variant, which captured its decode graphs.

    Args:
        variant: Of the session.
        checkpoint: Of the model.
        install: Replaces what the simulator cannot run.
        options: Of the engine, besides those of `engines.vllm.session.make_engine`.
    """
    # This release rejects our key in its configuration.
    os.environ["VLLM_NPU_GRAPH"] = json.dumps(variant.key)
    own = dataclasses.replace(variant, key=None)
    return make_engine(own, checkpoint, install=install, **options)


def run_load(
    variant: Variant,
    checkpoint: Path,
    count: int,
    install: Callable[[], None] = stand_ins.install,
) -> list[dict[str, Any]]:
    """Run the load on an engine and return its row; with ours, also the row of the control."""
    llm = start_engine(variant, checkpoint, install)
    return measure_with_control(llm, functools.partial(measure_load, llm, variant, count))


def measure_with_control(
    llm: Any,
    measure: Callable[[], dict[str, Any]],
    shift_draft: Callable[[], None] | None = None,
) -> list[dict[str, Any]]:
    """Return the row of an engine; with ours, also those of the controls.

    Args:
        llm: The engine.
        measure: Serves the load and returns its row.
        shift_draft: Changes the key lengths in the steps of a draft, for a control of its own.
    """
    rows, worker = [measure()], worker_of(llm)
    update = worker_counts.describe_update(worker)
    if update is not None:
        rows[0] |= update
        if shift_draft is not None:
            shift_draft()
            rows.append(measure() | {"name": "draft control"})
        shift_worker(worker, -1)
        rows.append(measure() | {"name": "control"})
    return rows


def shift_worker(worker: Any, shift: int) -> None:
    """Change the key lengths in the steps that our attention update updates in a worker."""
    from vllm_npu_graph.recording.attention_update import AttentionUpdate

    runner = worker.model_runner
    if isinstance(runner.attention_update, AttentionUpdate):
        worker_counts.shift_lengths(worker, shift)
    elif hasattr(runner, "cudagraph_manager"):  # of model runner v2
        shift_graphs(runner.cudagraph_manager.graphs.values(), shift)
    else:
        shift_graphs(graphs_of(runner.model), shift)


def graphs_of(wrapper: Any) -> list[Any]:
    """Return the graphs of whole steps that a wrapper of the engine, or ours, captured."""
    wrapper = getattr(wrapper, "whole", wrapper)  # of breakable graphs
    return [entry.aclgraph for entry in wrapper.concrete_aclgraph_entries.values()]


def shift_graphs(graphs: Iterable[Any], shift: int) -> None:
    """Change the key lengths in steps of graphs, of which the lane has to update some."""
    from vllm_npu_graph.v0_30.adopted_graphs import LaneGraph

    ours = [graph for graph in graphs if isinstance(graph, LaneGraph)]
    assert ours, "no graph was adopted"
    for graph in ours:
        shift_lengths(graph, shift)


def shift_lengths(graph: Any, shift: int) -> None:
    """Change the key lengths in steps of a graph."""
    take = graph.resolve_tasks

    def shifted(source: Any) -> Any:
        if not hasattr(source, "context"):
            return take(dataclasses.replace(source, params=shift_params(source.params, shift)))
        made = {
            id(each): worker_counts.shift_metadata(each, shift) for each in source.context.values()
        }
        context = {name: made[id(each)] for name, each in source.context.items()}
        return take(dataclasses.replace(source, context=context))

    graph.resolve_tasks = shifted


def shift_params(params: Iterable[dict[str, Any]], shift: int) -> list[dict[str, Any]]:
    """Return the arguments of a draft's launches, with other key lengths."""
    name = "actual_seq_lengths_kv"
    return [{**given, name: [max(length + shift, 0) for length in given[name]]} for given in params]


def measure_load(llm: Any, variant: Variant, count: int) -> dict[str, Any]:
    """Return the tokens of a load with their log-probabilities, and the cost of its steps."""
    return measure_steps(
        llm,
        variant,
        lambda: dict(zip(("tokens", "logprobs"), generate(llm, *compare_load(count)), strict=True)),
        step=(runner_of(llm), "_model_forward"),
        is_full=is_full_step,
    )


def measure_steps(
    llm: Any,
    variant: Variant,
    serve: Callable[[], dict[str, Any]],
    *,
    step: tuple[Any, str],
    is_full: Callable[[], bool],
) -> dict[str, Any]:
    """Serve a load, and return what was made and the cost of the steps.

    Args:
        llm: The engine.
        variant: Of the session.
        serve: Serves the load; returns its part of the row, ``tokens`` among it.
        step: The owner and the name of the method that runs a step.
        is_full: Returns, before a step, whether it is a replay of a whole graph.
    """
    preempted, waits = count_preemptions(llm), list[int]()
    owner, name = step
    run = getattr(owner, name)

    def counted(*args: Any, **kwargs: Any) -> Any:
        before, is_counted = cann_sim.counters().synchronisations, is_full()
        result = run(*args, **kwargs)
        if is_counted:
            waits.append(cann_sim.counters().synchronisations - before)
        return result

    setattr(owner, name, counted)
    before = cann_sim.counters()
    made = serve()
    found = cann_sim.counters() - before
    setattr(owner, name, run)
    return {
        **describe(variant),
        "sequences": len(made["tokens"]),
        "preempted": len(preempted),
        **made,
        "full_steps": len(waits),
        "waits_in_full_steps": sum(waits),
        **{name: getattr(found, name) for name in COUNTED},
    }


def is_full_step() -> bool:
    """Return whether the current step is a replay of a whole graph."""
    from vllm.config import CUDAGraphMode
    from vllm.forward_context import get_forward_context

    return bool(get_forward_context().cudagraph_runtime_mode == CUDAGraphMode.FULL)


def generate(
    llm: Any, prompts: list[list[int]], lengths: list[int]
) -> tuple[list[list[int]], list[list[float]]]:
    """Return the given number of likeliest tokens after each prompt, with log-probabilities."""
    return generate_from(llm, [{"prompt_token_ids": prompt} for prompt in prompts], lengths)


def generate_from(
    llm: Any, prompts: list[dict[str, Any]], lengths: list[int]
) -> tuple[list[list[int]], list[list[float]]]:
    """Return what `generate` does, for prompts that also have images."""
    from vllm import SamplingParams

    sampling = [
        SamplingParams(
            max_tokens=length, temperature=0, detokenize=False, ignore_eos=True, logprobs=1
        )
        for length in lengths
    ]
    outputs = [each.outputs[0] for each in llm.generate(prompts, sampling, use_tqdm=False)]
    tokens = [list(output.token_ids) for output in outputs]
    logprobs = [
        [each[token].logprob for token, each in zip(output.token_ids, output.logprobs, strict=True)]
        for output in outputs
    ]
    return tokens, logprobs


def compare_logprobs(rows: list[dict[str, Any]]) -> None:
    """Add to each row how many of its log-probabilities are, bit by bit, those of stock."""
    for row, theirs, _ in beside_stock(rows):
        if theirs is None or not ("logprobs" in row and "logprobs" in theirs):
            continue
        both = zip(row["logprobs"], theirs["logprobs"], strict=True)
        row["equal_logprobs"] = sum(
            own == other for a, b in both for own, other in zip(a, b, strict=True)
        )


def verdict(rows: list[dict[str, Any]]) -> list[str]:
    """Return the failures; empty if all is right."""
    wrong = find_errors(rows)
    for row, theirs, what in beside_stock(rows):
        if theirs is None or row["name"] == "stock":
            continue
        wrong += find_wrong_tokens(row, what)
        expected = {name: theirs[name] for name in ("preempted", "full_steps", "replays")}
        if row["name"] == "control":
            wrong += find_unexpected(row, what, expected)
            continue
        expected |= {name: theirs[name] for name in ("waits_in_full_steps", "synchronisations")}
        if row["name"] == "ours":
            # One wait less for each step of a FULL graph, and none is left in them.
            expected["synchronisations"] -= theirs["waits_in_full_steps"]
            expected["waits_in_full_steps"] = 0
        if "logprobs" in row:
            expected["equal_logprobs"] = row["num_tokens"]
        wrong += find_unexpected(row, what, expected)
    return wrong


def stock_and_ours(
    modes: Iterable[str], *, model: str, num_layers: int, **given: Any
) -> list[ModelVariant]:
    """Return the engine alone and with our attention update, in each of some modes."""
    return [
        ModelVariant(
            name=name,
            dtype="bfloat16",
            num_layers=num_layers,
            mode=mode,
            model=model,
            **given,
            **KEYS[name],
        )
        for mode in modes
        for name in ("stock", "ours")
    ]


def choose_variants(options: argparse.Namespace) -> list[ModelVariant]:
    """Return the variants selected by the options."""
    chosen = dict(zip(MODES, (("stock", "off", "ours"), ("stock", "ours")), strict=True))
    return [
        ModelVariant(
            name=name,
            dtype="bfloat16",
            num_layers=options.layers,
            mode=mode,
            model="Qwen3",
            **KEYS[name],
        )
        for mode, names in chosen.items()
        for name in names
    ]


def run_apart(
    variant: ModelVariant,
    number: int,
    rows: list[dict[str, Any]],
    options: argparse.Namespace,
    folder: Path,
    *,
    load: Callable[..., list[dict[str, Any]]] = run_load,
    write: Callable[[ModelVariant, Path], None] = write_model,
    limit: float | None = None,
) -> list[dict[str, Any]]:
    """Run a variant in a process forked from this one, and return its rows.

    Args:
        variant: Of the session.
        number: Of the variant, in the name of the log.
        rows: Of the variants before.
        options: Of the session.
        folder: Of the checkpoints.
        load: Runs the load, given the variant, the checkpoint and the number of sequences.
        write: Writes the checkpoint of a variant.
        limit: Seconds; None for no limit.
    """
    checkpoint = folder / f"{variant.model}-{variant.num_layers}" / "checkpoint"
    if not checkpoint.exists():
        checkpoint.parent.mkdir()
        write(variant, checkpoint)
    call = functools.partial(load, variant, checkpoint, options.sequences)
    log = options.out.with_name(f"{options.out.stem}-{number}.log")
    made = [
        row | described(variant) | {"name": row["name"]}
        for row in run_forked(call, described(variant), log, limit)
    ]
    compare_logprobs([*rows, *made])
    return made


def main() -> int:
    """Run all variants; return 1 if something is wrong."""
    options = make_parser("vllm-next", __doc__).parse_args()
    variants = choose_variants(options)
    return run_session(variants, options, run_apart, COLUMNS, verdict, prepare=stand_ins.prepare)


if __name__ == "__main__":
    sys.exit(main())
