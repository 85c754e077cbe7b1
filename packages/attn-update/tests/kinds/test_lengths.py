"""Lengths are read from lists, CPU tensors and arrays, and nothing else."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from attn_update import StepParameterError
from attn_update.kinds.lengths import to_lengths


@pytest.mark.parametrize(
    "value",
    [
        [3, 0, 7],
        (3, 0, 7),
        torch.tensor([3, 0, 7], dtype=torch.int32),
        np.array([3, 0, 7], dtype=np.int64),
    ],
)
def test_to_lengths_from_any_host_form_gives_the_same_list(value: object) -> None:
    assert to_lengths(value, what="lengths") == [3, 0, 7]


def test_to_lengths_from_a_list_gives_a_copy() -> None:
    value = [1, 2]

    lengths = to_lengths(value, what="lengths")
    value[0] = 9

    assert lengths == [1, 2]


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (torch.tensor([1], device="meta"), "on meta"),
        (torch.tensor([1.0]), "torch.float32"),
        (torch.tensor([True]), "torch.bool"),
        (torch.tensor([[1]]), "found 2"),
        (np.array([[1]]), "found 2"),
        (np.array([1.5]), "1.5 of type float"),
        ([1, 2.0], "2.0 of type float"),
        ([1, None], "of type NoneType"),
        (7, "found int"),
        (None, "found NoneType"),
    ],
)
def test_to_lengths_from_anything_else_names_the_cause(value: object, reason: str) -> None:
    with pytest.raises(StepParameterError, match=reason):
        to_lengths(value, what="lengths")
