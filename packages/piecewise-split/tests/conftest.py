"""Operators to cut at, and a small decoder that calls them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeAlias

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx import Graph, GraphModule
from torch.fx.passes.fake_tensor_prop import FakeTensorProp

from piecewise_split import SplitPlan, plan_split, split, stitch

Check: TypeAlias = Callable[..., SplitPlan]
Build: TypeAlias = Callable[..., GraphModule]


def _attention(q: torch.Tensor, out: torch.Tensor, layer: str) -> None:
    out.copy_(q.cumsum(0) * (1 + len(layer)))


def _pair(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return x + 1, x * 2


@pytest.fixture(scope="session", autouse=True)
def operators() -> Iterator[torch.library.Library]:
    """Operators ``ps_test::...`` for the whole test run."""
    library = torch.library.Library("ps_test", "FRAGMENT")  # type: ignore[no-untyped-call]
    definitions: dict[str, tuple[str, Callable[..., object], Callable[..., object]]] = {
        "attention": (
            "(Tensor q, Tensor(a!) out, str layer) -> ()",
            _attention,
            lambda q, out, layer: None,
        ),
        "mix": ("(Tensor x) -> Tensor", lambda x: x.flip(0) * 3, torch.empty_like),
        "pair": ("(Tensor x) -> (Tensor, Tensor)", _pair, _pair),
        "scale": ("(Tensor x) -> Tensor", lambda x: x * 2, torch.empty_like),
        "scale.by": (
            "(Tensor x, float by) -> Tensor",
            lambda x, by: x * by,
            lambda x, by: torch.empty_like(x),
        ),
    }
    for name, (schema, kernel, fake) in definitions.items():
        library.define(name + schema)  # type: ignore[no-untyped-call]
        library.impl(name, kernel, "CPU")  # type: ignore[no-untyped-call]
        torch.library.register_fake(f"ps_test::{name}", fake, lib=library)
    yield library
    library._destroy()  # type: ignore[no-untyped-call]


@pytest.fixture(autouse=True)
def _fresh_dynamo() -> None:
    """Forget compiled code, so that one test's graphs do not count against another's limit."""
    torch.compiler.reset()


@pytest.fixture
def build() -> Build:
    """Make a graph module of a graph, with ``val`` metadata when inputs are given."""

    def make(
        graph: Graph, *inputs: object, attributes: dict[str, object] | None = None
    ) -> GraphModule:
        graph.lint()
        module = GraphModule(attributes or {}, graph)
        if inputs:
            mode = FakeTensorMode(allow_non_fake_inputs=True)
            FakeTensorProp(module, mode).propagate(*inputs)
        return module

    return make


def _copies(arguments: tuple[object, ...]) -> list[object]:
    return [a.clone() if isinstance(a, torch.Tensor) else a for a in arguments]


@pytest.fixture
def check_split() -> Check:
    """Split and stitch, and compare results and written arguments with the whole graph."""

    def check(
        module: GraphModule,
        splitting_ops: list[str],
        *arguments: object,
        allow_absent: bool = False,
    ) -> SplitPlan:
        before = module.code
        plan = plan_split(module, splitting_ops, allow_absent=allow_absent)
        pieces = split(plan)
        for piece in pieces.pieces:
            piece.graph.lint()
        expected_arguments, arguments_here = _copies(arguments), _copies(arguments)

        expected = module(*expected_arguments)
        found = stitch(pieces)(*arguments_here)

        torch.testing.assert_close(found, expected, rtol=0, atol=0)
        torch.testing.assert_close(arguments_here, expected_arguments, rtol=0, atol=0)
        module.recompile()
        assert module.code == before
        return plan

    return check


class Layer(torch.nn.Module):
    """Norm, projection, mutating attention into an allocated tensor, residual."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name
        self.project = torch.nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first, second = self.project(torch.nn.functional.layer_norm(x, (8,))).chunk(2, -1)
        q = torch.cat([second, first], -1)
        out = torch.empty_like(q)
        torch.ops.ps_test.attention(q, out, self.name)
        return x + out.view(size=x.size())


class Decoder(torch.nn.Module):
    """Several equal layers."""

    def __init__(self, layers: int) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(Layer(f"layers.{i}") for i in range(layers))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


@pytest.fixture
def decoder() -> Callable[[int], Decoder]:
    """Make a decoder with seeded weights that need no gradient."""

    def make(layers: int) -> Decoder:
        torch.manual_seed(0)
        return Decoder(layers).requires_grad_(requires_grad=False)

    return make
