"""Tests of qwen3_engine.serving.sequence."""

from __future__ import annotations

from qwen3_engine.serving.sampling import SamplingParameters
from qwen3_engine.serving.sequence import Request, Sequence


def _sequence(prompt_length: int) -> Sequence:
    prompt = tuple(range(prompt_length))
    return Sequence.start(0, Request(prompt=prompt, sampling=SamplingParameters(max_tokens=9)))


def test_pending_tokens_new_sequence_are_the_prompt() -> None:
    assert _sequence(3).pending_tokens == [0, 1, 2]


def test_pending_tokens_decoding_are_the_last_token() -> None:
    sequence = _sequence(3)
    sequence.tokens = [7, 8]
    sequence.num_cached = 4

    assert sequence.pending_tokens == [8]


def test_pending_tokens_after_losing_the_cache_are_the_whole_text() -> None:
    sequence = _sequence(3)
    sequence.tokens = [7, 8]

    assert sequence.pending_tokens == [0, 1, 2, 7, 8]


def test_num_missing_blocks_crossing_a_block_is_one() -> None:
    sequence = _sequence(128)
    sequence.blocks = [4]
    assert sequence.num_missing_blocks() == 0

    sequence.tokens = [1]

    assert sequence.num_missing_blocks() == 1


def test_slots_decoding_is_the_slot_of_the_last_position() -> None:
    sequence = _sequence(128)
    sequence.blocks = [4, 2]
    sequence.tokens = [1]
    sequence.num_cached = 128

    assert sequence.slots() == [256]
