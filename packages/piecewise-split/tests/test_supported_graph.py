"""Graphs that cannot be split."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch.fx import Graph, GraphModule

from piecewise_split import SplitPlan, UnsupportedGraphError, plan_split
from piecewise_split.testing import dynamo_graph

Check = Callable[..., SplitPlan]
ps_test = torch.ops.ps_test


def test_plan_split_exported_module_raises() -> None:
    class Model(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> object:
            return ps_test.mix(x)

    exported = torch.export.export(Model(), (torch.randn(3),)).module()
    assert isinstance(exported, GraphModule)

    with pytest.raises(UnsupportedGraphError, match="calling convention"):
        plan_split(exported, ["ps_test::mix"])


def test_plan_split_variadic_parameter_raises() -> None:
    graph = Graph()
    values = graph.placeholder("*values")
    graph.output(values)

    with pytest.raises(UnsupportedGraphError, match="variadic"):
        plan_split(GraphModule({}, graph))


def no_grad_over_cut(x: torch.Tensor) -> object:
    with torch.no_grad():
        return ps_test.mix(x.sin()).cos()


def autocast_over_cut(x: torch.Tensor) -> object:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return ps_test.mix(x.sin()).cos()


@pytest.mark.parametrize("function", [no_grad_over_cut, autocast_over_cut])
def test_plan_split_mode_reaching_over_a_cut_raises(
    function: Callable[[torch.Tensor], object],
) -> None:
    module, _ = dynamo_graph(function, torch.randn(3))

    with pytest.raises(UnsupportedGraphError, match="piece 0 changes a mode"):
        plan_split(module, ["ps_test::mix"])
    assert len(plan_split(module).pieces) == 1


def test_plan_split_modes_within_pieces_accepted(check_split: Check) -> None:
    def function(x: torch.Tensor) -> object:
        with torch.no_grad(), torch.no_grad():
            y = x.sin()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = y @ y
        y = ps_test.mix(y)
        with torch.no_grad():
            return y.cos()

    module, arguments = dynamo_graph(function, torch.randn(3, 3))

    assert len(check_split(module, ["ps_test::mix"], *arguments).pieces) == 3
