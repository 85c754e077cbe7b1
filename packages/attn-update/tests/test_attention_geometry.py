"""The length rules follow from the captured shapes."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from attn_update import ArgumentError, StepParameterError
from attn_update.kinds import AttentionGeometry, LengthRule
from attn_update.kinds.attention_geometry import read_geometry


def read(layout: str, query: tuple[int, ...], **given: object) -> AttentionGeometry:
    query_lengths = given.pop("query_lengths", None)
    key_lengths = given.pop("key_lengths", None)
    assert query_lengths is None or isinstance(query_lengths, list)
    assert key_lengths is None or isinstance(key_lengths, list)
    arguments = {"query": torch.empty(query), "input_layout": layout, **given}
    return read_geometry(arguments, query_lengths=query_lengths, key_lengths=key_lengths)


@pytest.mark.parametrize(
    ("layout", "query", "tokens"),
    [("TND", (6, 2, 4), 6), ("NTD", (2, 6, 4), 6), ("TND_NTD", (6, 2, 4), 6)],
)
def test_read_geometry_ragged_layout_ends_at_the_query_tokens(
    layout: str, query: tuple[int, ...], tokens: int
) -> None:
    rule = read(layout, query, query_lengths=[1, 2, tokens]).query

    assert rule is not None
    assert (rule.count, rule.cumulative, rule.total) == (3, True, tokens)


@pytest.mark.parametrize(
    ("layout", "query", "positions"),
    [("BSH", (3, 5, 8), 5), ("BSND", (3, 5, 2, 4), 5), ("BNSD", (3, 2, 5, 4), 5)],
)
def test_read_geometry_batched_layout_bounds_each_sequence(
    layout: str, query: tuple[int, ...], positions: int
) -> None:
    rule = read(layout, query, query_lengths=[1, 1, 1]).query

    assert rule is not None
    assert (rule.count, rule.cumulative, rule.maximum) == (3, False, positions)


def test_read_geometry_paged_cache_is_bounded_by_the_block_table() -> None:
    table = torch.zeros(4, 7, dtype=torch.int32)

    rule = read("TND", (4, 2, 4), block_table=table, block_size=16, key_lengths=[1] * 4).key

    assert rule is not None
    assert (rule.cumulative, rule.maximum) == (False, 7 * 16)


@pytest.mark.parametrize(
    ("sparse_mode", "maximum"), [(0, 40), (1, 40), (2, 7 * 16), (3, 7 * 16), (4, 7 * 16)]
)
def test_read_geometry_with_a_whole_mask_is_bounded_by_its_columns(
    sparse_mode: int, maximum: int
) -> None:
    # In the other modes the mask is a square that applies to any length.
    table = torch.zeros(4, 7, dtype=torch.int32)
    mask = torch.zeros(4, 1, 2, 40, dtype=torch.bool)

    rule = read(
        "BSND",
        (4, 2, 2, 4),
        block_table=table,
        block_size=16,
        atten_mask=mask,
        sparse_mode=sparse_mode,
        key_lengths=[1] * 4,
    ).key

    assert rule is not None
    assert rule.maximum == maximum


def test_shortened_rule_of_ragged_queries_ends_within_the_tokens() -> None:
    rule = read("TND", (6, 2, 4), query_lengths=[2, 4, 6]).query
    assert rule is not None

    shorter = rule.shortened(2)

    shorter.check([2, 4], what="a step")
    shorter.check([1, 6], what="a step")
    with pytest.raises(StepParameterError, match="above 6"):
        shorter.check([2, 7], what="a step")
    for count in (0, 3, 4):
        assert rule.shortened(count) is rule


def test_read_geometry_ragged_key_without_paging_is_cumulative() -> None:
    rule = read("TND", (4, 2, 4), key=torch.empty(9, 2, 4), key_lengths=[1, 4, 9]).key

    assert rule is not None
    assert (rule.cumulative, rule.maximum) == (True, 9)


def test_read_geometry_with_more_sequences_than_table_rows_is_refused() -> None:
    table = torch.zeros(2, 7, dtype=torch.int32)

    with pytest.raises(StepParameterError, match="3 sequences need a block table"):
        read("TND", (3, 2, 4), block_table=table, block_size=16, key_lengths=[1] * 3)


def test_read_geometry_with_a_count_that_is_not_the_batch_is_refused() -> None:
    with pytest.raises(StepParameterError, match="one length for each of 3 sequences"):
        read("BSH", (3, 1, 8), query_lengths=[1, 1])


def test_read_geometry_ragged_with_unequal_counts_is_refused() -> None:
    table = torch.zeros(4, 7, dtype=torch.int32)

    with pytest.raises(StepParameterError, match="found 1 and 2"):
        read(
            "TND",
            (4, 2, 4),
            block_table=table,
            block_size=16,
            query_lengths=[1, 4],
            key_lengths=[3],
        )


def test_read_geometry_with_an_unknown_layout_is_refused() -> None:
    with pytest.raises(ArgumentError, match="found 'XYZ'"):
        read("XYZ", (3, 1, 8))


CUMULATIVE = LengthRule(count=3, cumulative=True, total=6, maximum=None, bound="tokens")
SEPARATE = LengthRule(count=3, cumulative=False, total=None, maximum=10, bound="blocks")


@pytest.mark.parametrize(
    ("rule", "lengths", "reason"),
    [
        (CUMULATIVE, [1, 6], "expected 3 lengths as captured, found 2"),
        (CUMULATIVE, [1, 2, 4, 6], "found 4"),
        (CUMULATIVE, [4, 2, 6], "must not fall, found 4 before 2 at 1"),
        (CUMULATIVE, [-1, 2, 6], "at 0 is negative"),
        (CUMULATIVE, [1, 2, 5], r"must be 6 \(tokens\), found 5"),
        (SEPARATE, [1, 2, 11], r"11 at 2 is above 10 \(blocks\)"),
        (SEPARATE, [1, -2, 3], "at 1 is negative"),
    ],
)
def test_length_rule_check_of_a_broken_rule_names_it(
    rule: LengthRule, lengths: list[int], reason: str
) -> None:
    with pytest.raises(StepParameterError, match=reason):
        rule.check(lengths, what="lengths")


@pytest.mark.parametrize(
    ("rule", "lengths"),
    [(CUMULATIVE, [0, 0, 6]), (CUMULATIVE, [6, 6, 6]), (SEPARATE, [0, 10, 3])],
)
def test_length_rule_check_at_the_limits_passes(rule: LengthRule, lengths: list[int]) -> None:
    rule.check(lengths, what="lengths")


def test_length_rule_padded_uniform_decode_stays_uniform() -> None:
    rule = LengthRule(count=5, cumulative=True, total=10, maximum=None, bound="tokens")

    assert rule.padded([2, 4]) == [2, 4, 6, 8, 10]


def test_length_rule_padded_per_sequence_adds_empty_sequences() -> None:
    assert SEPARATE.padded([5]) == [5, 0, 0]


@given(
    st.lists(st.integers(0, 9), max_size=6),
    st.integers(1, 6),
    st.integers(0, 20),
    st.booleans(),
)
def test_length_rule_padded_of_any_short_batch_passes_the_check(
    own: list[int], missing: int, spare: int, cumulative: bool
) -> None:
    lengths = [sum(own[: index + 1]) for index in range(len(own))] if cumulative else own
    total = sum(own) + spare if cumulative else None
    rule = LengthRule(
        count=len(own) + missing, cumulative=cumulative, total=total, maximum=None, bound=""
    )

    padded = rule.padded(lengths)

    rule.check(padded, what="padded")
    assert padded[: len(lengths)] == lengths
