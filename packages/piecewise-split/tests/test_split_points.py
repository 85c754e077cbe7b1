"""Which nodes cut."""

from __future__ import annotations

import pytest
import torch
from torch.fx import Graph

from piecewise_split import SplittingOpAbsentError, find_split_points

ps_test = torch.ops.ps_test


@pytest.fixture
def graph() -> Graph:
    graph = Graph()
    x = graph.placeholder("x")
    a = graph.call_function(ps_test.mix, (x,))
    b = graph.call_function(ps_test.mix.default, (a,))
    c = graph.call_function(ps_test.scale.by, (b, 2.0))
    graph.output(graph.call_function(ps_test.scale.default, (c,)))
    return graph


def found(graph: Graph, *names: object) -> dict[str, str]:
    points = find_split_points(graph, names)  # type: ignore[arg-type]
    return {node.name: name for node, name in points.operators.items()}


def test_find_split_points_packet_and_overload_both_found(graph: Graph) -> None:
    assert found(graph, "ps_test::mix") == {"mix": "ps_test::mix", "mix_default": "ps_test::mix"}


def test_find_split_points_one_overload_named_only_it_found(graph: Graph) -> None:
    assert found(graph, ps_test.scale.by) == {"scale_by": "ps_test::scale.by"}


def test_find_split_points_repeated_names_counted_once(graph: Graph) -> None:
    points = find_split_points(graph, ["ps_test::mix", "ps_test.mix", ps_test.mix])

    assert points.requested == ("ps_test::mix",)


def test_find_split_points_absent_name_raises_with_near_names(graph: Graph) -> None:
    with pytest.raises(SplittingOpAbsentError, match="ps_test::mix") as caught:
        find_split_points(graph, ["ps_test::mixx", "ps_test::scale"])

    assert caught.value.absent == ("ps_test::mixx",)
    assert "near names in the graph: ps_test::mix" in str(caught.value)
    assert "allow_absent=True" in str(caught.value)


def test_find_split_points_absent_name_allowed_is_reported(graph: Graph) -> None:
    points = find_split_points(graph, ["other::op", "ps_test::mix"], allow_absent=True)

    assert points.absent == ("other::op",)
    assert len(points.operators) == 2


def test_find_split_points_general_and_special_name_both_present(graph: Graph) -> None:
    points = find_split_points(graph, ["ps_test::scale", "ps_test::scale.by"])

    assert points.absent == ()
    assert set(points.operators.values()) == {"ps_test::scale"}


def test_find_split_points_by_predicate_besides_names(graph: Graph) -> None:
    def splits_at(node: torch.fx.Node) -> str | None:
        return "scales" if "scale" in node.name else None

    points = find_split_points(graph, [ps_test.mix.default], splits_at=splits_at)

    assert {node.name: name for node, name in points.operators.items()} == {
        "mix": "ps_test::mix.default",
        "mix_default": "ps_test::mix.default",
        "scale_by": "scales",
        "scale_default": "scales",
    }
    assert points.requested == ("ps_test::mix.default",)
