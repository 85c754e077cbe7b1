"""The lengths of all draft steps that one graph holds, given those of the first."""

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

    A draft model proposes token behind token. With all of its steps in one graph each one has a
    parameter group of its own, as each sequence has a token more in the cache than at the step
    before. The model's attention is recorded in the group of its step:
    ``recorder.attention(f"draft.{step}/{layer}", kind, arguments, group=f"draft.{step}")``.

    Args:
        first: by argument name, of the first draft step.
        num_steps: draft steps in the graph, at least 1.
        growing: names of the arguments that count the tokens of each sequence in the cache. A
            length of 0 stays: a row of padding has none.

    Raises:
        InputError: no step, or ``growing`` names what ``first`` does not give.
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
