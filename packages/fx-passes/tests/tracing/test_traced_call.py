"""A call that runs on real tensors becomes a graph of all memory that it read."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - its usual name
from torch import Tensor
from torch.fx.node import map_arg

import fx_passes
from fx_passes.memory.alias_analysis import AliasAnalysis

if TYPE_CHECKING:
    from collections.abc import Callable

WEIGHT = torch.nn.Parameter(torch.linspace(-1, 1, 16).reshape(4, 4), requires_grad=False)


class _OwnParameter(torch.nn.Parameter):
    """Like those of engines, which say how a weight is loaded."""


class _Model:
    """A step on static buffers, as engines capture it."""

    def __init__(self) -> None:
        self.hidden = torch.arange(12.0).reshape(3, 4)
        self.cache = torch.zeros(2, 5, 4)
        self.logits = torch.zeros(3, 4)

    def step(self) -> list[Tensor]:
        x = F.linear(self.hidden, WEIGHT)
        self.cache[0][:3].copy_(x)
        scratch = torch.empty(3, 4)
        scratch[1:].copy_(x[1:])
        scratch[0].fill_(2.0)
        with torch.no_grad():
            y = (scratch + self.cache[0][1:4]).relu()
        y.add_(1)
        self.logits.copy_(y)
        return [self.logits, y * len(self.hidden)]

    def memory(self) -> list[Tensor]:
        return [self.hidden.clone(), self.cache.clone(), self.logits.clone()]


@pytest.mark.parametrize("inference", [False, True])
def test_the_graph_does_what_the_call_does_with_what_its_memory_holds_then(
    inference: bool,
) -> None:
    with torch.inference_mode(inference):
        traced, eager = _Model(), _Model()
        call = fx_passes.trace_call(traced.step)
        expected = eager.step()
        assert all(map(torch.equal, call.outputs, expected))
        assert all(map(torch.equal, traced.memory(), eager.memory()))
        for model in (traced, eager):
            model.hidden.mul_(-2)
        assert all(map(torch.equal, call.run(), eager.step()))
        assert all(map(torch.equal, traced.memory(), eager.memory()))


def test_all_memory_is_an_input_once_and_none_is_a_constant() -> None:
    model = _Model()
    call = fx_passes.trace_call(model.step)
    addresses = [tensor.data_ptr() for tensor in call.inputs]
    # Weights too: a pass that folds constants would keep what engines reload.
    assert sorted(addresses) == sorted(
        each.data_ptr() for each in (model.hidden, WEIGHT, model.cache, model.logits)
    )
    assert not call.graph_module.graph.find_nodes(op="get_attr")
    assert len(call.graph_module.graph.find_nodes(op="placeholder")) == len(addresses)


def test_lazily_conjugated_and_negated_views_are_inputs_of_their_own() -> None:
    number = torch.tensor([1 + 2j, 3 - 4j])
    conjugate, imaginary, negated = number.conj(), number.imag, number.conj().imag

    def step() -> list[Tensor]:
        return [number + 0, conjugate + 0, imaginary + 0, negated + 0]

    call = fx_passes.trace_call(step)
    assert all(map(torch.equal, call.run(), step()))
    number.mul_(2)
    assert all(map(torch.equal, call.run(), step()))


def test_inputs_that_show_one_storage_share_memory_in_the_analysis() -> None:
    pool, other = torch.zeros(4, 8), torch.zeros(8)
    first, second = pool[0], pool[1]

    def step() -> list[Tensor]:
        first.add_(1)
        return [second + other]

    graph = fx_passes.trace_call(step).graph_module.graph
    a, b, c = graph.find_nodes(op="placeholder")
    memory = AliasAnalysis(graph)
    assert memory.group(a) is memory.group(b)
    assert memory.group(c) is c


def test_fake_values_are_of_one_mode_so_that_rules_can_build() -> None:
    x = torch.randn(4, 4)

    def pattern(x: Tensor) -> dict[str, Tensor]:
        return {"y": torch.sigmoid(torch.neg(x))}

    def rewrite(match: fx_passes.Match, build: fx_passes.GraphBuilder) -> dict[str, torch.fx.Node]:
        # Fake values that are left out are computed, of those of the trace.
        return {
            "y": build.call("aten::sigmoid", build.call("aten::mul.Scalar", match.bound["x"], -1.0))
        }

    rule = fx_passes.Rule(name="sigmoid", patterns=(pattern,), rewrite=rewrite)
    call = fx_passes.trace_call(lambda: [torch.sigmoid(torch.neg(F.linear(x, WEIGHT) + x))])
    pipeline = fx_passes.Pipeline(
        passes=(
            fx_passes.NormalizePass(),
            fx_passes.RulePass(name="rules", rules=(rule,), repeats=False),
        )
    )
    report = pipeline.run(call.graph_module, require=("sigmoid",)).report
    assert report.match_counts()["sigmoid"] == 1
    torch.testing.assert_close(call.run(), call.outputs)


def test_weights_of_a_class_of_their_own_are_plain_inputs() -> None:
    weight = _OwnParameter(torch.randn(4, 4), requires_grad=False)
    x = torch.randn(3, 4)

    def step() -> list[Tensor]:
        return [torch.ops.aten.linear(x, weight) + weight.data[0]]

    call = fx_passes.trace_call(step)
    assert [type(each) for each in call.inputs] == [Tensor, Tensor]
    weight.data.mul_(2)
    assert torch.equal(call.run()[0], step()[0])


X = torch.ones(3, 4)


def _reads_what_nothing_wrote() -> list[Tensor]:
    result = torch.empty(3, 4)
    # As a Triton kernel would write it: torch does not hear of it.
    ctypes.memset(result.data_ptr(), 0, result.nbytes)
    return [result * 2]


def _returns_what_nothing_wrote() -> list[Tensor]:
    return [torch.empty_like(X)]


def _returns_an_input() -> list[Tensor]:
    return [X + 1, X]


def _reads_a_number_back() -> list[Tensor]:
    return [X * (X + 1).sum().item()]


def _fails() -> list[Tensor]:
    raise ValueError("mine")


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (_reads_what_nothing_wrote, "empty is read by mul and was never written"),
        (_returns_what_nothing_wrote, "empty_like is read by output and was never written"),
        (_returns_an_input, "it returns memory of its input memory_0, which stays as it is"),
        (_reads_a_number_back, "tracing the step: "),
        (_fails, "tracing the step: ValueError: mine"),
    ],
)
def test_invalid_graphs_are_refused(function: Callable[[], list[Tensor]], expected: str) -> None:
    with pytest.raises(fx_passes.TraceError, match=expected):
        fx_passes.trace_call(function, name="the step")


def test_fake_values_begin_where_the_values_of_the_call_begin_in_their_memory() -> None:
    base, pool = torch.arange(12.0), torch.zeros(6, 4)

    def step() -> list[Tensor]:
        doubled = base * 2
        parts = doubled.view(3, 4)[1:].unbind()
        row = pool[3]
        row.add_(parts[1])
        torch.mul(parts[0], 2, out=pool[4])
        first, second = torch.split_with_sizes(doubled, [5, 7])
        flat = pool[2:4].reshape(-1)
        return [parts[1] + row, second.clone(), first + 1, pool[5].expand(2, 4) + 1, flat * 2]

    graph = fx_passes.trace_call(step).graph_module.graph
    values, offsets = {}, set()
    for node in graph.nodes:
        if node.op == "output":
            break
        if node.op == "placeholder":
            values[node] = base if node.meta["val"].shape == base.shape else pool
        else:
            args, kwargs = map_arg((node.args, node.kwargs), values.__getitem__)
            values[node] = node.target(*args, **kwargs)
        real, fake = values[node], node.meta["val"]
        if isinstance(real, Tensor):
            assert fake.storage_offset() == real.storage_offset(), node.format_node()
            offsets.add(real.storage_offset())
    assert {0, 4, 5, 8, 12, 16, 20} <= offsets


@torch.library.custom_op("traced_call::offset", mutates_args=())
def _offset(x: Tensor) -> Tensor:
    return torch.tensor([x.storage_offset()])


@_offset.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty(1, dtype=torch.int64)


def test_a_copy_of_a_view_stays_where_an_operator_may_see_where_it_begins() -> None:
    x = torch.arange(9.0)
    call = fx_passes.trace_call(lambda: [_offset((x * 2)[1:].clone())])
    fx_passes.default_npu_pipeline().run(call.graph_module)
    assert call.run()[0].item() == 0
