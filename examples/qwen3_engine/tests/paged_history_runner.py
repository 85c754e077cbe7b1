"""A toy model for tests of the engine: it reads its text through the paged cache."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from qwen3_engine.qwen3.kv_cache import BLOCK_SIZE

if TYPE_CHECKING:
    from qwen3_engine.serving.step_batch import StepBatch


class PagedHistoryRunner:
    """A model whose logits depend on every token before, read through the paged cache.

    It keeps token ids in the slots where a real model keeps keys and values, so a wrong slot, block
    table, position or length changes the tokens that it generates.
    """

    def __init__(self, *, num_blocks: int, vocab_size: int) -> None:
        self.vocab_size = vocab_size
        self.batches: list[StepBatch] = []
        self._slots = torch.full((num_blocks * BLOCK_SIZE,), -1, dtype=torch.int64)

    def prefill(self, batch: StepBatch) -> torch.Tensor:
        return self._run(batch)

    def decode(self, batch: StepBatch) -> torch.Tensor:
        assert batch.num_tokens == batch.num_sequences
        return self._run(batch)

    def expected_tokens(self, prompt: tuple[int, ...], count: int) -> tuple[int, ...]:
        """Return the tokens of greedy decoding of one request, computed without any cache."""
        text = list(prompt)
        for _ in range(count):
            text.append(int(self._logits(text).argmax()))
        return tuple(text[len(prompt) :])

    def _run(self, batch: StepBatch) -> torch.Tensor:
        self.batches.append(batch)
        self._slots[batch.slot_mapping.long()] = batch.input_ids.long()
        rows = []
        end = 0
        for row, (count, length) in enumerate(
            zip(batch.query_lengths, batch.kv_lengths, strict=True)
        ):
            positions = torch.arange(length)
            blocks = batch.block_table[row].long()
            text = self._slots[
                blocks[positions // BLOCK_SIZE] * BLOCK_SIZE + positions % BLOCK_SIZE
            ]
            expected = list(range(length - count, length))
            assert batch.positions[end : end + count].tolist() == expected
            rows.append(self._logits(text.tolist()))
            end += count
        return torch.stack(rows)

    def _logits(self, text: list[int]) -> torch.Tensor:
        seed = 0
        for token in text:
            seed = (seed * 1_000_003 + token + 1) % (2**61 - 1)
        generator = torch.Generator().manual_seed(seed)
        return torch.randn(self.vocab_size, generator=generator)
