"""Requirements on every fusion, tested on a table of graphs as engines emit them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from torch import Tensor

import fx_passes
from fusions.cases import FUSION_CASES
from fx_passes.testing import (
    GraphLevel,
    assert_left_alone,
    assert_rewritten,
    assert_same_values,
    capture_graph,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch.fx import GraphModule, Node

    from fusions.fusion_case import FusionCase, NearMissCase

TOKENS = 6
# For the rule that reads vLLM-Ascend's operator.
pytestmark = pytest.mark.usefixtures("rotary_embedding")


def name_of(case: FusionCase) -> str:
    return f"{case.rule}-{case.name}"


def captured(
    case: FusionCase, dtype: torch.dtype, level: GraphLevel, *, symbolic: bool = False
) -> GraphModule:
    tensors = case.inputs(dtype, "meta", TOKENS)
    dynamic = case.tokens if symbolic else None
    return capture_graph(case.function, tensors, level=level, dynamic=dynamic)


def near_misses() -> Iterator[object]:
    for case in FUSION_CASES:
        for near_miss in case.near_misses:
            yield pytest.param(case, near_miss, id=f"{name_of(case)}-{near_miss.name}")


every_case = pytest.mark.parametrize("case", FUSION_CASES, ids=name_of)


def test_every_fusion_has_a_case_and_a_near_miss() -> None:
    rules = {
        rule.name
        for each in fx_passes.default_npu_pipeline().passes
        if isinstance(each, fx_passes.RulePass)
        for rule in each.rules
    }

    assert rules <= {case.rule for case in FUSION_CASES}
    assert {case.rule for case in FUSION_CASES if case.near_misses} >= rules


def test_names_of_cases_are_unique() -> None:
    names = [name_of(case) for case in FUSION_CASES]

    assert len(names) == len(set(names))


@every_case
def test_graph_of_aten_is_fused_once_in_every_dtype(case: FusionCase) -> None:
    for dtype in case.dtypes if "aten" in case.levels else ():
        # Checks lint, metadata, stack traces and that a second run changes nothing.
        assert_rewritten(
            case.whatever_it_costs(), captured(case, dtype, "aten"), case.expected("aten")
        )


@every_case
def test_symbolic_number_of_tokens_is_fused(case: FusionCase) -> None:
    for level in case.levels:
        module = captured(case, case.dtypes[0], level, symbolic=True)

        assert_rewritten(case.whatever_it_costs(), module, case.expected(level))

        for result in next(iter(reversed(module.graph.nodes))).all_input_nodes:
            sizes = result.meta["val"].shape
            assert any(isinstance(size, torch.SymInt) for size in sizes), (
                f"`{result.name}` of {level} has lost its symbolic size: {list(sizes)}"
            )


def layout(value: Tensor) -> tuple[object, ...]:
    """Return the recorded properties of a tensor other than its elements."""
    return value.dtype, tuple(value.shape), value.stride(), value.storage_offset()


class Layouts(torch.fx.Interpreter):
    """Runs a graph and notes where a value is laid out otherwise than the graph says.

    Of several results those that are used, each by the node that takes it.
    """

    def __init__(self, module: GraphModule) -> None:
        super().__init__(module)
        self.wrong: list[str] = []

    def run_node(self, n: Node) -> object:
        """Run a node and compare its result with the recorded layout."""
        value, recorded = super().run_node(n), n.meta.get("val")
        if (
            isinstance(value, Tensor)
            and isinstance(recorded, Tensor)
            and layout(value) != layout(recorded)
        ):
            self.wrong.append(f"{n.format_node()}: {layout(value)}, recorded {layout(recorded)}")
        return value


@pytest.mark.parametrize("device", ["meta", "npu"])
@every_case
def test_recorded_layouts_are_those_that_run(case: FusionCase, device: str) -> None:
    if case.missing_kernel and device == "npu":
        pytest.skip(f"the simulated device has no kernel: {case.missing_kernel}")
    for level in case.levels:
        module = captured(case, case.dtypes[0], level)
        case.whatever_it_costs().run(module)
        inputs = [
            torch.zeros(2**18, dtype=value.dtype, device=device).as_strided(
                value.shape, value.stride(), value.storage_offset()
            )
            for node in module.graph.find_nodes(op="placeholder")
            if isinstance(value := node.meta["val"], Tensor)
        ]
        run = Layouts(module)

        run.run(*inputs)

        assert run.wrong == [], level


@pytest.mark.parametrize(("case", "near_miss"), list(near_misses()))
def test_near_miss_is_left_alone_with_its_reason(case: FusionCase, near_miss: NearMissCase) -> None:
    tensors = (near_miss.inputs or case.inputs)(near_miss.dtype, "meta", TOKENS)
    module = capture_graph(near_miss.function or case.function, tensors, level=case.levels[0])

    if near_miss.reason:
        assert_left_alone(case.whatever_it_costs(), module, case.rule, near_miss.reason)
    else:
        assert not case.whatever_it_costs().run(module).report.matches(case.rule)


def copy_of(module: GraphModule) -> GraphModule:
    graph = torch.fx.Graph()
    graph.output(graph.graph_copy(module.graph, {}))
    return torch.fx.GraphModule(module, graph)


def inner_values(case: FusionCase, module: GraphModule) -> list[str]:
    """Return names of the values that only nodes of a match use."""
    users = {node.name: {user.name for user in node.users} for node in module.graph.nodes}
    values = {node.name: node.meta.get("val") for node in module.graph.nodes}
    found: list[str] = []
    for match in case.whatever_it_costs().run(copy_of(module)).report.matches(case.rule):
        removed = set(match.removed)
        found += [
            name
            for name in match.removed
            if isinstance(values.get(name), Tensor) and users[name] and users[name] <= removed
        ]
    return found


@every_case
def test_inner_value_that_is_used_elsewhere_is_still_computed(case: FusionCase) -> None:
    module = captured(case, case.dtypes[0], case.levels[0])
    fx_passes.normalize_graph(module)
    for name in inner_values(case, module):
        wanting = also_returning(module, name)

        report = case.whatever_it_costs().run(wanting).report

        wanting.graph.lint()
        returned = next(iter(reversed(wanting.graph.nodes))).all_input_nodes
        # Of a value that the rule takes for a result, or else there is no match.
        assert name in {node.name for node in returned}
        if not report.matches(case.rule) and reports_near_misses(case):
            reasons = [miss.reason for miss in report.near_misses(case.rule)]
            others = [rule for rule in case.expected() if rule != case.rule]
            assert others or any("inside the match is used by" in each for each in reasons)


def reports_near_misses(case: FusionCase) -> bool:
    return any(
        rule.reports_near_misses
        for each in case.whatever_it_costs().passes
        if isinstance(each, fx_passes.RulePass)
        for rule in each.rules
        if rule.name == case.rule
    )


def also_returning(module: GraphModule, name: str) -> GraphModule:
    """Return a copy of a graph that returns one of its values as well, as if it were used later."""
    changed = copy_of(module)
    nodes: dict[str, Node] = {node.name: node for node in changed.graph.nodes}
    output = next(iter(reversed(changed.graph.nodes)))
    (results,) = output.args
    assert isinstance(results, (list, tuple))
    output.args = ((*results, nodes[name]),)
    changed.recompile()
    return changed


@every_case
def test_values_on_the_device_are_those_of_the_unfused_graph(case: FusionCase) -> None:
    """With a symbolic number of tokens, and every result used twice."""
    for dtype in case.dtypes if "dynamo" in case.levels else ():
        reports: list[fx_passes.Report] = []

        def function(*tensors: Tensor) -> tuple[Tensor, ...]:
            results = case.function(*tensors)
            each = results if isinstance(results, tuple) else (results,)
            return (*each, *(value.clone() for value in each))

        def backend(module: GraphModule, inputs: list[object]) -> Callable[..., object]:
            del inputs
            reports.append(assert_rewritten(case.whatever_it_costs(), module, case.expected()))  # noqa: B023 - called in the same turn
            return module.forward

        torch._dynamo.reset()
        compiled = torch.compile(function, backend=backend, fullgraph=True)
        for tokens in (TOKENS, TOKENS + 5):
            tensors = case.inputs(dtype, "npu", tokens)
            for position, dimension in case.tokens.items():
                torch._dynamo.mark_dynamic(tensors[position], dimension)
            if case.missing_kernel:
                with pytest.raises(RuntimeError, match=case.missing_kernel):
                    compiled(*tensors)
                break
            with torch.no_grad():
                actual = compiled(*tensors)
            expected = function(*tensors)
            assert_same_values(actual, expected, roundings=case.roundings, dtype=dtype)
        assert len(reports) == 1, "the second number of tokens compiled again"
