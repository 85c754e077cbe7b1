"""Graphs as Dynamo passes them to a backend."""

from __future__ import annotations

import torch

from piecewise_split.testing import dynamo_graph


def test_dynamo_graph_inputs_fit_the_graph() -> None:
    x = torch.randn(4, 6)

    module, arguments = dynamo_graph(lambda t: t * 2, x, dynamic_dim=0)

    assert len(arguments) == len(module.graph.find_nodes(op="placeholder"))
    torch.testing.assert_close(module(*arguments), (x * 2,))
