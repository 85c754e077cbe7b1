from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from npu_graph_runtime import (
    CaptureSizes,
    sglang_decode_capture_sizes,
    sglang_prefill_capture_sizes,
    vllm_capture_sizes,
)
from npu_graph_runtime.errors import CaptureSizeError

if TYPE_CHECKING:
    from collections.abc import Callable

SIZES = st.sets(st.integers(1, 300), min_size=1)


@given(SIZES, st.integers(1, 400))
def test_bucket_for_any_count_is_smallest_size_that_holds_it(sizes: set[int], count: int) -> None:
    holding = [size for size in sorted(sizes) if size >= count]
    assert CaptureSizes(sizes).bucket_for(count) == (holding[0] if holding else None)


@given(SIZES, st.integers(1, 8), st.integers(1, 8))
def test_rounded_sizes_are_multiples_and_hold_every_batch(
    sizes: set[int], ranks: int, rows: int
) -> None:
    rounded = CaptureSizes(sizes).rounded_to_multiples(ranks, rows)
    factor = math.lcm(ranks, rows)
    assert rounded.largest < max(sizes) + factor
    assert all(size % factor == 0 for size in rounded)
    for size in sizes:
        bucket = rounded.bucket_for(size)
        assert bucket is not None
        assert size <= bucket < size + factor


def test_capture_sizes_unordered_with_duplicates_are_a_sorted_set() -> None:
    sizes = CaptureSizes([8, 1, 4, 8])
    assert list(sizes) == [1, 4, 8]
    assert sizes == CaptureSizes((1, 4, 8))
    assert hash(sizes) == hash(CaptureSizes((1, 4, 8)))
    assert sizes != CaptureSizes([1])
    assert (len(sizes), sizes.largest, sizes.largest_first()) == (3, 8, (8, 4, 1))
    assert 4 in sizes
    assert 5 not in sizes
    assert repr(sizes) == "CaptureSizes([1, 4, 8])"


@pytest.mark.parametrize(("sizes", "message"), [([], "got none"), ([0, 4], r"\[0\] are out")])
def test_capture_sizes_impossible_raise(sizes: list[int], message: str) -> None:
    with pytest.raises(CaptureSizeError, match=message):
        CaptureSizes(sizes)


def test_capture_sizes_of_impossible_factor_raise() -> None:
    with pytest.raises(CaptureSizeError, match=r"factors \[0\]"):
        CaptureSizes([4]).rounded_to_multiples(0)


def test_bucket_for_empty_batch_raises() -> None:
    with pytest.raises(CaptureSizeError, match="0 rows"):
        CaptureSizes([4]).bucket_for(0)


def test_vllm_sizes_follow_its_formula() -> None:
    assert list(vllm_capture_sizes(1)) == [1, 2]
    assert list(vllm_capture_sizes(8)) == [1, 2, 4, 8, 16]
    large = vllm_capture_sizes(1024)
    assert large.largest == 512
    assert list(large)[:5] == [1, 2, 4, 8, 16]
    assert 248 in large
    assert 256 in large
    assert 264 not in large
    assert 272 in large
    assert len(large) == 3 + 31 + 17


def sizes_of_vllm(sequences: int, drafts: int, scale: int) -> list[int]:
    """``_set_cudagraph_sizes`` of vLLM 0.27, whose scale is 2; 1 in vLLM-Ascend."""
    limit = min(sequences * (1 + drafts) * scale, 512)
    small = [size for size in (1, 2, 4) if size <= limit]
    return [*small, *range(8, min(limit + 1, 256), 8), *range(256, limit + 1, 16)]


@pytest.mark.parametrize("scale", [1, 2])
def test_vllm_sizes_are_those_of_vllm_and_may_add_the_largest_batch(scale: int) -> None:
    for sequences, drafts in itertools.product(range(1, 257), range(8)):
        sizes = vllm_capture_sizes(sequences, num_draft_tokens=drafts, scale=scale)
        theirs, batch = sizes_of_vllm(sequences, drafts, scale), sequences * (1 + drafts)
        assert list(sizes) == theirs + [min(batch, 512)] * (theirs[-1] < min(batch, 512))
        if scale == 2:
            assert list(sizes) == theirs


def test_largest_batch_has_a_bucket_by_every_formula() -> None:
    """Of vLLM with drafts and tensor parallelism, in whole sequences, up to its 512 tokens."""
    for sequences, drafts, scale in itertools.product(range(1, 257), range(8), (1, 2)):
        rows = 1 + drafts
        batch = sequences * rows
        if batch > 512:
            continue
        sizes = vllm_capture_sizes(sequences, num_draft_tokens=drafts, scale=scale)
        for ranks in (1, 2, 4, 8, 16):
            for rounded in (sizes.rounded_to_multiples(rows, ranks), sizes):
                bucket = rounded.bucket_for(batch)
                assert bucket is not None
                assert bucket < batch + max(16, math.lcm(rows, ranks)) + 16


@pytest.mark.parametrize("tokens", [1, 7, 12, 100, 511, 513, 8192])
def test_vllm_sizes_hold_the_largest_batch_of_a_token_limit(tokens: int) -> None:
    for sequences, drafts in itertools.product(range(1, 129), range(4)):
        batch = min(sequences * (1 + drafts), tokens, 512)
        for scale in (1, 2):
            sizes = vllm_capture_sizes(
                sequences, num_draft_tokens=drafts, scale=scale, max_num_batched_tokens=tokens
            )
            assert sizes.bucket_for(batch) is not None
            assert sizes.largest <= tokens


# Sizes for a largest batch of so many rows.
FORMULAS: dict[str, Callable[[int], CaptureSizes]] = {
    "vllm": lambda limit: vllm_capture_sizes(limit, max_capture_size=1024),
    "vllm-ascend": lambda limit: vllm_capture_sizes(limit, scale=1, max_capture_size=1024),
    "vllm, tokens": lambda limit: vllm_capture_sizes(
        1024, max_num_batched_tokens=limit, max_capture_size=1024
    ),
    "vllm, largest size": lambda limit: vllm_capture_sizes(1024, max_capture_size=limit),
    "sglang": sglang_decode_capture_sizes,
    "sglang, speculative": lambda limit: sglang_decode_capture_sizes(limit, is_speculative=True),
    "sglang, unpadded": lambda limit: sglang_decode_capture_sizes(limit, is_padded=False),
    "sglang, prefill": sglang_prefill_capture_sizes,
}


@pytest.mark.parametrize("formula", FORMULAS)
def test_largest_batch_of_1000_limits_is_a_size_and_rounded_sizes_are_multiples(
    formula: str,
) -> None:
    for limit in range(1, 1001):
        sizes = FORMULAS[formula](limit)
        if formula == "vllm":
            # Its sizes continue to twice the limit, as in vLLM.
            bucket = sizes.bucket_for(limit)
            assert bucket is not None
            assert bucket - limit < (8 if limit <= 248 else 16)
        else:
            assert limit == sizes.largest
        for rows, ranks in itertools.product((1, 3, 4), (1, 2, 8, 16)):
            factor = math.lcm(rows, ranks)
            rounded = sizes.rounded_to_multiples(rows, ranks)
            assert all(size % rows == 0 == size % ranks for size in rounded)
            # The batch, in whole sequences, is padded by less than a multiple.
            largest = math.ceil(limit / factor) * factor
            assert largest in rounded or formula == "vllm"
            assert rounded.bucket_for(limit) is not None


@pytest.mark.parametrize("drafts", range(6))
@pytest.mark.parametrize("scale", [1, 2])
def test_largest_batch_of_1000_sequence_limits_has_a_bucket_with_drafts(
    drafts: int, scale: int
) -> None:
    rows = 1 + drafts
    for sequences in range(1, 1001):
        batch = sequences * rows
        sizes = vllm_capture_sizes(
            sequences, num_draft_tokens=drafts, scale=scale, max_capture_size=batch * scale
        )
        assert scale == 2 or batch == sizes.largest
        for ranks in (1, 4):
            bucket = sizes.rounded_to_multiples(rows, ranks).bucket_for(batch)
            assert bucket is not None
            assert bucket - batch < math.lcm(rows, ranks) + 16 * (scale == 2)


@pytest.mark.parametrize("is_speculative", [False, True])
def test_sglang_sizes_hold_the_largest_batch(is_speculative: bool) -> None:
    """A batch between two steps is added; otherwise the sizes are SGLang's."""
    wider = sglang_decode_capture_sizes(1100, is_speculative=is_speculative)
    for largest in range(1, 1100):
        sizes = sglang_decode_capture_sizes(largest, is_speculative=is_speculative)
        assert sizes.largest == largest
        assert set(sizes) - {largest} == {size for size in wider if size < largest}
        assert sglang_prefill_capture_sizes(largest).largest == largest


def test_vllm_sizes_for_ascend_and_drafts_scale_the_limit() -> None:
    assert vllm_capture_sizes(64, scale=1).largest == 64
    assert vllm_capture_sizes(16, num_draft_tokens=3, scale=1).largest == 64
    assert list(vllm_capture_sizes(12, scale=1)) == [1, 2, 4, 8, 12]


def test_vllm_sizes_token_limit_below_maximum_is_a_size() -> None:
    assert list(vllm_capture_sizes(256, max_num_batched_tokens=20)) == [1, 2, 4, 8, 16, 20]


def test_vllm_sizes_with_drafts_round_to_whole_sequences() -> None:
    sizes = vllm_capture_sizes(8, num_draft_tokens=2).rounded_to_multiples(3)
    assert list(sizes) == [3, 6, 9, 18, 24, 33, 42, 48]
    assert list(vllm_capture_sizes(170, num_draft_tokens=2).rounded_to_multiples(3))[-2:] == [
        498,
        513,
    ]


def test_sglang_decode_sizes_follow_its_steps() -> None:
    assert list(sglang_decode_capture_sizes(20)) == [1, 2, 4, 8, 12, 16, 20]
    large = sglang_decode_capture_sizes(600)
    assert list(large)[-6:] == [480, 496, 512, 544, 576, 600]
    assert 248 in large
    assert 264 not in large
    assert list(sglang_decode_capture_sizes(3, is_padded=False)) == [1, 2, 3]
    speculative = list(sglang_decode_capture_sizes(80, is_speculative=True))
    assert speculative == [*range(1, 9), *range(10, 33, 2), *range(40, 65, 4), 72, 80]


def test_sglang_prefill_sizes_follow_its_steps() -> None:
    assert list(sglang_prefill_capture_sizes(64)) == [4, 8, 12, 16, 20, 24, 28, 32, 48, 64]
    assert list(sglang_prefill_capture_sizes(5120))[-4:] == [3840, 4096, 4608, 5120]


def test_default_sizes_limits_below_one_raise() -> None:
    with pytest.raises(CaptureSizeError, match="max_num_sequences is 0"):
        vllm_capture_sizes(0)
    with pytest.raises(CaptureSizeError, match="max_capture_size is 0"):
        vllm_capture_sizes(1, max_capture_size=0)
    with pytest.raises(CaptureSizeError, match="max_num_batched_tokens is 0"):
        vllm_capture_sizes(1, max_num_batched_tokens=0)
    with pytest.raises(CaptureSizeError, match="max_batch_size is 0"):
        sglang_decode_capture_sizes(0)
    with pytest.raises(CaptureSizeError, match="max_num_tokens is 0"):
        sglang_prefill_capture_sizes(0)
