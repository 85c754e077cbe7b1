"""Which key lengths of all processes are this one's."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch

from attn_update import StepParameterError
from attn_update.kinds import ContextParallelRank

RANK = ContextParallelRank(dcp_size=2, dcp_rank=1, pcp_size=3, pcp_rank=2)
DECODE_ONLY = ContextParallelRank(dcp_size=4, dcp_rank=3)


def test_own_lengths_of_all_processes_are_those_of_the_rank() -> None:
    table = np.arange(2 * 3 * 2, dtype=np.int32).reshape(2, 3, 2)

    assert list(RANK.own_lengths(table, what="lengths")) == [5, 11]  # type: ignore[call-overload]
    own = RANK.own_lengths(torch.from_numpy(table), what="lengths")
    assert isinstance(own, torch.Tensor)
    assert own.tolist() == [5, 11]


def test_own_lengths_without_prefill_parallelism_may_leave_its_dimension_out() -> None:
    table = np.arange(8).reshape(2, 4)

    for given in (table, table.reshape(2, 1, 4)):
        own = DECODE_ONLY.own_lengths(given, what="lengths")
        assert list(own) == [3, 7]  # type: ignore[call-overload]


def test_own_lengths_of_one_dimension_are_returned_as_they_are() -> None:
    for given in ([1, 2], np.array([1, 2]), torch.tensor([1, 2])):
        assert RANK.own_lengths(given, what="lengths") is given


@pytest.mark.parametrize("shape", [(2, 2), (2, 2, 3), (2, 3, 2, 1)])
def test_own_lengths_of_another_shape_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(
        StepParameterError, match=re.escape(f"[sequences, 3, 2], found shape {shape}")
    ):
        RANK.own_lengths(np.zeros(shape, dtype=np.int32), what="lengths")


def test_own_lengths_on_a_device_are_refused() -> None:
    with pytest.raises(StepParameterError, match="on meta"):
        RANK.own_lengths(torch.empty(2, 3, 2, device="meta"), what="lengths")


@pytest.mark.parametrize("ranks", [{"dcp_rank": 1}, {"pcp_size": 2, "pcp_rank": -1}])
def test_rank_outside_its_size_is_refused(ranks: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=r"_rank < .*_size, found rank"):
        ContextParallelRank(**ranks)
