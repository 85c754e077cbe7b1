"""One function with graphs by signature, as users write it: each is counted in lines and measured.

`NPUExactGraphRunner` of vllm-omni is the model of `ExactSignatureRunner`, reduced to what it does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from breakable_cuda_graphs import (  # type: ignore[import-untyped]
    BreakableCUDAGraph,
    breakable_graph,
)

from npu_graph_runtime import graphed

if TYPE_CHECKING:
    from collections.abc import Callable

    from npu_graph_runtime import GraphDevice


def by_graphed(function: Callable[..., Any], device: GraphDevice) -> Callable[..., Any]:
    """Use `graphed`."""
    step: Callable[..., Any] = graphed(function, device=device, most=32)
    return step


class ExactSignatureRunner:
    """Use the calls of a device: a key, a warm-up, static buffers, copies."""

    def __init__(self, function: Callable[..., Any], device: GraphDevice) -> None:
        self.function = function
        self.device = device
        self.pool = device.create_memory_pool()
        self.stream = device.create_stream()
        self.graphs: dict[tuple[object, ...], tuple[Any, list[torch.Tensor], torch.Tensor]] = {}

    def __call__(self, *args: torch.Tensor) -> torch.Tensor:
        """Replay the graph of the call's shapes, dtypes and devices."""
        key = tuple((tuple(each.shape), str(each.dtype), str(each.device)) for each in args)
        found = self.graphs.get(key)
        if found is None:
            found = self.graphs[key] = self.capture(args)
        graph, inputs, output = found
        with torch.inference_mode():
            for buffer, value in zip(inputs, args, strict=True):
                buffer.copy_(value)
            graph.replay()
            return output.detach().clone()

    def capture(
        self, args: tuple[torch.Tensor, ...]
    ) -> tuple[Any, list[torch.Tensor], torch.Tensor]:
        """Warm up and capture on buffers."""
        with torch.inference_mode():
            inputs = [value.detach().clone() for value in args]
            for _ in range(2):
                self.function(*inputs)
            self.device.synchronize()
            graph = self.device.create_graph()
            self.stream.wait_stream(self.device.current_stream())
            with (
                self.device.use_stream(self.stream),
                self.device.capture(graph, pool=self.pool, stream=self.stream),
            ):
                output = self.function(*inputs)
            self.device.synchronize()
        return graph, inputs, output


class MadeGraphedCallables:
    """Use `make_graphed_callables`, which graphs one signature: a dict, an eager call, a copy."""

    def __init__(self, function: Callable[..., Any], make: Callable[..., Any]) -> None:
        self.function = function
        self.make = make
        self.callables: dict[tuple[object, ...], Callable[..., Any]] = {}

    def __call__(self, *args: torch.Tensor) -> torch.Tensor:
        """Replay the graph of the call's shapes and dtypes."""
        key = tuple((tuple(each.shape), each.dtype) for each in args)
        if key not in self.callables:
            samples = tuple(each.detach().clone() for each in args)
            self.callables[key] = self.make(self.function, samples)
        copied: torch.Tensor = self.callables[key](*args).clone()
        return copied


class BreakableGraphs:
    """Use Meta's wheel: a key, a warm-up, static buffers, copies."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.pool = torch.cuda.graph_pool_handle()
        self.graphs: dict[tuple[object, ...], tuple[Any, list[torch.Tensor], torch.Tensor]] = {}

    def __call__(self, *args: torch.Tensor) -> torch.Tensor:
        """Replay the graph of the call's shapes, dtypes and devices."""
        key = tuple((tuple(each.shape), str(each.dtype), str(each.device)) for each in args)
        found = self.graphs.get(key)
        if found is None:
            found = self.graphs[key] = self.capture(args)
        graph, inputs, output = found
        with torch.inference_mode():
            for buffer, value in zip(inputs, args, strict=True):
                buffer.copy_(value)
            graph.replay()
            return output.detach().clone()

    def capture(
        self, args: tuple[torch.Tensor, ...]
    ) -> tuple[Any, list[torch.Tensor], torch.Tensor]:
        """Warm up and capture on buffers."""
        with torch.inference_mode():
            inputs = [value.detach().clone() for value in args]
            for _ in range(2):
                self.function(*inputs)
            torch.cuda.synchronize()
            graph = BreakableCUDAGraph(self.pool)
            with breakable_graph(graph):
                output = self.function(*inputs)
        return graph, inputs, output
