"""What the draft model of a vLLM engine drafts, kept in the worker while the engine decodes.

Each function takes a worker, and is handed to `LLM.collective_rpc`.
"""

from __future__ import annotations

from typing import Any


def begin_keeping(worker: Any) -> None:
    """Keep the drafts of each step from now on; they stay on the device, so that nothing waits."""
    runner, kept = worker.model_runner, []
    owner, name = _find_method(runner)
    propose = getattr(owner, name)

    def kept_propose(*args: Any, **kwargs: Any) -> Any:
        drafts = propose(*args, **kwargs)
        count = runner.input_batch.num_reqs if hasattr(runner, "input_batch") else len(drafts)
        kept.append(drafts[:count].clone())
        return drafts

    setattr(owner, name, kept_propose)
    worker.drafting = propose, kept


def end_keeping(worker: Any) -> list[list[list[int]]]:
    """Return the drafts since then: for each step, the tokens of each sequence."""
    propose, kept = worker.drafting
    owner, name = _find_method(worker.model_runner)
    setattr(owner, name, propose)
    return [drafts.tolist() for drafts in kept]


def _find_method(runner: Any) -> tuple[Any, str]:
    """Return what drafts, and the name of its method: of model runner v2, or of v1."""
    if hasattr(runner, "speculator"):
        return runner.speculator, "propose"
    return runner.drafter, "_propose"
