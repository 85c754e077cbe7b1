"""Random models of captured and eager work on tensors [tokens, WIDTH], for breakable capture."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from npu_graph_runtime import runs_eagerly

if TYPE_CHECKING:
    from collections.abc import Callable

    from npu_graph_runtime import GraphContext, GraphDevice

WIDTH = 8

CAPTURED = ("add", "matmul", "relu", "in_place", "slices", "turn", "side_stream", "write_state")
EAGER = ("new", "pair", "into", "alias", "parts", "nested", "host", "state", "nothing")


class RandomModel:
    """A model that is drawn from a seed: two models of one seed do the same.

    Args:
        seed: What is drawn.
        device: Runs it.
        context: Of the functions that run eagerly.
    """

    def __init__(self, seed: int, device: GraphDevice, context: GraphContext) -> None:
        draw = random.Random(seed)
        kinds = [draw.choice(CAPTURED + EAGER) for _ in range(draw.randint(3, 14))]
        kinds[draw.randrange(len(kinds))] = draw.choice(EAGER)
        self.steps = [(kind, draw.random(), draw.random()) for kind in kinds]
        generator = torch.Generator().manual_seed(seed)
        weight = torch.randn(WIDTH, WIDTH, generator=generator) / WIDTH
        self.weight = weight.to(device.torch_device)
        self.state = torch.zeros(WIDTH, device=device.torch_device)
        self._device = device
        self._side = device.create_stream()
        self._eager = {name: runs_eagerly(context)(getattr(self, f"_{name}")) for name in EAGER}
        self._captured = {name: getattr(self, f"_{name}") for name in CAPTURED}

    def __call__(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the last value, and the state, which the call may have written."""
        values = [x * 0.5, x + 1]
        for kind, first, second in self.steps:
            a = values[int(first * len(values))]
            b = values[int(second * len(values))]
            # Inputs of the model are never written.
            function: Callable[[Tensor, Tensor], Tensor]
            function = self._eager.get(kind) or self._captured[kind]
            values.append(function(a, b))
        total = values[0] * 0.25
        for value in values[1:]:
            total = total + value * 0.25
        return total, self.state

    def _add(self, a: Tensor, b: Tensor) -> Tensor:
        return (a + b) * 0.5

    def _matmul(self, a: Tensor, b: Tensor) -> Tensor:
        return a @ self.weight + b * 0.5

    def _relu(self, a: Tensor, b: Tensor) -> Tensor:
        return torch.relu(a) - b * 0.5

    def _in_place(self, a: Tensor, b: Tensor) -> Tensor:
        # A value that eager functions and later segments may hold as well.
        a.mul_(0.5).add_(b, alpha=0.25)
        return a.t().t()

    def _slices(self, a: Tensor, b: Tensor) -> Tensor:
        half = WIDTH // 2
        a[:, :half].mul_(0.5)
        return torch.cat([b[:, half:], a[:, :half]], dim=1)

    def _turn(self, a: Tensor, b: Tensor) -> Tensor:
        return (a.t().contiguous().t() + b) * 0.5

    def _side_stream(self, a: Tensor, b: Tensor) -> Tensor:
        main = self._device.current_stream()
        self._side.wait_stream(main)
        with self._device.use_stream(self._side):
            scaled = a * 0.5
        other = b * 0.25
        main.wait_stream(self._side)
        return scaled + other

    def _write_state(self, a: Tensor, b: Tensor) -> Tensor:
        self.state.mul_(0.5).add_(a[0])
        return b + self.state * 0.25

    def _new(self, a: Tensor, b: Tensor) -> Tensor:
        return a * 0.5 - b * 0.25

    def _pair(self, a: Tensor, b: Tensor) -> Tensor:
        total, difference = self._totals(a, b)
        return total * difference

    def _totals(self, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        return (a + b) * 0.25, (a - b) * 0.25

    def _into(self, a: Tensor, b: Tensor) -> Tensor:
        b.copy_(a.flip(0) * 0.5)
        return b

    def _alias(self, a: Tensor, b: Tensor) -> Tensor:
        del b
        return a.t().t()

    def _parts(self, a: Tensor, b: Tensor) -> Tensor:
        left, right = (a * 0.5 + b * 0.25).chunk(2, dim=1)
        return torch.cat([right, left], dim=1)

    def _nested(self, a: Tensor, b: Tensor) -> Tensor:
        result: Tensor = self._eager["new"](self._eager["host"](a, b), b)
        return result

    def _host(self, a: Tensor, b: Tensor) -> Tensor:
        # What cannot be captured: the host reads a value, and decides by it.
        level = float(a.mean())
        return a * 0.5 if level > 0 else b * 0.5

    def _state(self, a: Tensor, b: Tensor) -> Tensor:
        self.state.add_(b[0] * 0.25)
        return a + self.state * 0.25

    def _nothing(self, a: Tensor, b: Tensor) -> Tensor:
        del a
        return b
