"""The load that an engine decodes, and how tokens and times of two of its variants compare.

Prompts of 3 to 250 tokens, of which some end just before a block does; more of them than the engine
decodes at once, each with another number of tokens to come, so that sequences leave and others
join.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

BLOCK_SIZE, LONGEST_PROMPT, MOST_SEQUENCES = 128, 250, 16


def compare_load(count: int) -> tuple[list[list[int]], list[int]]:
    """Return prompts, and how many tokens each is given."""
    draw = random.Random(1)
    lengths = [draw.randint(3, LONGEST_PROMPT) for _ in range(count)]
    lengths[:4] = [BLOCK_SIZE - 2, BLOCK_SIZE - 1, 3, LONGEST_PROMPT]
    prompts = [[draw.randrange(1, 500) for _ in range(length)] for length in lengths[:count]]
    draw = random.Random(2)
    return prompts, [draw.randint(2, 40) for _ in prompts]


def decode_by_transformers(checkpoint: Path, dtype: str, count: int) -> list[list[int]]:
    """Return the tokens of the load by transformers, on the CPU, a sequence at a time."""
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(checkpoint, dtype=getattr(torch, dtype))
    tokens = []
    for prompt, length in zip(*compare_load(count), strict=True):
        options = {"max_new_tokens": length, "min_new_tokens": length, "do_sample": False}
        given = torch.tensor([prompt])
        made = model.generate(given, attention_mask=torch.ones_like(given), **options)
        tokens.append(made[0, len(prompt) :].tolist())
    return tokens


def compare_tokens(rows: list[dict[str, Any]]) -> None:
    """Add to each row how many tokens it shares with the stock engine, in order and place."""
    stock = {row["dtype"]: row for row in rows if row["name"] == "stock" and "tokens" in row}
    for row in rows:
        if "tokens" not in row or row["dtype"] not in stock:
            continue
        pairs = [
            (own, theirs)
            for a, b in zip(row["tokens"], stock[row["dtype"]]["tokens"], strict=True)
            for own, theirs in zip(a, b, strict=True)
        ]
        row["num_tokens"] = len(pairs)
        row["equal_tokens"] = sum(own == theirs for own, theirs in pairs)


def compare_times(rows: list[dict[str, Any]]) -> None:
    """Add to each timed row how far its update lies below that of stock."""
    stock = {
        (row["num_layers"], row["sequences"]): row["update_us"]
        for row in rows
        if row["name"] == "stock" and "update_us" in row
    }
    for row in rows:
        theirs = stock.get((row["num_layers"], row["sequences"])) if "update_us" in row else None
        if theirs is not None:
            row["below_stock"] = theirs / row["update_us"]
