"""Random graphs with views, writes and several users, under random rules: values stay the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from hypothesis import HealthCheck, Phase, given, note, settings
from hypothesis import strategies as st

import fx_passes
from fx_passes.matching.match import Match
from fx_passes.matching.matcher import Matcher
from fx_passes.normal_form.operator_signature import SignatureTable
from fx_passes.testing import (
    RANDOM_GRAPH_SHAPE,
    assert_same_values,
    random_graph,
    random_rule,
    random_tensors,
)

if TYPE_CHECKING:
    from random import Random

    import pytest
    from torch import Tensor
    from torch.fx import GraphModule, Node


def _clone(x: Tensor) -> dict[str, Tensor]:
    return {"y": torch.ops.aten.clone(x)}


def _its_input(match: fx_passes.Match, build: fx_passes.GraphBuilder) -> dict[str, Node]:
    del build
    x = match.bound["x"]
    assert not isinstance(x, (int, float))
    return {"y": x}  # type: ignore[dict-item]


SHARING = fx_passes.Rule(name="clone", patterns=(_clone,), rewrite=_its_input, shares_memory=True)


def _run(module: GraphModule) -> tuple[object, list[Tensor]]:
    inputs = random_tensors(*[RANDOM_GRAPH_SHAPE] * 3, dtype=torch.float32, device="cpu")
    return module(*inputs), inputs


def _check(random: Random, *, rules: int) -> int:
    module = random_graph(random, steps=random.randint(3, 16))
    drawn = [random_rule(random, f"rule{number}") for number in range(rules)]
    drawn.insert(random.randint(0, rules), SHARING)
    note(module.code)
    for rule in drawn:
        note(f"{rule.name}: {rule.compiled[0]}")
    expected = _run(module)
    fx_passes.normalize_graph(module)

    reports = fx_passes.apply_rules(module.graph, drawn)

    module.graph.lint()
    module.recompile()
    note(module.code)
    assert_same_values(_run(module), expected)
    return sum(len(report.matches) for report in reports)


def test_rewriting_random_graphs_keeps_values_and_side_effects(
    pytestconfig: pytest.Config,
) -> None:
    matched = 0

    @settings(
        max_examples=pytestconfig.getoption("examples"),
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
    )
    @given(st.randoms(use_true_random=False))
    def check(random: Random) -> None:
        nonlocal matched
        matched += _check(random, rules=3)

    check()

    # Else the graphs and rules would show nothing.
    assert matched > pytestconfig.getoption("examples") // 4


@settings(max_examples=100)
@given(st.randoms(use_true_random=False))
def test_first_try_in_straight_line_finds_what_the_search_finds(random: Random) -> None:
    module = random_graph(random)
    fx_passes.normalize_graph(module)
    rule = random_rule(random, "rule")
    matcher = Matcher(rule.compiled[0], module.graph, SignatureTable())
    for anchor in matcher.candidates():
        assert matcher._search is not None
        values = matcher._search(anchor, SignatureTable().arguments)
        by_trial = matcher._match_by_trial(anchor)
        if values is None:
            continue
        found = matcher._result(anchor, values)
        assert isinstance(by_trial, Match)
        assert (found.bound, found.nodes, found.outputs) == (
            by_trial.bound,
            by_trial.nodes,
            by_trial.outputs,
        )
