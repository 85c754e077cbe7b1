"""Products for each head: sizes at the limits, and results that are written or viewed later."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from torch import Tensor

import fx_passes
from fx_passes.testing import assert_rewritten, assert_same_values, capture_graph, random_tensors

if TYPE_CHECKING:
    from collections.abc import Callable

RULE = "fuse_batch_matmul_transpose"
TARGET = torch.ops.npu.npu_transpose_batchmatmul.default


def absorbed(x: Tensor, weight: Tensor) -> Tensor:
    return torch.bmm(x.transpose(0, 1), weight).transpose(0, 1)


def test_heads_of_too_many_elements_a_token_are_exchanged_before_the_kernel() -> None:
    shapes = (6, 128, 512), (128, 512, 128)
    module = capture_graph(absorbed, random_tensors(*shapes))

    assert_rewritten(fx_passes.default_npu_pipeline(), module, {RULE: 1})

    (fused,) = module.graph.find_nodes(op="call_function", target=TARGET)
    assert fused.kwargs["perm_x1"] == [0, 1, 2]
    x, weight = random_tensors(*shapes, device="npu")
    assert_same_values(module(x, weight)[0], absorbed(x, weight), roundings=1)


def test_symbolic_number_of_heads_is_left_alone() -> None:
    tensors = random_tensors((6, 4, 128), (4, 128, 128))
    module = capture_graph(absorbed, tensors, dynamic={0: 1, 1: 0})

    report = fx_passes.default_npu_pipeline().run(module).report

    assert not report.matches(RULE)


def only_use(x: Tensor, weight: Tensor) -> Tensor:
    rows = absorbed(x, weight).reshape(-1, 512)
    rows.add_(1)
    return rows


def written_while_both_are_used(x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    y = absorbed(x, weight)
    rows = y.reshape(-1, 512)
    rows.add_(1)
    return rows * 1, y + 1


def written_through_contiguous(x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    y = absorbed(x, weight)
    y.contiguous()[0].zero_()
    return y + 1, y * 2


def written_in_place(x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    y = absorbed(x, weight)
    y[0].zero_()
    return y + 1, y * 2


@pytest.mark.parametrize(
    ("function", "fused"),
    [
        (only_use, True),
        (written_while_both_are_used, False),
        (written_through_contiguous, False),
        (written_in_place, True),
    ],
)
def test_copy_for_the_layout_stays_where_it_is_visible(
    function: Callable[[Tensor, Tensor], object], fused: bool
) -> None:
    shapes = (6, 4, 128), (4, 128, 128)
    module = capture_graph(function, random_tensors(*shapes))

    report = fx_passes.default_npu_pipeline().run(module).report

    assert len(report.matches(RULE)) == fused
    x, weight = random_tensors(*shapes, device="npu")
    expected = function(x, weight)
    actual = module(x, weight)
    if not isinstance(expected, tuple):
        (actual,) = actual
    assert_same_values(actual, expected, roundings=2)
