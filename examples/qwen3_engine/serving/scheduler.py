"""Continuous batching: which sequences take part in the next step.

Waiting sequences are prefilled as soon as there is room for them; otherwise all running sequences
decode one token. Sequences join and leave between any two steps. When the cache is full, the
running sequence that started last gives its blocks back and waits again, in front: its tokens so
far become part of its next prefill, so nothing it generated is lost.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from qwen3_engine.errors import ConfigError

if TYPE_CHECKING:
    from qwen3_engine.serving.block_allocator import BlockAllocator
    from qwen3_engine.serving.sequence import Sequence


class StepKind(str, Enum):
    """The kind of a step.

    Attributes:
        PREFILL: computes all tokens of sequences that were waiting.
        DECODE: computes one token of each running sequence.
    """

    PREFILL = "prefill"
    DECODE = "decode"


@dataclass(frozen=True, kw_only=True, slots=True)
class ScheduledStep:
    """The work of one step.

    Attributes:
        kind: prefill or decode.
        sequences: those that take part, with all the blocks they need.
        num_preempted: sequences that lost their blocks to make room.
    """

    kind: StepKind
    sequences: tuple[Sequence, ...]
    num_preempted: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class SchedulerConfig:
    """Limits of a batch.

    Attributes:
        max_num_sequences: running at once; also the most sequences of a decode step.
        max_prefill_tokens: tokens of a prefill step; a single longer sequence still gets a step of
            its own.

    Raises:
        ConfigError: a limit is below 1.
    """

    max_num_sequences: int = 16
    max_prefill_tokens: int = 2048

    def __post_init__(self) -> None:
        for name in ("max_num_sequences", "max_prefill_tokens"):
            if getattr(self, name) < 1:
                raise ConfigError(
                    f"making the scheduler: {name} must be at least 1, found {getattr(self, name)}"
                )


class Scheduler:
    """Owns the order of sequences and gives them blocks.

    Every sequence added must fit into the empty cache when it is complete; the engine rejects
    others before.

    Args:
        config: limits of a batch.
        allocator: the blocks of the cache; used by this scheduler only.
    """

    def __init__(self, config: SchedulerConfig, allocator: BlockAllocator) -> None:
        self._config = config
        self._allocator = allocator
        self._waiting: deque[Sequence] = deque()
        self._running: list[Sequence] = []

    @property
    def num_waiting(self) -> int:
        """Sequences that have no blocks."""
        return len(self._waiting)

    @property
    def num_running(self) -> int:
        """Sequences that have blocks."""
        return len(self._running)

    def add(self, sequence: Sequence) -> None:
        """Queue a sequence for its prefill, after all others."""
        self._waiting.append(sequence)

    def schedule(self, *, decode_steps: int = 1) -> ScheduledStep | None:
        """Return the next step, or ``None`` if there is no sequence.

        Args:
            decode_steps: tokens that a decode step computes of each sequence.
        """
        admitted = self._admit()
        if admitted:
            self._running += admitted
            return ScheduledStep(kind=StepKind.PREFILL, sequences=tuple(admitted))
        if not self._running:
            return None
        num_preempted = self._reserve_for_decode(decode_steps)
        return ScheduledStep(
            kind=StepKind.DECODE, sequences=tuple(self._running), num_preempted=num_preempted
        )

    def finish(self, sequence: Sequence) -> None:
        """Remove a running sequence and release its blocks."""
        self._running.remove(sequence)
        self._release(sequence)

    def withdraw(self, step: ScheduledStep) -> None:
        """Undo a step that failed before it changed a sequence, so that it is scheduled again.

        A decode step needs nothing: its sequences run on and compute the same token.
        """
        if step.kind is StepKind.PREFILL:
            for sequence in reversed(step.sequences):
                self._running.remove(sequence)
                self._preempt(sequence)

    def _admit(self) -> list[Sequence]:
        admitted: list[Sequence] = []
        num_tokens = 0
        while self._waiting:
            sequence = self._waiting[0]
            num_tokens += sequence.num_tokens
            full = len(self._running) + len(admitted) >= self._config.max_num_sequences
            too_long = bool(admitted) and num_tokens > self._config.max_prefill_tokens
            missing = sequence.num_missing_blocks()
            if full or too_long or missing > self._allocator.num_free:
                break
            sequence.blocks += self._allocator.allocate(missing)
            admitted.append(self._waiting.popleft())
        return admitted

    def _reserve_for_decode(self, steps: int) -> int:
        """Give running sequences the blocks of their next tokens; return how many had to leave."""
        num_preempted = 0
        index = 0
        while index < len(self._running):
            sequence = self._running[index]
            missing = sequence.num_missing_blocks(steps=steps)
            if missing > self._allocator.num_free:
                self._preempt(self._running.pop())
                num_preempted += 1
                continue
            sequence.blocks += self._allocator.allocate(missing)
            index += 1
        return num_preempted

    def _preempt(self, sequence: Sequence) -> None:
        self._release(sequence)
        sequence.num_cached = 0
        self._waiting.appendleft(sequence)

    def _release(self, sequence: Sequence) -> None:
        self._allocator.release(sequence.blocks)
        sequence.blocks = []
