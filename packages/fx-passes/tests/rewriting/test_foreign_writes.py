"""A rewrite writes only memory that it allocated itself, however the write is expressed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

import fx_passes

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch.fx import Node

    Rewrite = Callable[[fx_passes.Match, fx_passes.GraphBuilder], dict[str, Node]]


def _pattern(x: Tensor) -> dict[str, Tensor]:
    return {"y": torch.ops.aten.sinh(x)}


def _writing(*calls: tuple[object, ...]) -> Rewrite:
    """Return a rewrite that calls operators one after the other, the first of `x`."""

    def rewrite(match: fx_passes.Match, build: fx_passes.GraphBuilder) -> dict[str, Node]:
        value = match.bound["x"]
        for target, *arguments in calls:
            value = build.call(str(target), value, *arguments)
        return {"y": value}  # type: ignore[dict-item]

    return rewrite


def _function(x: Tensor) -> Tensor:
    doubled = x * 2
    return doubled + torch.sinh(doubled)


ADD = ("aten::add_.Tensor", 1)
FOREIGN: list[tuple[tuple[object, ...], ...]] = [
    (ADD,),
    (("aten::view", [8]), ADD),
    (("aten::slice.Tensor", 0, 0, 8), ADD),
    (("aten::reshape", [8]), ADD),
    (("aten::contiguous",), ADD),
    (("aten::to.dtype", torch.float32), ADD),
    (("aten::unsqueeze", 0), ("aten::squeeze",), ADD),
    (("aten::view", [8]), ("aten::detach",), ("aten::fill_.Scalar", 1)),
]
OWN: list[tuple[tuple[object, ...], ...]] = [
    (("aten::clone",), ADD),
    (("aten::clone",), ("aten::view", [8]), ADD),
    (("aten::sin",), ADD, ("aten::view", [8])),
    (("aten::to.dtype", torch.float64), ADD, ("aten::to.dtype", torch.float32)),
]


def _pipeline(rewrite: Rewrite) -> fx_passes.Pipeline:
    rule = fx_passes.Rule(name="r", patterns=(_pattern,), rewrite=rewrite, accepts_cost=True)
    return fx_passes.Pipeline(passes=(fx_passes.RulePass(name="rules", rules=(rule,)),))


@pytest.mark.parametrize("calls", FOREIGN)
def test_write_of_an_input_of_the_match_is_refused(calls: tuple[tuple[object, ...], ...]) -> None:
    module = make_fx(_function, tracing_mode="fake")(torch.arange(8.0))

    with pytest.raises(fx_passes.RuleError, match=r"only memory that it allocated.*aten::clone"):
        _pipeline(_writing(*calls)).run(module)


@pytest.mark.parametrize("calls", OWN)
def test_write_of_own_memory_is_taken(calls: tuple[tuple[object, ...], ...]) -> None:
    module = make_fx(_function, tracing_mode="fake")(torch.arange(8.0))

    report = _pipeline(_writing(*calls)).run(module).report

    assert report.match_counts() == {"r": 1}
    x = torch.arange(8.0)
    module(x)
    assert torch.equal(x, torch.arange(8.0))
