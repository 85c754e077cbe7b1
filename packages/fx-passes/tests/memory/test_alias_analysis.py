"""Which values share memory, and who writes it."""

from __future__ import annotations

import operator

import pytest
import torch
from torch.fx import Graph, Node

from fx_passes.memory.alias_analysis import AliasAnalysis
from fx_passes.memory.effect import EffectTable

aten = torch.ops.aten


def tensor_placeholder(graph: Graph, name: str) -> Node:
    node = graph.placeholder(name)
    node.meta["val"] = torch.empty(4, 4, device="meta")
    return node


def unknown_function(*arguments: object) -> None:
    del arguments


def test_views_share_memory_with_their_base() -> None:
    graph = Graph()
    x = tensor_placeholder(graph, "x")
    view = graph.call_function(aten.view.default, (x, [16]))
    parts = graph.call_function(aten.split.Tensor, (view, 8))
    part = graph.call_function(operator.getitem, (parts, 1))
    copy = graph.call_function(aten.clone.default, (part,))
    total = graph.call_function(aten.add.Tensor, (copy, copy))
    graph.output(total)

    aliases = AliasAnalysis(graph)

    assert aliases.group(part) is aliases.group(x)
    assert aliases.group(copy) is not aliases.group(x)
    assert aliases.group(total) is total
    assert aliases.group(part) is not part
    assert not aliases.writes_anywhere()


@pytest.mark.parametrize("spelling", ["method", "operator", "storage", "storage operator"])
def test_tensor_set_to_the_memory_of_another_shares_it(spelling: str) -> None:
    graph = Graph()
    x, y = tensor_placeholder(graph, "x"), tensor_placeholder(graph, "y")
    if spelling == "method":
        setting = graph.call_method("set_", (x, y))
    elif spelling == "operator":
        setting = graph.call_function(aten.set_.source_Tensor, (x, y))
    else:
        storage = graph.call_method("untyped_storage", (y,))
        if spelling == "storage":
            setting = graph.call_method("set_", (x, storage))
        else:
            setting = graph.call_function(aten.set_.source_Storage, (x, storage))
    first = graph.call_function(aten.neg.default, (setting,))
    write = graph.call_function(aten.zero_.default, (y,))
    last = graph.call_function(aten.neg.default, (x,))
    graph.output((first, last))

    aliases = AliasAnalysis(graph)

    assert aliases.writer_between(first, last, (x,)) is write


def test_write_through_a_view_reaches_the_base_and_nothing_else() -> None:
    graph = Graph()
    x, y = tensor_placeholder(graph, "x"), tensor_placeholder(graph, "y")
    row = graph.call_function(aten.select.int, (x, 0, 0))
    write = graph.call_function(aten.zero_.default, (row,))
    last = graph.call_function(aten.neg.default, (x,))
    graph.output(last)

    aliases = AliasAnalysis(graph)

    assert aliases.writer_between(row, last, (x,)) is write
    assert aliases.writer_between(row, last, (y,)) is None
    assert aliases.writer_between(last, None, (x,)) is None
    assert aliases.any_writer_between(row, last) is write
    assert aliases.any_writer_between(last, last) is None


def test_unknown_function_is_a_barrier_for_everything() -> None:
    graph = Graph()
    x, y = tensor_placeholder(graph, "x"), tensor_placeholder(graph, "y")
    call = graph.call_function(unknown_function, (x,))
    graph.output(y)

    aliases = AliasAnalysis(graph)

    assert aliases.writer_between(x, None, (x,)) is call
    assert aliases.writer_between(x, None, (y,)) is call


def test_function_without_tensors_is_a_barrier_for_everything() -> None:
    graph = Graph()
    x = tensor_placeholder(graph, "x")
    call = graph.call_function(torch._C._set_grad_enabled, (False,))
    graph.output(x)

    assert AliasAnalysis(graph).writer_between(x, None, (x,)) is call


def test_effects_of_dynamo_level_calls() -> None:
    graph = Graph()
    x, y = tensor_placeholder(graph, "x"), tensor_placeholder(graph, "y")
    table = EffectTable()

    def writes(node: Node) -> tuple[Node, ...]:
        return table.of(node).writes

    assert writes(graph.call_function(operator.iadd, (x, y))) == (x,)
    assert writes(graph.call_function(operator.setitem, (x, 0, y))) == (x,)
    assert writes(graph.call_method("add_", (x, y))) == (x,)
    assert writes(graph.call_method("reshape", (x, -1))) == ()
    assert writes(graph.call_function(torch.add, (x, y))) == ()
    assert writes(graph.call_function(torch.add, (x, y), {"out": y})) == (y,)
    assert writes(graph.call_function(torch.nn.functional.relu, (x,), {"inplace": True})) == (x,)
    assert writes(graph.call_function(torch.nn.functional.relu, (x,))) == ()
    assert writes(graph.call_function(operator.add, (1, 2))) == ()
    assert writes(graph.call_function(aten.add_, (x, y))) == (x,)
    assert table.of(graph.call_method("reshape", (x, -1))).aliases == (x,)


def test_writes_are_seen_after_the_written_value_was_replaced() -> None:
    graph = Graph()
    x = tensor_placeholder(graph, "x")
    old = graph.call_function(aten.neg.default, (x,))
    view = graph.call_function(aten.view.default, (old, [16]))
    write = graph.call_function(aten.zero_.default, (view,))
    graph.output(view)
    aliases = AliasAnalysis(graph)
    assert aliases.group(view) is old
    with graph.inserting_before(old):
        new = graph.call_function(aten.clone.default, (x,))

    old.replace_all_uses_with(new)
    graph.erase_node(old)
    aliases.replace(old, new)

    assert aliases.writer_between(new, None, (new,)) is write
    assert aliases.writer_between(new, None, (x,)) is None


def test_value_replaced_by_one_that_shares_memory_with_it_stays_in_its_group() -> None:
    graph = Graph()
    x = tensor_placeholder(graph, "x")
    old = graph.call_function(aten.clone.default, (x,))
    graph.call_function(unknown_function, (x, old))
    graph.output(old)
    aliases = AliasAnalysis(graph)

    aliases.replace(old, x)

    assert aliases.group(old) is aliases.group(x)


@pytest.mark.parametrize("barrier", [False, True])
@pytest.mark.parametrize("asked", ["nothing", "a view", "an input", "memory of its own"])
def test_overlapping_inputs_are_one_memory_whatever_was_queried_before(
    asked: str, barrier: bool
) -> None:
    graph = Graph()
    x, part = tensor_placeholder(graph, "x"), graph.placeholder("part")
    part.meta["val"] = x.meta["val"][1:]
    if barrier:
        graph.call_function(unknown_function, (graph.call_function(aten.neg.default, (x,)), part))
    view = graph.call_function(aten.view.default, (part, [12]))
    first = graph.call_function(aten.neg.default, (view,))
    write = graph.call_function(aten.zero_.default, (x,))
    graph.output(first)
    aliases = AliasAnalysis(graph)
    with graph.inserting_before(write):
        new = graph.call_function(aten.abs.default, (view,))

    if asked == "a view":
        assert aliases.group(view) is aliases.group(part)
    elif asked == "an input":
        assert not (aliases.owns_memory(x) and aliases.owns_memory(part))
    elif asked == "memory of its own":
        assert aliases.owns_memory(first)
    aliases.replace(first, new)

    assert aliases.writer_between(first, None, (view,)) is write
    assert aliases.group(view) is aliases.group(x)
    assert aliases.writer_between(first, None, (new,)) is None
