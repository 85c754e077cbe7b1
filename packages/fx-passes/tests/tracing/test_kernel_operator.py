"""A kernel that torch does not see is an operator in a traced graph, and itself elsewhere."""

from __future__ import annotations

import ctypes
import functools
from typing import TYPE_CHECKING, Any

import pytest
import torch

import fx_passes

if TYPE_CHECKING:
    from collections.abc import Callable


NAMESPACE = "fx_passes_test"


def copy_bytes(source: torch.Tensor, output: torch.Tensor) -> torch.Tensor:
    """Write as a Triton kernel does, outside torch's dispatcher."""
    ctypes.memmove(output.data_ptr(), source.data_ptr(), source.nbytes)
    return output


def scale(source: torch.Tensor, *, factor: float = 2.0) -> torch.Tensor:
    """Return memory that was written in the same way."""
    result, scaled = torch.empty_like(source), source * factor
    ctypes.memmove(result.data_ptr(), scaled.data_ptr(), source.nbytes)
    return result


def hooked(function: Callable[..., torch.Tensor], name: str, schema: str) -> Callable[..., Any]:
    """Return a function as the engine calls it once it is hooked."""
    return functools.partial(fx_passes.KernelOperator(NAMESPACE, name, schema), function)


def test_a_kernel_that_writes_is_one_operator_that_declares_it() -> None:
    x, y = torch.arange(4.0), torch.zeros(4)
    copied = hooked(copy_bytes, "copy_bytes", "(Tensor source, Tensor(a!) output) -> ()")

    def step() -> list[torch.Tensor]:
        return [copied(x + 1, y)]

    with pytest.raises(fx_passes.TraceError, match="which stays as it is"):
        fx_passes.trace_call(lambda: [copy_bytes(x + 1, y)])
    call = fx_passes.trace_call(step)
    nodes = call.graph_module.graph.nodes
    names = [str(node.target) for node in nodes if node.op == "call_function"]
    assert names == ["aten.add.Tensor", f"{NAMESPACE}.copy_bytes.default"]
    x.fill_(6.0)
    (result,) = call.run()
    assert result.data_ptr() == y.data_ptr()
    assert torch.equal(y, x + 1)


def test_a_kernel_that_returns_memory_is_one_operator() -> None:
    x = torch.arange(4.0)
    scaled = hooked(scale, "scale", "(Tensor source, *, float factor=2.) -> Tensor")
    with pytest.raises(fx_passes.TraceError, match="was never written"):
        fx_passes.trace_call(lambda: [scale(x) + 1])
    call = fx_passes.trace_call(lambda: [scaled(x, factor=3.0) + 1])
    x.add_(1)
    assert torch.equal(call.run()[0], 3 * x + 1)


def test_nothing_is_inserted_if_nothing_is_traced() -> None:
    x, y = torch.arange(4.0), torch.zeros(4)
    copied = hooked(copy_bytes, "copy", "(Tensor source, Tensor(a!) output) -> ()")
    assert copied(x, y) is y
    assert torch.equal(y, x)
