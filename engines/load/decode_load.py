"""The load that an engine decodes, and what transformers says about the tokens it gave.

Prompts of 3 to 250 tokens, of which some end just before a block does; more of them than the engine
decodes at once, each with another number of tokens to come, so that sequences leave and others
join.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

BLOCK_SIZE, LONGEST_PROMPT, MOST_SEQUENCES = 128, 250, 16
BLOCKS = 24
"""Blocks of an engine: sequences that need another one while none is free are preempted."""


def compare_load(count: int) -> tuple[list[list[int]], list[int]]:
    """Return prompts, and how many tokens each is given."""
    draw = random.Random(1)
    lengths = [draw.randint(3, LONGEST_PROMPT) for _ in range(count)]
    lengths[:4] = [BLOCK_SIZE - 2, BLOCK_SIZE - 1, 3, LONGEST_PROMPT]
    prompts = [[draw.randrange(1, 500) for _ in range(length)] for length in lengths[:count]]
    draw = random.Random(2)
    return prompts, [draw.randint(2, 40) for _ in prompts]


def judge_tokens(
    checkpoint: Path, prompts: list[list[int]], tokens: list[list[int]]
) -> tuple[int, float]:
    """Let transformers, in float32 on the CPU, judge each token behind those in front of it.

    Tokens of its own would not do: behind the first tie that rounding decides the other way, all
    others differ.

    Args:
        checkpoint: Of the model.
        prompts: Token ids.
        tokens: What an engine gave behind each.

    Returns:
        How many tokens are the likeliest one, and by how much the worst lies below the likeliest:
        in standard deviations of the logits at its place.
    """
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(checkpoint, dtype=torch.float32)
    likeliest, worst = 0, 0.0
    for prompt, chosen in zip(prompts, tokens, strict=True):
        with torch.inference_mode():
            logits = model(torch.tensor([prompt + chosen])).logits[0, len(prompt) - 1 : -1]
        taken = logits.gather(1, torch.tensor(chosen)[:, None])[:, 0]
        below = (logits.max(dim=1).values - taken) / logits.std(dim=1)
        likeliest += int((below == 0).sum())
        worst = max(worst, below.max().item())
    return likeliest, worst
