"""Random graphs with views, writes and several users, under random rules: values stay the same."""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING

import torch
from hypothesis import HealthCheck, Phase, given, note, settings
from hypothesis import strategies as st
from matching.random_graphs import RANDOM_GRAPH_SHAPE, random_graph, random_rule

import fx_passes
from fx_passes.testing import assert_same_values, random_tensors

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


DTYPES = (torch.float32, torch.bfloat16, torch.int64, torch.int32, torch.int8)
SHARING = fx_passes.Rule(name="clone", patterns=(_clone,), rewrite=_its_input, shares_memory=True)


def _run(module: GraphModule, dtype: torch.dtype) -> tuple[object, list[Tensor], list[object]]:
    """Return results, inputs, and their visible properties other than the elements."""
    inputs = random_tensors(*[RANDOM_GRAPH_SHAPE] * 3, dtype=torch.float32, device="cpu")
    inputs = [(each * 4).to(dtype) for each in inputs]
    results = module(*inputs)
    everything = [*results, *inputs]
    seen: list[object] = [(each.stride(), each.storage_offset()) for each in everything]
    for each, other in combinations(everything, 2):
        seen.append((each is other, each.data_ptr() == other.data_ptr()))
    return results, inputs, seen


def _check(random: Random, *, rules: int) -> int:
    dtype = random.choice(DTYPES)
    module = random_graph(random, steps=random.randint(3, 16), dtype=dtype)
    drawn = [random_rule(random, f"rule{number}") for number in range(rules)]
    drawn.insert(random.randint(0, rules), SHARING)
    note(module.code)
    for rule in drawn:
        note(f"{rule.name}: {rule.compiled[0]}")
    *expected, expected_seen = _run(module, dtype)
    fx_passes.normalize_graph(module)

    reports = fx_passes.apply_rules(module.graph, drawn)

    module.graph.lint()
    module.recompile()
    note(module.code)
    *found, found_seen = _run(module, dtype)
    assert_same_values(tuple(found), tuple(expected))
    assert found_seen == expected_seen
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
