"""Packs whole sequences of different lengths into steps with a token budget."""

from __future__ import annotations

from typing import TYPE_CHECKING

from npu_compile.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence


def pack_sequences(
    lengths: Sequence[int], *, budget: int, max_sequences: int
) -> list[tuple[int, ...]]:
    """Assign sequences, such as the images of an encoder, to steps.

    The longest sequences are placed first, each into the first step that has room for it.

    Args:
        lengths: tokens of each sequence, at least 1.
        budget: tokens of a step, such as the largest capture size.
        max_sequences: most sequences of a step.

    Returns:
        For each step the indices of its sequences in ``lengths``, ascending. A sequence that is
        longer than the budget has a step of its own, which no graph fits.

    Raises:
        InputError: A length, the budget or the limit is below 1.
    """
    if budget < 1 or max_sequences < 1 or any(length < 1 for length in lengths):
        raise InputError(
            f"packing {len(lengths)} sequences of {min(lengths, default=1)} tokens and more into "
            f"steps of {budget} tokens and {max_sequences} sequences: expected at least 1 of each"
        )
    steps: list[list[int]] = []
    room: list[int] = []
    for position in sorted(range(len(lengths)), key=lambda each: (-lengths[each], each)):
        length = lengths[position]
        for number, left in enumerate(room):
            if length <= left and len(steps[number]) < max_sequences:
                break
        else:
            number = len(steps)
            steps.append([])
            room.append(budget)
        steps[number].append(position)
        room[number] -= length
    return [tuple(sorted(step)) for step in steps]
