"""Random graphs with views, writes and several users, under random rules: values stay the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from hypothesis import HealthCheck, Phase, given, note, settings
from hypothesis import strategies as st

import fx_passes
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
