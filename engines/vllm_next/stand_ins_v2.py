"""What simulated CANN cannot run of vLLM 0.30.0's model runner v2, and what stands for it."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from engines.vllm_next import stand_ins
from engines.vllm_v2 import stand_ins as former

if TYPE_CHECKING:
    import torch


def install() -> None:
    """Replace, in the modules of the runner, what the simulator cannot run."""
    stand_ins.install()
    former.install()
    inputs = importlib.import_module(f"{former.RUNNER}.input_batch")
    inputs._prepare_prefill_inputs_kernel = former.Kernel(prepare_prefill_inputs)


def prepare_prefill_inputs(
    grid: tuple[int],
    input_ids: torch.Tensor,
    next_tokens: torch.Tensor,
    _next_stride: int,
    num_lookahead: int,
    *given: torch.Tensor,
    **constants: object,
) -> None:
    """Copy the tokens of prompts that this step computes, and store the token after them."""
    if num_lookahead != 1:
        raise NotImplementedError("more than one token after the prompt, for drafts")
    former.prepare_prefill_inputs(grid, input_ids, next_tokens[0], *given, **constants)  # type: ignore[arg-type]
