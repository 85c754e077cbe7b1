"""Rewrites that cost more than they save are not made, and the report has the figures."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from torch import Tensor

import fx_passes
from fx_passes.testing import assert_left_alone, assert_rewritten, capture_graph, random_tensors

if TYPE_CHECKING:
    from torch.fx import Node

npu = torch.ops.npu


def pattern(x: Tensor) -> dict[str, Tensor]:
    return {"y": torch.relu(x)}


def by_two_launches(match: fx_passes.Match, build: fx_passes.GraphBuilder) -> dict[str, Node]:
    x, value = match.bound["x"], match.value("y")
    sign = build.call("aten::gt.Scalar", x, 0)
    return {"y": build.call("aten::mul.Tensor", x, sign, val=value)}


def by_more_bytes(match: fx_passes.Match, build: fx_passes.GraphBuilder) -> dict[str, Node]:
    x, value = match.bound["x"], match.value("y")
    twice = build.call("aten::alias", x)
    return {"y": build.call("aten::maximum", x, twice, val=value)}


def rule(rewrite: object, **options: bool) -> fx_passes.Pipeline:
    made = fx_passes.Rule(name="mine", patterns=(pattern,), rewrite=rewrite, **options)  # type: ignore[arg-type]
    return fx_passes.Pipeline(
        passes=(fx_passes.NormalizePass(), fx_passes.RulePass(name="mine", rules=(made,)))
    )


def relu(x: Tensor) -> Tensor:
    return torch.relu(x) + 1


@pytest.mark.parametrize("dynamic", [None, {0: 0}])
def test_more_launches_are_refused_with_the_figures(dynamic: dict[int, int] | None) -> None:
    module = capture_graph(relu, [torch.ones(4, 8)], dynamic=dynamic)

    miss = assert_left_alone(rule(by_two_launches), module, "mine", "2 launches in place of 1")

    assert "bytes in place of" in miss.reason


@pytest.mark.parametrize("dynamic", [None, {0: 0}])
def test_more_bytes_by_as_many_launches_are_refused(dynamic: dict[int, int] | None) -> None:
    module = capture_graph(relu, [torch.ones(4, 8)], dynamic=dynamic)

    assert_left_alone(rule(by_more_bytes), module, "mine", "1 launches in place of 1")


def test_a_rule_may_accept_what_it_costs() -> None:
    module = capture_graph(relu, [torch.ones(4, 8)])

    assert_rewritten(rule(by_two_launches, accepts_cost=True), module, {"mine": 1})


def quantized(x: Tensor, scale: Tensor) -> Tensor:
    return npu.npu_quantize(npu.npu_swiglu(x), scale, None, torch.qint8, -1, False)  # type: ignore[no-any-return]


def test_swiglu_by_a_scale_that_is_given_stays_two_launches() -> None:
    tensors = random_tensors((4, 128), (64,), dtype=torch.bfloat16)
    module = capture_graph(quantized, tensors)

    assert_left_alone(
        fx_passes.default_npu_pipeline(), module, "fuse_swiglu_quant", "launches in place of 2"
    )


def test_swiglu_by_a_scale_that_the_module_holds_is_fused() -> None:
    x, scale = random_tensors((4, 128), (64,), dtype=torch.bfloat16)
    module = capture_graph(quantized, [x, scale])
    (node,) = (each for each in module.graph.find_nodes(op="placeholder") if "scale" in each.name)
    module.register_buffer("held", scale)
    with module.graph.inserting_before(node):
        held = module.graph.get_attr("held")
    held.meta.update(node.meta)
    node.replace_all_uses_with(held)
    module.graph.erase_node(node)

    report = fx_passes.default_npu_pipeline().run(module).report

    assert len(report.matches("fuse_swiglu_quant")) == 1
