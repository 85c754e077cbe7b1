"""Third-party replacements: one that fails is skipped, and examples fix no dtype."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from torch import Tensor

import fx_passes
from fx_passes.inductor import MatchForExtraCheck, rule_from_replacement
from fx_passes.testing import GraphLevel, assert_rewritten, capture_graph, random_tensors

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch.fx import Node

LEVELS: list[GraphLevel] = ["dynamo", "aten"]
aten = torch.ops.aten


def scaled_sum(x: Tensor, y: Tensor) -> Tensor:
    total: Tensor = aten.add(aten.mul(x, 2.5), y)
    return total


def sum_in_float32(x: Tensor, y: Tensor) -> Tensor:
    return torch.add(y.float(), x.float(), alpha=2.5).to(x.dtype)


def fails_on_examples(x: Tensor, y: Tensor) -> Tensor:
    raise ValueError("sizes 5 and 4")


def pipeline_of(*rules: fx_passes.Rule) -> fx_passes.Pipeline:
    passes = (fx_passes.NormalizePass(), fx_passes.RulePass(name="rules", rules=rules))
    return fx_passes.Pipeline(passes=passes, observers=(fx_passes.VerifyObserver(),))


def rule_of(
    replacement: Callable[..., object] = sum_in_float32,
    extra_check: Callable[[MatchForExtraCheck], bool] | None = None,
    name: str = "rule",
    dtype: torch.dtype = torch.float32,
) -> fx_passes.Rule:
    examples = [torch.empty(3, 4, dtype=dtype), torch.empty(3, 4, dtype=dtype)]
    return rule_from_replacement(scaled_sum, replacement, examples, extra_check, name=name)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64, torch.float32])
def test_examples_in_float32_serve_graphs_of_other_dtypes(
    level: GraphLevel, dtype: torch.dtype
) -> None:
    inputs = random_tensors((6, 8), (6, 8), dtype=dtype, device="cpu")
    module = capture_graph(scaled_sum, inputs, level=level)

    assert_rewritten(pipeline_of(rule_of()), module, {"rule": 1})

    (result,) = module(*inputs)
    assert result.dtype == dtype
    assert torch.equal(result, sum_in_float32(*inputs))


def test_functions_are_traced_once_for_each_choice_of_dtypes() -> None:
    traced: list[torch.dtype] = []

    def replacement(x: Tensor, y: Tensor) -> Tensor:
        traced.append(x.dtype)
        return torch.add(y, x, alpha=2.5)

    rules = pipeline_of(rule_of(replacement))
    for dtype in (torch.bfloat16, torch.float32, torch.bfloat16, torch.float32):
        inputs = random_tensors((6, 8), (6, 8), dtype=dtype, device="cpu")
        assert_rewritten(rules, capture_graph(scaled_sum, inputs), {"rule": 1})

    assert traced == [torch.float32, torch.bfloat16]


def test_search_that_depends_on_the_dtype_gives_the_reason() -> None:
    def search(x: Tensor) -> Tensor:
        cast: Tensor = aten._to_copy(aten.neg(x), dtype=x.dtype)
        return cast

    rule = rule_from_replacement(search, lambda x: x.neg(), [torch.empty(3)], name="rule")
    module = capture_graph(
        lambda x: aten._to_copy(aten.neg(x), dtype=torch.float32),
        random_tensors((3,), dtype=torch.bfloat16, device="cpu"),
    )

    result = pipeline_of(rule).run(module)

    (miss,) = result.report.near_misses("rule")
    assert "`x` is torch.bfloat16, other than the example input" in miss.reason


def test_replacement_that_cannot_be_traced_is_left_out_and_reported() -> None:
    rules = pipeline_of(rule_of(fails_on_examples, name="failing"), rule_of(name="other"))
    module = capture_graph(scaled_sum, random_tensors((3, 4), (3, 4), device="cpu"))

    result = rules.run(module)

    failing, other = list(result.report.rule_reports())[:2]
    assert "sizes 5 and 4" in failing.left_out
    assert "'failing'" in failing.left_out
    assert len(other.matches) == 1
    assert "  failing: left out, tracing" in str(result.report)


def test_hash_of_what_is_left_out_is_stable_and_another_than_of_what_is_not() -> None:
    left_out = [pipeline_of(rule_of(fails_on_examples)).hash() for _ in range(2)]

    assert left_out[0] == left_out[1]
    assert left_out[0] != pipeline_of(rule_of()).hash()


def test_examples_that_cannot_be_made_leave_the_rule_out() -> None:
    def examples() -> list[Tensor]:
        raise RuntimeError("no such device")

    rule = rule_from_replacement(scaled_sum, sum_in_float32, examples, name="rule")
    module = capture_graph(scaled_sum, random_tensors((3, 4), (3, 4), device="cpu"))

    result = pipeline_of(rule).run(module)

    (report,) = result.report.rule_reports("rule")
    assert "making example inputs: RuntimeError: no such device" in report.left_out


def test_extra_check_that_raises_refuses_the_match() -> None:
    def extra_check(match: MatchForExtraCheck) -> bool:
        return bool(match.no_such_thing)  # type: ignore[attr-defined]

    module = capture_graph(scaled_sum, random_tensors((3, 4), (3, 4), device="cpu"))

    result = pipeline_of(rule_of(extra_check=extra_check)).run(module)

    (miss,) = result.report.near_misses("rule")
    assert "extra_check raised AttributeError" in miss.reason


def test_optional_rule_whose_rewrite_fails_at_a_match_leaves_the_graph_alone() -> None:
    def pattern(x: Tensor) -> dict[str, Tensor]:
        return {"y": aten.neg(aten.neg(x))}

    def rewrite(match: fx_passes.Match, build: fx_passes.GraphBuilder) -> dict[str, Node]:
        build.call("aten::mm", build.call("aten::abs", match.bound["x"]), match.bound["x"])
        return {}

    rule = fx_passes.Rule(name="rule", patterns=(pattern,), rewrite=rewrite, optional=True)
    module = capture_graph(lambda x: x.neg().neg(), random_tensors((3,), device="cpu"))
    fx_passes.normalize_graph(module)
    before = str(module.graph)

    result = pipeline_of(rule).run(module)

    assert str(module.graph) == before
    (miss,) = result.report.near_misses("rule")
    assert "the replacement fails here" in miss.reason
