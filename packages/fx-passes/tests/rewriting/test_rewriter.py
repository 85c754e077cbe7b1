"""Rules that break their contract, precedence, and the report."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
import torch
from torch import Tensor

import fx_passes
from fx_passes.testing import capture_graph, random_tensors

if TYPE_CHECKING:
    from torch.fx import GraphModule, Node


def _pattern(x: Tensor, y: Tensor) -> dict[str, Tensor]:
    return {"z": torch.ops.aten.silu(x) * y}


def _rewrite(match: fx_passes.Match, build: fx_passes.GraphBuilder) -> dict[str, Node]:
    return {"z": build.call("aten::maximum", match.bound["x"], match.bound["y"])}


RULE = fx_passes.Rule(name="silu_mul", patterns=(_pattern,), rewrite=_rewrite)


def module_of(count: int = 1) -> GraphModule:
    def function(x: Tensor, y: Tensor) -> Tensor:
        for _ in range(count):
            x = torch.nn.functional.silu(x) * y
        return x

    module = capture_graph(function, random_tensors((3, 4), (3, 4)))
    fx_passes.normalize_graph(module)
    return module


def test_apply_rules_rewrites_every_place_in_one_pass() -> None:
    module = module_of(4)

    (report,) = fx_passes.apply_rules(module.graph, (RULE,))

    assert len(report.matches) == 4
    calls = [node.target for node in module.graph.nodes if node.op == "call_function"]
    assert calls == [torch.ops.aten.maximum.default] * 4


def test_earlier_rules_take_precedence() -> None:
    module = module_of()
    second = replace(RULE, name="second")

    first_report, second_report = fx_passes.apply_rules(module.graph, (RULE, second))

    assert len(first_report.matches) == 1
    assert second_report.matches == ()


def test_metadata_of_the_new_node_is_inferred_if_it_is_not_given() -> None:
    module = module_of()

    fx_passes.apply_rules(module.graph, (RULE,))

    (node,) = module.graph.find_nodes(op="call_function", target=torch.ops.aten.maximum.default)
    assert node.meta["val"].shape == (3, 4)
    assert "stack_trace" in node.meta


def test_missing_operator_makes_the_rule_wait() -> None:
    module = module_of()
    rule = replace(RULE, operators=("npu::no_such_operator", "aten::silu"))

    (report,) = fx_passes.apply_rules(module.graph, (rule,))

    assert report.waiting_for == ("npu::no_such_operator",)
    assert report.matches == ()


def test_refusing_check_is_reported_with_reason_and_nodes() -> None:
    def check(match: fx_passes.Match) -> fx_passes.NoMatch:
        return fx_passes.NoMatch("not today", match.nodes)

    module = module_of()

    (report,) = fx_passes.apply_rules(module.graph, (replace(RULE, check=check),))

    (miss,) = report.near_misses
    assert miss.reason == "not today"
    assert len(miss.nodes) == 2


def test_raising_check_names_the_rule() -> None:
    def check(match: fx_passes.Match) -> None:
        raise KeyError("gone")

    with pytest.raises(fx_passes.RuleError, match=r"rule 'silu_mul'.*KeyError"):
        fx_passes.apply_rules(module_of().graph, (replace(RULE, check=check),))


def test_check_that_returns_something_else_names_the_rule() -> None:
    rule = replace(RULE, check=lambda match: True)  # type: ignore[arg-type,return-value]

    with pytest.raises(fx_passes.RuleError, match="expected None or a NoMatch, found True"):
        fx_passes.apply_rules(module_of().graph, (rule,))


def test_raising_rewrite_names_the_rule() -> None:
    rule = replace(RULE, rewrite=lambda match, build: {"z": 1 / 0})  # type: ignore[dict-item]

    with pytest.raises(fx_passes.RuleError, match=r"rule 'silu_mul'.*ZeroDivisionError"):
        fx_passes.apply_rules(module_of().graph, (rule,))


@pytest.mark.parametrize("returned", [{}, {"z": None}, {"other": None}, None, ()])
def test_rewrite_with_wrong_outputs_names_the_rule(returned: object) -> None:
    rule = replace(RULE, rewrite=lambda match, build: returned)  # type: ignore[arg-type,return-value]

    with pytest.raises(fx_passes.RuleError, match=r"rule 'silu_mul'.*outputs \['z'\]"):
        fx_passes.apply_rules(module_of().graph, (rule,))


def test_rewrite_that_uses_what_it_removes_names_the_rule() -> None:
    def rewrite(match: fx_passes.Match, build: fx_passes.GraphBuilder) -> dict[str, Node]:
        return {"z": build.call("aten::neg", match.nodes[0])}

    with pytest.raises(fx_passes.RuleError, match="which the match removes"):
        fx_passes.apply_rules(module_of().graph, (replace(RULE, rewrite=rewrite),))


def test_rewrite_with_an_unknown_operator_says_how_to_declare_it() -> None:
    def rewrite(match: fx_passes.Match, build: fx_passes.GraphBuilder) -> dict[str, Node]:
        return {"z": build.call("npu::no_such_operator", match.bound["x"])}

    with pytest.raises(fx_passes.RuleError, match="list it in the rule's `operators`"):
        fx_passes.apply_rules(module_of().graph, (replace(RULE, rewrite=rewrite),))


def test_rewrite_with_wrong_arguments_shows_the_schema() -> None:
    def rewrite(match: fx_passes.Match, build: fx_passes.GraphBuilder) -> dict[str, Node]:
        return {"z": build.call("aten::maximum", match.bound["x"])}

    with pytest.raises(fx_passes.RuleError, match=r"aten::maximum\(Tensor self"):
        fx_passes.apply_rules(module_of().graph, (replace(RULE, rewrite=rewrite),))


def test_rule_without_a_pattern_is_refused() -> None:
    with pytest.raises(fx_passes.PipelineError, match="has no pattern"):
        replace(RULE, patterns=())


def test_list_argument_next_to_a_bound_literal_is_reached_from_the_list() -> None:
    def pattern(x: Tensor, other: Tensor, dim: int) -> dict[str, Tensor]:
        first = torch.cat([torch.relu(x), other], dim)
        return {"first": first, "second": torch.cat([torch.sigmoid(x), other], dim)}

    def check(match: fx_passes.Match) -> fx_passes.NoMatch:
        return fx_passes.NoMatch(f"found along {match.bound['dim']}")

    def function(x: Tensor, other: Tensor) -> tuple[Tensor, Tensor]:
        return torch.cat([x.relu(), other], 1), torch.cat([x.sigmoid(), other], 1)

    rule = fx_passes.Rule(name="pair", patterns=(pattern,), check=check, rewrite=_rewrite)
    module = capture_graph(function, [torch.ones(2, 2), torch.ones(2, 2)])
    fx_passes.normalize_graph(module)

    (report,) = fx_passes.apply_rules(module.graph, (rule,))

    assert [miss.reason for miss in report.near_misses] == ["found along 1"]


@pytest.mark.parametrize("read", ["tensor", "results"])
def test_check_that_reads_an_unknown_value_is_a_near_miss(read: str) -> None:
    module = module_of()
    for node in module.graph.nodes:
        node.meta.pop("val", None)
        node.meta.pop("example_value", None)

    def check(match: fx_passes.Match) -> fx_passes.NoMatch | None:
        getattr(match, read)("x")
        return None

    (report,) = fx_passes.apply_rules(module.graph, (replace(RULE, check=check),))

    assert [miss.reason for miss in report.near_misses] == ["no tensor metadata for `x`"]
    assert report.matches == ()


@pytest.mark.parametrize("read", ["tensor", "results", "node"])
def test_rewrite_that_reads_what_is_not_there_names_it(read: str) -> None:
    def pattern(x: Tensor, factor: float) -> dict[str, Tensor]:
        return {"z": x * factor}

    def rewrite(match: fx_passes.Match, build: fx_passes.GraphBuilder) -> dict[str, Node]:
        del build
        return {"z": getattr(match, read)("factor")}

    module = capture_graph(lambda x: x * 2.0, random_tensors((3, 4)))
    fx_passes.normalize_graph(module)
    rule = fx_passes.Rule(name="times", patterns=(pattern,), rewrite=rewrite)

    with pytest.raises(fx_passes.errors.RuleError, match="`factor`"):
        fx_passes.apply_rules(module.graph, (rule,))
