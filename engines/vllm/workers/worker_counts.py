"""What the workers of a vLLM engine do while it decodes, counted in each worker's own process.

Each function takes a worker, and is handed to `LLM.collective_rpc`: that runs it in all workers,
whether they are in the engine's process or in processes of their own.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import cann_sim

if TYPE_CHECKING:
    from collections.abc import Callable

COUNTED = ("launches", "replays", "task_updates", "synchronisations")


def begin_counting(worker: Any) -> None:
    """Start counting the work of the worker's steps."""
    owner, name, is_full = _find_step(worker.model_runner)
    steps, waits, forward = [], [], getattr(owner, name)

    def counted_forward(*args: Any, **kwargs: Any) -> Any:
        is_whole = is_full()
        before = cann_sim.counters()
        result = forward(*args, **kwargs)
        steps.append(is_whole)
        if is_whole:
            waits.append((cann_sim.counters() - before).synchronisations)
        return result

    setattr(owner, name, counted_forward)
    worker.counting = forward, steps, waits, cann_sim.counters(), _skipped_updates(worker)


def end_counting(worker: Any) -> dict[str, Any]:
    """Return the counts since the start."""
    forward, steps, waits, before, skipped = worker.counting
    counted = cann_sim.counters() - before
    owner, name, _ = _find_step(worker.model_runner)
    setattr(owner, name, forward)
    return {
        "steps": len(steps),
        "full_steps": len(waits),
        "waits_in_full_steps": sum(waits),
        "skipped_updates": _skipped_updates(worker) - skipped,
        **{name: getattr(counted, name) for name in COUNTED},
    }


def _find_step(runner: Any) -> tuple[Any, str, Callable[[], bool]]:
    """Return what runs a step, the name of its method, and what says if it is a whole graph."""
    from vllm.config import CUDAGraphMode
    from vllm.forward_context import get_forward_context

    if hasattr(runner, "cudagraph_manager"):  # of model runner v2: only steps of whole graphs
        return runner.cudagraph_manager, "run_fullgraph", lambda: True
    full = CUDAGraphMode.FULL
    return runner, "_model_forward", lambda: get_forward_context().cudagraph_runtime_mode == full


def _skipped_updates(worker: Any) -> int:
    """Return how many updates were not needed so far, since nothing had changed."""
    update = getattr(worker.model_runner, "attention_update", None)
    return 0 if update is None else update.lane.counters.skipped


def describe_update(worker: Any) -> dict[str, Any] | None:
    """Return the updater of our attention update; None for the engine's own update."""
    update = getattr(worker.model_runner, "attention_update", None)
    if update is None:
        return None
    return {"updater": update.lane.updater, "updater_reason": update.lane.updater_reason}


def shift_lengths(worker: Any, shift: int) -> None:
    """Change the key lengths in steps of our attention update."""
    shift_steps(worker.model_runner.attention_update, shift)


def shift_draft_lengths(worker: Any, shift: int) -> None:
    """Do so in the steps of the draft, which our attention update updates too."""
    shift_steps(worker.model_runner.draft_update, shift)


def shift_steps(update: Any, shift: int) -> None:
    """Change the key lengths in steps of recorded layers."""
    begin = update.begin

    def shifted(key: Any, metadata: dict[str, Any]) -> None:
        made = {id(each): shift_metadata(each, shift) for each in metadata.values()}
        begin(key, {name: made[id(each)] for name, each in metadata.items()})

    update.begin = shifted


def shift_metadata(metadata: Any, shift: int) -> Any:
    """Return the metadata of a layer, with other key lengths."""
    made = holder = copy.copy(metadata)
    # Of latent attention, and of that over a part of the keys.
    for name in ("decode", "decode_meta"):
        if getattr(made, name, None) is not None:
            holder = copy.copy(getattr(made, name))
            setattr(made, name, holder)
    for name in ("seq_lens_list", "cp_seq_len", "cp_history_seq_len"):
        if getattr(holder, name, None) is not None:
            lengths = [max(length + shift, 0) for length in getattr(holder, name)]
            setattr(holder, name, lengths)
    for name in ("num_computed_tokens_of_pcp_dcp", "num_computed_tokens_of_dcp"):
        if getattr(holder, name, None) is not None:
            setattr(holder, name, (getattr(holder, name) + shift).clip(min=0))
    return made
