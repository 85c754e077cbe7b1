"""Computes the lengths of all draft steps in one graph from those of the first step."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from npu_compile.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from attn_update import Lengths


def draft_lengths(
    first: Mapping[str, Lengths], *, num_steps: int, growing: Collection[str]
) -> dict[str, dict[str, list[int]]]:
    """Return the lengths of draft steps by parameter group, ``draft.0`` to ``draft.<n-1>``.

    A draft model proposes one token after another, and each sequence has one more token in the
    cache at each step. If all steps are in one graph, each step therefore has a parameter group of
    its own. Record the attention of a step in its group:
    ``recorder.attention(f"draft.{step}/{layer}", kind, arguments, group=f"draft.{step}")``.

    Args:
        first: lengths of the first draft step, by argument name.
        num_steps: number of draft steps in the graph, at least 1.
        growing: names of the arguments that count the cached tokens of each sequence. A length of
            0, which marks a row of padding, does not grow.

    Raises:
        InputError: There is no step, or ``growing`` has a name that ``first`` does not have.
    """
    unknown = sorted(set(growing) - first.keys())
    if num_steps < 1 or unknown:
        raise InputError(
            f"making the lengths of {num_steps} draft steps from those of {sorted(first)}: "
            f"expected at least one step, and growing among those names, found {sorted(growing)}"
        )
    given: dict[str, list[int]] = {
        name: torch.as_tensor(value).tolist() for name, value in first.items()
    }
    return {
        f"draft.{step}": {
            name: [each + step if each else 0 for each in value] if name in growing else value[:]
            for name, value in given.items()
        }
        for step in range(num_steps)
    }
