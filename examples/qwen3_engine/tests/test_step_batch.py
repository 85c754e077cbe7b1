"""Tests of qwen3_engine.serving.step_batch."""

from __future__ import annotations

import pytest
import torch

from qwen3_engine.errors import BatchError
from qwen3_engine.serving.sampling import SamplingParameters
from qwen3_engine.serving.sequence import Request, Sequence
from qwen3_engine.serving.step_batch import build_batch, pad_decode_batch


def _sequence(prompt: tuple[int, ...], blocks: list[int], *, num_cached: int = 0) -> Sequence:
    request = Request(prompt=prompt, sampling=SamplingParameters(max_tokens=9))
    sequence = Sequence.start(0, request)
    sequence.blocks = blocks
    sequence.num_cached = num_cached
    return sequence


def test_build_batch_prefill_concatenates_sequences() -> None:
    sequences = [_sequence((5, 6, 7), [2]), _sequence((8, 9), [4])]

    batch = build_batch(sequences, max_blocks=2)

    assert batch.input_ids.tolist() == [5, 6, 7, 8, 9]
    assert batch.positions.tolist() == [0, 1, 2, 0, 1]
    assert batch.slot_mapping.tolist() == [256, 257, 258, 512, 513]
    assert batch.block_table.tolist() == [[2, 0], [4, 0]]
    assert (batch.query_lengths, batch.kv_lengths) == ((3, 2), (3, 2))
    assert batch.last_token_rows().tolist() == [2, 4]
    dtypes = [tensor.dtype for tensor in (batch.input_ids, batch.positions, batch.slot_mapping)]
    assert dtypes == [torch.int32, torch.int64, torch.int32]
    assert batch.block_table.dtype == torch.int32


def test_build_batch_decode_has_one_token_a_sequence() -> None:
    long = _sequence((1,) * 129, [3, 1], num_cached=128)
    short = _sequence((7, 8), [2], num_cached=1)

    batch = build_batch([long, short], max_blocks=4)

    assert batch.input_ids.tolist() == [1, 8]
    assert batch.positions.tolist() == [128, 1]
    assert batch.slot_mapping.tolist() == [128, 257]
    assert batch.block_table.tolist() == [[3, 1, 0, 0], [2, 0, 0, 0]]
    assert (batch.query_lengths, batch.kv_lengths) == ((1, 1), (129, 2))


@pytest.mark.parametrize(
    "sequences",
    [
        [],
        [_sequence((1,), [1], num_cached=1)],
        [_sequence((1,), [1, 2, 3])],
    ],
    ids=["no sequence", "nothing to compute", "too many blocks"],
)
def test_build_batch_impossible_batch_is_refused(sequences: list[Sequence]) -> None:
    with pytest.raises(BatchError, match="making a batch"):
        build_batch(sequences, max_blocks=2)


def test_pad_decode_batch_adds_rows_in_the_padding_block_only() -> None:
    batch = build_batch([_sequence((7, 8), [2], num_cached=1)], max_blocks=2)

    padded = pad_decode_batch(batch, 3)

    assert padded.input_ids.tolist() == [8, 0, 0]
    assert padded.positions.tolist() == [1, 0, 0]
    assert padded.slot_mapping.tolist() == [257, 0, 0]
    assert padded.block_table.tolist() == [[2, 0], [0, 0], [0, 0]]
    assert (padded.query_lengths, padded.kv_lengths) == ((1, 1, 1), (2, 0, 0))
    assert padded.block_table.dtype == torch.int32


def test_pad_decode_batch_already_full_is_the_same_batch() -> None:
    batch = build_batch([_sequence((7, 8), [2], num_cached=1)], max_blocks=2)

    assert pad_decode_batch(batch, 1) is batch


@pytest.mark.parametrize(("num_cached", "rows"), [(1, 0), (0, 3)])
def test_pad_decode_batch_other_batches_are_refused(num_cached: int, rows: int) -> None:
    batch = build_batch([_sequence((7, 8), [2], num_cached=num_cached)], max_blocks=2)

    with pytest.raises(BatchError, match=f"to {rows} rows"):
        pad_decode_batch(batch, rows)
