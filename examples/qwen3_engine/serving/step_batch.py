"""The input of one forward pass, on the host."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch

from qwen3_engine.errors import BatchError
from qwen3_engine.qwen3.kv_cache import BLOCK_SIZE
from qwen3_engine.serving.block_allocator import PADDING_BLOCK

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from qwen3_engine.serving.sequence import Sequence


@dataclass(frozen=True, kw_only=True, slots=True)
class StepBatch:
    """The tokens of one step, concatenated over its sequences.

    ``T`` is the number of tokens, ``S`` of sequences; in a decode batch ``T == S``. All tensors are
    on the CPU and contiguous. The step owns them; a runner copies what it keeps.

    Attributes:
        input_ids: ``[T]``, int32.
        positions: ``[T]``, int64, the position of each token in its sequence.
        slot_mapping: ``[T]``, int32, the cache slot for the key and value of each token.
        block_table: ``[S, max_blocks]``, int32, the blocks of each sequence; unused entries name
            the padding block.
        query_lengths: ``S`` numbers of tokens of each sequence in this step; they add up to ``T``.
        kv_lengths: ``S`` numbers of tokens that each sequence has in the cache after the step.
    """

    input_ids: torch.Tensor
    positions: torch.Tensor
    slot_mapping: torch.Tensor
    block_table: torch.Tensor
    query_lengths: tuple[int, ...]
    kv_lengths: tuple[int, ...]

    @property
    def num_tokens(self) -> int:
        """Tokens of the step, ``T``."""
        return self.input_ids.shape[0]

    @property
    def num_sequences(self) -> int:
        """Sequences of the step, ``S``."""
        return len(self.query_lengths)

    def split_decode(self, parts: Iterable[int]) -> Iterator[StepBatch]:
        """Return the sequences of a decode batch in parts of so many sequences, as views."""
        stop = 0
        for rows in parts:
            part = slice(stop, stop := stop + rows)
            yield replace(
                self,
                input_ids=self.input_ids[part],
                positions=self.positions[part],
                slot_mapping=self.slot_mapping[part],
                block_table=self.block_table[part],
                query_lengths=self.query_lengths[part],
                kv_lengths=self.kv_lengths[part],
            )

    def last_token_rows(self) -> torch.Tensor:
        """Return the row of each sequence's last token: ``[S]``, int64, CPU."""
        return torch.cumsum(torch.tensor(self.query_lengths, dtype=torch.int64), dim=0) - 1


def build_batch(sequences: Iterable[Sequence], *, max_blocks: int) -> StepBatch:
    """Make the batch of the pending tokens of sequences; the same for prefill and decode.

    Args:
        sequences: each with a pending token at least, and with all the blocks it needs.
        max_blocks: columns of the block table, the same at every step of an engine.

    Raises:
        BatchError: there is no sequence, or one has nothing to compute, or more blocks than fit.
    """
    sequences = tuple(sequences)
    input_ids: list[int] = []
    positions: list[int] = []
    slots: list[int] = []
    query_lengths: list[int] = []
    block_table = torch.full((len(sequences), max_blocks), PADDING_BLOCK, dtype=torch.int32)
    for row, sequence in enumerate(sequences):
        pending = sequence.pending_tokens
        if not pending or len(sequence.blocks) > max_blocks:
            raise BatchError(
                f"making a batch: request {sequence.request_id} has {len(pending)} tokens to "
                f"compute and {len(sequence.blocks)} blocks; expected at least 1 token and at most "
                f"{max_blocks} blocks"
            )
        input_ids += pending
        positions += range(sequence.num_cached, sequence.num_tokens)
        slots += sequence.slots()
        query_lengths.append(len(pending))
        block_table[row, : len(sequence.blocks)] = torch.tensor(sequence.blocks, dtype=torch.int32)
    if not input_ids:
        raise BatchError("making a batch: there is no sequence")
    return StepBatch(
        input_ids=torch.tensor(input_ids, dtype=torch.int32),
        positions=torch.tensor(positions, dtype=torch.int64),
        slot_mapping=torch.tensor(slots, dtype=torch.int32),
        block_table=block_table,
        query_lengths=tuple(query_lengths),
        kv_lengths=tuple(sequence.num_tokens for sequence in sequences),
    )


def pad_decode_batch(batch: StepBatch, rows: int) -> StepBatch:
    """Return a decode batch filled up to ``rows`` sequences, as a bucket needs it.

    A padding row is a sequence of one query token that has no key in the cache: position 0, written
    to the first slot of the padding block, its block-table row names that block only. With key
    length 0 the attention operator reads nothing and returns zeros for the row ("no valid row" of
    ``sparse_mode`` 3), so padding cannot touch, or be touched by, the cache of a sequence.

    Raises:
        BatchError: the batch is not a decode batch, or has more rows already.
    """
    missing = rows - batch.num_sequences
    if batch.num_tokens != batch.num_sequences or missing < 0:
        raise BatchError(
            f"padding a decode batch to {rows} rows: it has {batch.num_sequences} sequences and "
            f"{batch.num_tokens} tokens; expected one token a sequence and at most {rows}"
        )
    if missing == 0:
        return batch
    padding_slot = PADDING_BLOCK * BLOCK_SIZE
    return replace(
        batch,
        input_ids=_pad(batch.input_ids, missing, 0),
        positions=_pad(batch.positions, missing, 0),
        slot_mapping=_pad(batch.slot_mapping, missing, padding_slot),
        block_table=_pad(batch.block_table, missing, PADDING_BLOCK),
        query_lengths=batch.query_lengths + (1,) * missing,
        kv_lengths=batch.kv_lengths + (0,) * missing,
    )


def _pad(tensor: torch.Tensor, missing: int, value: int) -> torch.Tensor:
    return torch.cat([tensor, tensor.new_full((missing, *tensor.shape[1:]), value)])
