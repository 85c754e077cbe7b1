"""What must hold after any rewrite, in one call."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fx_passes.reports.observers import VerifyObserver

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch.fx import GraphModule

    from fx_passes.pipeline import Pipeline
    from fx_passes.reports.report import NearMiss, Report


def assert_rewritten(
    pipeline: Pipeline, graph_module: GraphModule, expected: Mapping[str, int]
) -> Report:
    """Run a pipeline and check everything that must hold after a rewrite.

    Exactly the expected rules matched, each as often as expected; the graph is well formed; every
    value still has its metadata and what was a stack trace is one; a second run changes nothing.

    Args:
        pipeline: The pipeline.
        graph_module: The module, rewritten in place.
        expected: How often each rule must match; rules left out must not.

    Returns:
        The report of the first run.

    Raises:
        AssertionError: Something of this does not hold; the message has the report.
    """
    traced = any("stack_trace" in node.meta for node in graph_module.graph.nodes)
    before = {node.name for node in graph_module.graph.nodes}
    report = pipeline.observed_by(VerifyObserver()).run(graph_module).report
    found = {rule: count for rule, count in report.match_counts().items() if count}
    wanted = {rule: count for rule, count in expected.items() if count}
    if found != wanted:
        raise AssertionError(f"expected the matches {wanted}, found {found}\n{report}")
    for node in graph_module.graph.nodes:
        new = node.op == "call_function" and node.name not in before
        if new and traced and "stack_trace" not in node.meta:
            raise AssertionError(f"the new node `{node.name}` has no stack trace\n{report}")
    second = pipeline.run(graph_module)
    if second.modified:
        raise AssertionError(f"a second run changed the graph\n{second.report}")
    return report


def assert_left_alone(
    pipeline: Pipeline, graph_module: GraphModule, rule: str, reason: str
) -> NearMiss:
    """Run a pipeline and check that one rule did not match, and why.

    Args:
        pipeline: The pipeline.
        graph_module: The module.
        rule: Name of the rule.
        reason: A part of the no-match reason.

    Returns:
        The near miss with that reason.

    Raises:
        AssertionError: The rule matched, or no near miss of it has that reason.
    """
    report = pipeline.observed_by(VerifyObserver()).run(graph_module).report
    if report.matches(rule):
        raise AssertionError(f"the rule {rule!r} matched\n{report}")
    for miss in report.near_misses(rule):
        if reason in miss.reason:
            return miss
    raise AssertionError(f"no near miss of {rule!r} says {reason!r}\n{report}")
