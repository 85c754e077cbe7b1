"""Graphs of both levels come out the same."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from fx_passes import normalize_graph
from fx_passes.testing import assert_same_values, capture_graph, random_tensors

if TYPE_CHECKING:
    from collections.abc import Callable

aten = torch.ops.aten


def targets(module: torch.fx.GraphModule) -> list[object]:
    return [
        node.target
        for node in module.graph.nodes
        if node.op in {"call_function", "call_method"} and node.target is not operator.getitem
    ]


CASES: list[tuple[str, Callable[..., object], object]] = [
    ("operator add", lambda x, y: x + y, aten.add.Tensor),
    ("operator add of a number", lambda x, y: x + 2, aten.add.Scalar),
    ("number on the left", lambda x, y: 2.5 * x, aten.mul.Scalar),
    ("one over", lambda x, y: 1 / x, aten.reciprocal.default),
    ("minus", lambda x, y: -x, aten.neg.default),
    ("matmul", lambda x, y: x @ y.t(), aten.matmul.default),
    ("method with numbers", lambda x, y: x.reshape(-1, 2, 4), aten.reshape.default),
    ("method with a list", lambda x, y: x.view([2, -1]), aten.view.default),
    ("view with one number", lambda x, y: x.view(-1), aten.view.default),
    ("method with keywords", lambda x, y: x.sum(dim=-1, keepdim=True), aten.sum.dim_IntList),
    ("cast", lambda x, y: x.to(torch.float16), aten.to.dtype),
    ("short cast", lambda x, y: x.float(), aten.to.dtype),
    ("permute", lambda x, y: x.permute(1, 0), aten.permute.default),
    ("transpose", lambda x, y: x.transpose(0, 1), aten.transpose.int),
    ("function of torch", lambda x, y: torch.add(x, y, alpha=2), aten.add.Tensor),
    ("function with input=", lambda x, y: torch.sigmoid(input=x), aten.sigmoid.default),
    ("concatenation", lambda x, y: torch.cat([x, y], dim=1), aten.cat.default),
    ("linear", functional.linear, aten.linear.default),
    ("silu", lambda x, y: functional.silu(x), aten.silu.default),
    ("softmax", lambda x, y: functional.softmax(x, dim=-1), aten.softmax.int),
    ("in place", lambda x, y: x.clone().add_(y), aten.add_.Tensor),
]


@pytest.mark.parametrize(
    ("function", "expected"), [case[1:] for case in CASES], ids=[c[0] for c in CASES]
)
def test_call_becomes_the_operator_and_computes_the_same(
    function: Callable[..., object], expected: object
) -> None:
    inputs = random_tensors((4, 8), (4, 8), dtype=torch.float32, device="cpu")
    module = capture_graph(function, inputs)
    placeholders = [node.name for node in module.graph.nodes if node.op == "placeholder"]
    arguments = inputs[: len(placeholders)]
    before = module(*arguments)

    changed = normalize_graph(module)
    module.recompile()

    assert changed > 0
    assert targets(module)[-1] is expected
    assert normalize_graph(module) == 0
    module.graph.lint()
    assert_same_values(tuple(module(*arguments)), tuple(before))


def test_embedding_takes_its_arguments_in_the_other_order() -> None:
    indices = torch.tensor([2, 0, 1])
    (weight,) = random_tensors((5, 8), dtype=torch.float32, device="cpu")

    def function(i: Tensor, w: Tensor) -> Tensor:
        return functional.embedding(i, w, padding_idx=0)

    module = capture_graph(function, [indices, weight])

    normalize_graph(module)
    module.recompile()

    assert targets(module) == [aten.embedding.default]
    assert_same_values(module(indices, weight)[0], weight[indices])


INDICES: list[object] = [
    (slice(None, 2),),
    (Ellipsis, slice(3, None)),
    (slice(None), slice(1, -1)),
    (0,),
    (Ellipsis, -1),
    (None, slice(1, 3)),
    (slice(None), slice(None, None, 2)),
    (slice(None), None, 3),
]


@pytest.mark.parametrize("index", INDICES, ids=str)
def test_indexing_becomes_views_and_computes_the_same(index: tuple[object, ...]) -> None:
    inputs = random_tensors((4, 8), dtype=torch.float32, device="cpu")

    def function(x: Tensor) -> Tensor:
        out: Tensor = x[index] * 2  # type: ignore[index]
        return out

    module = capture_graph(function, inputs)
    before = module(*inputs)

    normalize_graph(module)
    module.recompile()

    assert operator.getitem not in {node.target for node in module.graph.nodes}
    assert all("val" in node.meta for node in module.graph.nodes if node.op != "output")
    assert normalize_graph(module) == 0
    assert_same_values(tuple(module(*inputs)), tuple(before))


def test_indexing_with_a_tensor_stays() -> None:
    inputs = [*random_tensors((4, 8), device="cpu"), torch.tensor([1, 2])]
    module = capture_graph(lambda x, i: x[i], inputs)

    normalize_graph(module)

    assert operator.getitem in {node.target for node in module.graph.nodes}


def test_factories_stay_where_modes_can_reach_them() -> None:
    module = capture_graph(
        lambda x: x + torch.ones(4, 8, device=x.device), random_tensors((4, 8), device="cpu")
    )

    normalize_graph(module)

    assert torch.ones in targets(module)


def test_sizes_stay_what_they_are() -> None:
    inputs = random_tensors((4, 8), device="cpu")
    module = capture_graph(lambda x: x.view(x.size(0), -1) + x.size(0), inputs, dynamic={0: 0})

    normalize_graph(module)
    module.recompile()

    assert_same_values(module(4, *inputs)[0], inputs[0] + 4)


def test_shape_of_a_value_becomes_the_sizes_that_were_given() -> None:
    def function(x: Tensor) -> tuple[Tensor, ...]:
        y = x.neg()
        return x.reshape(-1).view(y.shape), x.new_zeros(y.shape[0]), x.flatten().view(*y.shape)

    inputs = random_tensors((4, 8), device="cpu")
    module = capture_graph(function, inputs, dynamic={0: 0})
    before = module(4, *inputs)

    normalize_graph(module)
    module.graph.eliminate_dead_code()
    module.recompile()

    assert not module.graph.find_nodes(op="call_method", target="size")
    assert torch.ops.aten.neg.default not in targets(module)
    assert normalize_graph(module) == 0
    assert_same_values(tuple(module(4, *inputs)), tuple(before))
    other = random_tensors((6, 8), device="cpu")
    assert [tuple(each.shape) for each in module(6, *other)] == [(6, 8), (6,), (6, 8)]


def test_shapes_that_are_computed_with_stay() -> None:
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    size = graph.call_method("size", (x,))
    joined = graph.call_function(operator.add, (size, (2,)))
    number = graph.call_method("numel", (size,))
    graph.output((graph.call_method("expand", (x, joined)), number, size))
    for node, value in ((x, torch.empty(1, 1)), (size, torch.Size([1, 1])), (number, 1)):
        node.meta["val"] = value
    module = torch.fx.GraphModule(torch.nn.Module(), graph)

    assert normalize_graph(module) == 0


def test_shape_that_no_input_gives_stays() -> None:
    inputs = random_tensors((4, 8), device="cpu")
    module = capture_graph(
        lambda x: x.flatten().view(torch.cat([x, x]).t().shape[1] // 2, 8), inputs, dynamic={0: 0}
    )
    before = module(4, *inputs)

    normalize_graph(module)
    module.recompile()

    assert_same_values(tuple(module(4, *inputs)), tuple(before))


def test_sum_of_symbolic_numbers_stays() -> None:
    inputs = random_tensors((4, 8), device="cpu")
    module = capture_graph(lambda x: x.new_zeros(x.shape[0] + 3), inputs, dynamic={0: 0})

    normalize_graph(module)

    assert operator.add in targets(module)


def test_elements_taken_twice_become_one() -> None:
    def function(x: Tensor) -> Tensor:
        parts = x.chunk(2)
        return parts[0] + parts[0] + parts[1]

    module = capture_graph(function, random_tensors((4, 8), device="cpu"))
    graph = module.graph
    (chunk,) = (node for node in graph.nodes if node.target == "chunk")
    first = next(iter(chunk.users))
    with graph.inserting_after(first):
        again = graph.call_function(operator.getitem, (chunk, 0))
    first.replace_all_uses_with(again, delete_user_cb=lambda user: user.op != "output")
    graph.lint()

    normalize_graph(module)

    assert len(chunk.users) == 2


def test_packet_of_a_custom_operator_needs_no_metadata() -> None:
    graph = torch.fx.Graph()
    x, weight = graph.placeholder("x"), graph.placeholder("weight")
    norm = graph.call_function(torch.ops.npu.npu_rms_norm, (x,), {"gamma": weight, "epsilon": 1e-6})
    graph.output((norm,))
    module = torch.fx.GraphModule(torch.nn.Module(), graph)

    assert normalize_graph(module) == 1

    assert norm.target is torch.ops.npu.npu_rms_norm.default
    assert norm.args == (x, weight)
    assert norm.kwargs == {}


def test_unknown_values_are_left_alone() -> None:
    graph = torch.fx.Graph()
    x, y = graph.placeholder("x"), graph.placeholder("y")
    graph.output((graph.call_function(operator.add, (x, y)),))
    module = torch.fx.GraphModule(torch.nn.Module(), graph)

    assert normalize_graph(module) == 0


def test_named_tuple_whose_fields_are_read_stays() -> None:
    def function(x: Tensor) -> tuple[Tensor, Tensor]:
        return x.max(dim=-1)

    inputs = random_tensors((4, 8), dtype=torch.float32, device="cpu")
    module = capture_graph(function, inputs)
    before = module(*inputs)

    normalize_graph(module)
    module.recompile()

    assert_same_values(tuple(module(*inputs)), tuple(before))


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.where(x > 0, 7.0),
        lambda x: x.where(x > 0, x.neg()),
        lambda x: x.where(condition=x > 0, other=x.neg()),
        lambda x: (x > 0).where(x > 1, x < -1),
        lambda x: torch.where(x > 0, x, x.neg()),
        lambda x: torch.roll(x, 1),
        lambda x: torch.roll(x, shifts=1, dims=0),
        lambda x: x.roll(1, 1),
        lambda x: torch.conv1d(x[None], torch.ones(2, 4, 3), None, 1, 1),
        lambda x: torch.nn.functional.conv2d(x[None, None], torch.ones(1, 1, 3, 3), padding=1),
        lambda x: torch.nn.functional.avg_pool2d(x[None], 2, stride=1),
        lambda x: torch.nn.functional.max_pool2d(x[None], 2),
        lambda x: x.sum(0) + x.mean(1, keepdim=True) + x.amax(0),
        lambda x: x.flip(0) + x.flip(0, 1),
        lambda x: x.permute(1, 0).reshape(2, 8).expand(3, 2, 8),
        lambda x: x.repeat(2, 1).tile(2),
        lambda x: torch.clamp(x, max=0.5) + x.clip(-1, 1),
        lambda x: 2 - x + 2 / x.exp() + 2**x,
    ],
)
def test_normal_form_means_what_was_spelt(function: Callable[[Tensor], Tensor]) -> None:
    given = torch.linspace(-2, 2, 16).reshape(4, 4)
    module = capture_graph(function, [given])

    normalize_graph(module)
    module.recompile()

    (actual,) = module(given)
    assert_same_values(actual, function(given))
