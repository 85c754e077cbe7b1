"""Names of operators."""

from __future__ import annotations

import pytest
import torch
from torch._higher_order_ops.auto_functionalize import auto_functionalized
from torch.fx import Graph

from piecewise_split import SplittingOpError
from piecewise_split.operator_names import (
    answers_to,
    called_operator,
    packet_name,
    parse_operator_name,
)

aten = torch.ops.aten


@pytest.mark.parametrize(
    ("written", "canonical"),
    [
        ("aten::mm", "aten::mm"),
        ("aten::add.Tensor", "aten::add.Tensor"),
        ("aten.mm", "aten::mm"),
        ("aten.add.Tensor", "aten::add.Tensor"),
        ("torch.ops.aten.mm", "aten::mm"),
        (aten.mm, "aten::mm"),
        (aten.add.Tensor, "aten::add.Tensor"),
        (aten.mm.default, "aten::mm.default"),
    ],
)
def test_parse_operator_name_accepted_form_canonical(written: str, canonical: str) -> None:
    assert parse_operator_name(written) == canonical


@pytest.mark.parametrize("written", ["mm", "", "aten::", "a::b::c", "a.b.c.d", "aten::mm.", "a b"])
def test_parse_operator_name_malformed_raises(written: str) -> None:
    with pytest.raises(SplittingOpError, match="expected 'ns::op'"):
        parse_operator_name(written)


def test_answers_to_name_without_overload_matches_packet_and_every_overload() -> None:
    assert answers_to(aten.add, "aten::add")
    assert answers_to(aten.add.Tensor, "aten::add")
    assert answers_to(aten.add.Scalar, "aten::add")
    assert not answers_to(aten.add_.Tensor, "aten::add")


def test_answers_to_name_with_overload_matches_that_overload_only() -> None:
    assert answers_to(aten.add.Tensor, "aten::add.Tensor")
    assert not answers_to(aten.add.Scalar, "aten::add.Tensor")


def test_answers_to_packet_with_one_overload_matches_it_by_name() -> None:
    assert answers_to(torch.ops.ps_test.mix, "ps_test::mix.default")
    assert not answers_to(torch.ops.ps_test.mix, "ps_test::mix.other")


def test_answers_to_packet_with_several_overloads_raises() -> None:
    with pytest.raises(SplittingOpError, match=r"2 \(default, by\)"):
        answers_to(torch.ops.ps_test.scale, "ps_test::scale.by")


def test_called_operator_functionalized_call_is_the_inner_operator() -> None:
    graph = Graph()
    x = graph.placeholder("x")
    inner = torch.ops.ps_test.attention.default
    node = graph.call_function(auto_functionalized, (inner,), {"q": x, "out": x, "layer": "a"})

    assert called_operator(node) is inner


def test_called_operator_other_nodes_none() -> None:
    graph = Graph()
    x = graph.placeholder("x")

    assert called_operator(x) is None
    assert called_operator(graph.call_function(torch.sin, (x,))) is None
    assert called_operator(graph.call_method("sin", (x,))) is None


def test_packet_name_overload_dropped() -> None:
    assert packet_name(aten.add.Tensor) == packet_name(aten.add) == "aten::add"
