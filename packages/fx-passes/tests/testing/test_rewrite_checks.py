"""The helpers that check rewrites can fail."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from torch import Tensor

import fx_passes
from fx_passes.testing import assert_left_alone, assert_rewritten, capture_graph, random_tensors

if TYPE_CHECKING:
    from torch.fx import GraphModule

PIPELINE = fx_passes.default_npu_pipeline()
RULE = "fuse_add_rms_norm"


def module_of(alpha: float = 1) -> GraphModule:
    def function(x: Tensor, residual: Tensor, weight: Tensor) -> Tensor:
        total = torch.add(x, residual, alpha=alpha)
        out: Tensor = torch.ops.npu.npu_rms_norm(total, weight)[0]
        return out

    return capture_graph(function, random_tensors((3, 8), (3, 8), (8,)))


def test_assert_rewritten_counts_matches() -> None:
    with pytest.raises(AssertionError, match="expected the matches"):
        assert_rewritten(PIPELINE, module_of(), {RULE: 2})
    with pytest.raises(AssertionError, match="expected the matches"):
        assert_rewritten(PIPELINE, module_of(2), {RULE: 1})


def test_assert_rewritten_finds_a_pass_that_never_ends() -> None:
    restless = fx_passes.FunctionPass(name="restless", function=lambda module: True)
    pipeline = fx_passes.Pipeline(passes=(restless,))

    with pytest.raises(AssertionError, match="second run changed the graph"):
        assert_rewritten(pipeline, module_of(), {})


def test_assert_left_alone_requires_the_right_reason() -> None:
    miss = assert_left_alone(PIPELINE, module_of(2), RULE, "expected 1, found 2")

    assert miss.anchor
    with pytest.raises(AssertionError, match="no near miss"):
        assert_left_alone(PIPELINE, module_of(2), RULE, "another reason")
    with pytest.raises(AssertionError, match="matched"):
        assert_left_alone(PIPELINE, module_of(), RULE, "")


def test_capture_graph_needs_a_graph() -> None:
    with pytest.raises(RuntimeError, match="called no backend"):
        capture_graph(lambda: 1, [])
