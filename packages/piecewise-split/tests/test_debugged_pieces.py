from __future__ import annotations

import inspect
from typing import Any

import pytest
import torch

from piecewise_split import FailedNodeError, plan_split, run_debugged, split, stitch
from piecewise_split.testing import dynamo_graph

ps_test = torch.ops.ps_test


class Layer(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = ps_test.mix(x.sin())
        return x.reshape(6).cos()


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(Layer() for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


LINE = inspect.getsourcelines(Layer.forward)[1] + 2


def test_debugged_pieces_compute_what_the_model_does() -> None:
    module, arguments = dynamo_graph(Model(), torch.randn(6))
    parts = split(module, plan_split(module, ["ps_test::mix"]))
    found: Any = stitch(parts, run_debugged(parts))(*arguments)
    torch.testing.assert_close(found[0], Model()(arguments[0]))


def test_failing_node_is_named_with_its_line_and_module() -> None:
    module, _ = dynamo_graph(Model(), torch.randn(6))
    parts = split(module, plan_split(module, ["ps_test::mix"]))
    with pytest.raises(FailedNodeError, match=r"invalid for input of size 7") as raised:
        stitch(parts, run_debugged(parts))(torch.randn(7))
    error = raised.value
    assert error.piece == "piece_2"
    assert error.source == f"tests/test_debugged_pieces.py:{LINE}"
    assert f"of layers.0, {error.source} failed" in str(error)
    assert isinstance(error.__cause__, RuntimeError)


def test_failure_that_the_device_tells_later_is_named_in_the_piece_that_shares_its_code() -> None:
    module, arguments = dynamo_graph(Model(), torch.randn(6))
    parts = split(module, plan_split(module, ["ps_test::mix"]))
    waits: list[int] = []

    def synchronize() -> None:
        waits.append(1)
        if len(waits) == 2 + 4 + 1:  # sin and mix; reshape, cos, sin and mix; reshape
            raise RuntimeError("the device reports 507015")

    assert parts.plan.pieces[4].isomorphic_to == 2
    with pytest.raises(FailedNodeError, match="the device reports 507015") as raised:
        stitch(parts, run_debugged(parts, synchronize))(*arguments)
    assert raised.value.piece == "piece_4"
    assert raised.value.node in parts.plan.pieces[4].nodes
    assert f"of layers.1, tests/test_debugged_pieces.py:{LINE} failed" in str(raised.value)
