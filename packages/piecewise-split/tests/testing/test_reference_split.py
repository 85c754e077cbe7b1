"""Torch's splitter as a reference."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from piecewise_split import plan_split
from piecewise_split.testing import dynamo_graph, reference_split

if TYPE_CHECKING:
    from collections.abc import Callable


def test_reference_split_same_pieces_and_results(
    decoder: Callable[[int], torch.nn.Module],
) -> None:
    model, x = decoder(2), torch.randn(4, 8)
    module, arguments = dynamo_graph(model, x)
    plan = plan_split(module, ["ps_test::attention"])

    reference = reference_split(module, plan)

    assert len(list(reference.children())) == len(plan.pieces)
    torch.testing.assert_close(reference(*arguments), (model(x),), rtol=0, atol=0)
