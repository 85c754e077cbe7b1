"""Interprets transformers' judgement of a model's tokens: rounding, or an error."""

from __future__ import annotations

from typing import Any

# How far below the likeliest token rounding may leave the chosen one, in standard deviations of the
# logits. Engines fold two projections of latent attention into others, and vLLM-Ascend prefills it
# in bfloat16 in either dtype: seen were 0.11 there and 0.14 in SGLang, the engine alone and with
# ours alike, and 2.2 and more with wrong lengths.
WORST_TOKEN = 0.25
# Where rounding decides between two experts, logits differ by more than that: with experts the
# share of tokens counts that are the likeliest. Seen were 0.95 and more, and 0.90 and less with
# wrong lengths.
LEAST_LIKELIEST = 0.925


def find_unlikely(row: dict[str, Any]) -> list[str]:
    """Return the errors that transformers finds in a row's tokens, or fails to find in a control.

    Args:
        row: Row with tokens; names its ``model``.
    """
    if "worst_token" not in row:
        return ["transformers did not judge its tokens"]
    share, worst = row["likeliest_tokens"] / row["num_tokens"], row["worst_token"]
    if "experts" in row["model"] or "MoE" in row["model"]:
        is_wrong, rule = share < LEAST_LIKELIEST, f"at least {LEAST_LIKELIEST:.0%} likeliest"
    else:
        is_wrong, rule = worst > WORST_TOKEN, f"the worst at most {WORST_TOKEN} below the likeliest"
    if is_wrong == (row["name"] == "control"):
        return []
    return [
        f"{share:.1%} of its tokens are the likeliest, the worst lies {worst:.3f} below: {rule}"
    ]
