"""The values that are alive at a cut."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from torch.fx import Graph, GraphModule

from piecewise_split import plan_split
from piecewise_split.testing import dynamo_graph

if TYPE_CHECKING:
    from collections.abc import Callable

FLOAT = torch.float32.itemsize


@pytest.mark.parametrize("dynamic_dim", [None, 0])
def test_live_bytes_are_those_of_the_example_inputs(
    decoder: Callable[[int], torch.nn.Module], dynamic_dim: int | None
) -> None:
    module, _ = dynamo_graph(decoder(2), torch.randn(4, 8), dynamic_dim=dynamic_dim)

    first, attention, *_ = plan_split(module, ["ps_test::attention"]).pieces

    assert (first.live, first.live_bytes) == ((), 0)
    assert attention.live == attention.inputs
    assert attention.live_bytes == 2 * 4 * 8 * FLOAT


def test_live_bytes_without_metadata_are_unknown() -> None:
    graph = Graph()
    x = graph.placeholder("x")
    made = graph.call_function(torch.sin, (x,))
    graph.output(graph.call_function(torch.ops.ps_test.mix, (made,)))

    plan = plan_split(GraphModule({}, graph), ["ps_test::mix"])

    assert [piece.live_bytes for piece in plan.pieces] == [0, None]
    assert "1, ? B" in str(plan)
