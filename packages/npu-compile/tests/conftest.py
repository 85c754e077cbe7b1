"""A small decoder on the CPU whose attention is an opaque operator, and a device that captures."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn

from npu_graph_runtime import FakeDevice

if TYPE_CHECKING:
    from collections.abc import Iterator


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--each-alone", action="store_true", help="each stale row as its own model")


class AttentionOperator:
    """A custom operator of its own for each test: adds the row's host length to the value."""

    def __init__(self, name: str) -> None:
        self.name = f"npu_compile_tests::{name}"
        self.lengths: list[int] = []
        self.num_calls = 0
        library: Any = torch.library.Library
        self._library = library("npu_compile_tests", "FRAGMENT")
        self._library.define(f"{name}(Tensor value, Tensor(a!) out) -> ()")
        self._library.impl(name, self._run, "CompositeExplicitAutograd")
        torch.library.register_fake(self.name, lambda value, out: None, lib=self._library)
        self.call = getattr(torch.ops.npu_compile_tests, name)

    def _run(self, value: torch.Tensor, out: torch.Tensor) -> None:
        self.num_calls += 1
        lengths = torch.tensor(self.lengths, dtype=value.dtype)
        torch.add(value, lengths[:, None], out=out)


class Decoder(nn.Module):
    def __init__(self, attention: AttentionOperator, *, num_layers: int = 2) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.embedding = nn.Parameter(torch.randn(16, 8, generator=generator), requires_grad=False)
        self.weights = nn.ParameterList(
            nn.Parameter(torch.randn(8, 8, generator=generator), requires_grad=False)
            for _ in range(num_layers)
        )
        self.attend = attention.call

    def forward(self, input_ids: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
        hidden = nn.functional.embedding(input_ids, self.embedding)
        hidden = hidden + table.sum(-1, keepdim=True)
        for weight in self.weights:
            value = torch.nn.functional.linear(hidden, weight)
            out = torch.empty_like(value)
            self.attend(value, out)
            hidden = torch.tanh(out) + hidden
        return hidden


@pytest.fixture
def device() -> FakeDevice:
    return FakeDevice()


@pytest.fixture(scope="session")
def operator_numbers() -> Iterator[int]:
    return itertools.count()


@pytest.fixture
def attention(operator_numbers: Iterator[int]) -> AttentionOperator:
    return AttentionOperator(f"attention_{next(operator_numbers)}")


@pytest.fixture
def decoder(attention: AttentionOperator) -> Decoder:
    return Decoder(attention)
