"""What the draft model of a vLLM engine drafts, kept in the worker while the engine decodes.

Each function takes a worker, and is handed to `LLM.collective_rpc`.
"""

from __future__ import annotations

from typing import Any


def begin_keeping(worker: Any) -> None:
    """Keep the drafts of each step from now on; they stay on the device, so that nothing waits."""
    runner, kept = worker.model_runner, []
    propose = runner.drafter._propose

    def kept_propose(*args: Any, **kwargs: Any) -> Any:
        drafts = propose(*args, **kwargs)
        kept.append(drafts[: runner.input_batch.num_reqs].clone())
        return drafts

    runner.drafter._propose = kept_propose
    worker.drafting = propose, kept


def end_keeping(worker: Any) -> list[list[list[int]]]:
    """Return the drafts since then: for each step, the tokens of each sequence."""
    propose, kept = worker.drafting
    worker.model_runner.drafter._propose = propose
    return [drafts.tolist() for drafts in kept]
