"""A model of three layers whose attention runs eagerly between captured segments."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from npu_graph_runtime import (
    CaptureSession,
    GraphContext,
    GraphedCallable,
    GraphKey,
    RunMode,
    runs_captured,
    runs_eagerly,
)
from npu_graph_runtime.diagnosis import find_first_difference

if TYPE_CHECKING:
    from collections.abc import Callable

    from npu_graph_runtime import NpuDevice
    from npu_graph_runtime.diagnosis import FirstDifference

TOKENS, WIDTH, LAYERS = 4, 8, 3
KEY = GraphKey(num_tokens=TOKENS)


class LayeredModel(nn.Module):
    """Projections, a stand-in for attention that mixes tokens, and additions of a case.

    Attributes:
        context: provides run mode and key.
        hidden: the static input.
        lengths: number of tokens that attention of each layer reads, known to the host.
        in_layer: called in the captured part of each layer with its number and value.
        in_attention: called in the eager part with the same arguments.
    """

    def __init__(self, device: NpuDevice) -> None:
        super().__init__()
        self.device, self.context = device, GraphContext()
        generator = torch.Generator().manual_seed(1)
        values = torch.randn(LAYERS, WIDTH, WIDTH, generator=generator) / WIDTH**0.5
        self.layers = nn.ParameterList(
            nn.Parameter(value.to(device.torch_device), requires_grad=False) for value in values
        )
        self.hidden = torch.rand(TOKENS, WIDTH, generator=generator).to(device.torch_device)
        self.lengths = [TOKENS] * LAYERS
        self.in_layer: Callable[[int, torch.Tensor], torch.Tensor] = lambda _, x: x
        self.in_attention: Callable[[int, torch.Tensor], torch.Tensor] = lambda _, x: x
        self._attention = runs_eagerly(self.context)(self.attention)
        self._parts = [
            runs_captured(self.context, f"layers.{index}.qkv")(self.project)
            for index in range(LAYERS)
        ]

    def project(self, index: int, x: torch.Tensor) -> torch.Tensor:
        """Return the input of attention of a layer."""
        return self.in_layer(index, x @ self.layers[index])

    def attention(self, x: torch.Tensor, name: str) -> torch.Tensor:
        """Return for each token the mean of those that it may look at."""
        index = int(name.split(".")[1])
        mean = x[: self.lengths[index]].mean(0, keepdim=True)
        return self.in_attention(index, mean + x)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for index in range(LAYERS):
            x = x + self._attention(self._parts[index](index, x), f"layers.{index}.attention")
        return x * 0.5


class CapturedLayers:
    """The model, captured in segments.

    Args:
        model: which.
        options: of the graphed callable.
    """

    def __init__(self, model: LayeredModel, **options: Any) -> None:
        self.model = model
        chosen = {"run_mode": RunMode.BREAKABLE, "warmup_runs": 1, **options}
        self.graphed = GraphedCallable(
            model, device=model.device, context=model.context, name="decode", **chosen
        )

    def capture(self) -> CapturedLayers:
        """Capture the one key, and return this."""
        with CaptureSession(self.model.device, self.model.context):
            self.step()
        return self

    def step(self) -> object:
        """Run one step by the graph; inside a session, capture it."""
        with torch.no_grad(), self.model.context.run(self.graphed.run_mode, KEY):
            return self.graphed(self.model.hidden)

    def step_and_wait(self) -> None:
        """Run one step, and let the host wait for it."""
        self.step()
        self.model.device.synchronize()

    def difference(self, **options: Any) -> FirstDifference:
        """Return the first difference of a step.

        Raises:
            AssertionError: there is none.
        """
        found = find_first_difference(self.step, [self.graphed], **options)
        assert found is not None
        return found
