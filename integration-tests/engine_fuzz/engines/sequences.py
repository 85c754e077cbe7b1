"""The sequences of an engine, and the batches that are made of them."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

BLOCK_SIZE = 16
NUM_COLUMNS = 3
MAX_LENGTH = BLOCK_SIZE * NUM_COLUMNS
DECODE_SIZES = (1, 2, 4)
MAX_SEQUENCES = DECODE_SIZES[-1]
PREFILL_SIZE = 8
NUM_BLOCKS = 1 + MAX_SEQUENCES * NUM_COLUMNS


@dataclasses.dataclass(frozen=True, kw_only=True)
class Batch:
    """One step, padded.

    Attributes:
        is_decode: whether each sequence has one token.
        num_rows: of the batch itself; the others are padding.
        tokens: by row.
        slots: by row, where its key and value go.
        table: blocks by sequence; block 0 is that of padding.
        queries: how many tokens the sequences up to each one have.
        keys: how many keys each sequence has.
    """

    is_decode: bool
    num_rows: int
    tokens: tuple[int, ...]
    slots: tuple[int, ...]
    table: tuple[tuple[int, ...], ...]
    queries: tuple[int, ...]
    keys: tuple[int, ...]

    @property
    def size(self) -> int:
        """Rows with padding."""
        return len(self.tokens)


@dataclasses.dataclass
class _Sequence:
    blocks: tuple[int, ...]
    length: int = 0

    def slots(self, count: int) -> tuple[int, ...]:
        places = range(self.length, self.length + count)
        return tuple(
            self.blocks[place // BLOCK_SIZE] * BLOCK_SIZE + place % BLOCK_SIZE for place in places
        )


class Sequences:
    """The host's state of the sequences. Tokens are fixed, not sampled."""

    def __init__(self) -> None:
        blocks = range(1, NUM_BLOCKS)
        self._free = [
            tuple(blocks[start : start + NUM_COLUMNS])
            for start in range(0, len(blocks), NUM_COLUMNS)
        ]
        self._living: dict[int, _Sequence] = {}
        self._next = 0

    @property
    def living(self) -> list[int]:
        """Numbers of the sequences, in the order in which they joined."""
        return list(self._living)

    def join(self, tokens: Sequence[int]) -> Batch | None:
        """Return the prefill step of a new sequence; ``None`` where there is no room."""
        if not self._free:
            return None
        sequence = _Sequence(self._free.pop(0))
        self._living[self._next] = sequence
        self._next += 1
        count, padding = len(tokens), PREFILL_SIZE - len(tokens)
        batch = Batch(
            is_decode=False,
            num_rows=count,
            tokens=(*tokens, *[0] * padding),
            slots=(*sequence.slots(count), *[0] * padding),
            table=(sequence.blocks, (0,) * NUM_COLUMNS),
            queries=(count, PREFILL_SIZE),
            keys=(count, padding),
        )
        sequence.length = count
        return batch

    def leave(self, number: int) -> None:
        """Give the blocks of a sequence to the next that joins."""
        self._free.insert(0, self._living.pop(number).blocks)

    def decode(self, numbers: Sequence[int], tokens: Sequence[int]) -> Batch:
        """Return a decode step of some sequences, which grow by their token."""
        size = next(each for each in DECODE_SIZES if each >= len(numbers))
        padding = size - len(numbers)
        chosen = [self._living[number] for number in numbers]
        batch = Batch(
            is_decode=True,
            num_rows=len(numbers),
            tokens=(*tokens, *[0] * padding),
            slots=(*[slot for each in chosen for slot in each.slots(1)], *[0] * padding),
            table=(*[each.blocks for each in chosen], *[(0,) * NUM_COLUMNS] * padding),
            queries=tuple(range(1, size + 1)),
            keys=(*[each.length + 1 for each in chosen], *[1] * padding),
        )
        for each in chosen:
            each.length += 1
        return batch

    def is_full(self, number: int) -> bool:
        """Return whether a sequence has no room for another token."""
        return self._living[number].length >= MAX_LENGTH


def padding_batch(size: int, *, is_decode: bool) -> Batch:
    """Return a step of padding only, on which graphs are captured."""
    num_sequences = size if is_decode else 2
    ends = tuple(range(1, size + 1)) if is_decode else (1, size)
    return Batch(
        is_decode=is_decode,
        num_rows=size,
        tokens=(0,) * size,
        slots=(0,) * size,
        table=((0,) * NUM_COLUMNS,) * num_sequences,
        queries=ends,
        keys=(1,) * size if is_decode else (1, size - 1),
    )
