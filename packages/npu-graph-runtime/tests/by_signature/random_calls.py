"""Random calls of random functions, with faults, for a graphed world and an eager one.

Each world has functions, state and weights of its own. Two worlds of one seed are given the same
calls: in one the functions run eagerly, in the other they are graphed.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from npu_graph_runtime import FakeDevice, GraphContext, runs_eagerly
from npu_graph_runtime.devices.fake_scheduler import device_failure

if TYPE_CHECKING:
    import contextlib
    from collections.abc import Callable

    from npu_graph_runtime import GraphDevice
    from npu_graph_runtime.device import DeviceGraph, Stream

WIDTH = 6


class FaultyDevice(FakeDevice):
    """A fake device whose captures fail by a random generator.

    Args:
        draw: Draws the faults.
        share: How many captures fail.
    """

    def __init__(self, draw: random.Random, share: float) -> None:
        super().__init__(memory_bytes=200_000)
        self._draw = draw
        self._share = share
        self.num_faults = 0

    def capture(
        self, graph: DeviceGraph, *, pool: object, stream: Stream | None = None
    ) -> contextlib.AbstractContextManager[object]:
        """Capture, or fail at the beginning."""
        if self._draw.random() < self._share:
            self.num_faults += 1
            raise device_failure(self._draw.choice((207001, 207008, 107027, 507899)), "drawn")
        return super().capture(graph, pool=pool, stream=stream)


class Unknown:
    """An argument that cannot be part of a signature."""

    def __init__(self, factor: float) -> None:
        self.factor = factor


class World:
    """Functions, drawn from a seed, with the state that they write.

    Args:
        seed: What is drawn.
        device: Runs it.
        context: Of the functions that run eagerly; ``None`` for functions without breaks.
        faults: Draws exceptions inside captures; ``None`` draws none.
    """

    def __init__(
        self,
        seed: int,
        device: GraphDevice,
        context: GraphContext | None,
        faults: random.Random | None,
    ) -> None:
        draw = random.Random(seed)
        self.device = device
        self.num_faults = 0
        self._faults = faults
        generator = torch.Generator().manual_seed(seed)
        self.layer = nn.Linear(WIDTH, WIDTH).requires_grad_(requires_grad=False)
        self.layer.weight.copy_(torch.randn(WIDTH, WIDTH, generator=generator) / 2)
        self.layer.bias.copy_(torch.randn(WIDTH, generator=generator))
        self.layer.to(device.torch_device)
        self.state = torch.zeros(4, WIDTH, device=device.torch_device)
        self.calls = [
            [draw.choice(STEPS) for _ in range(draw.randint(1, 5))] + [draw.choice(RESULTS)]
            for _ in range(4)
        ]
        self.eager: Callable[[Tensor], Tensor] = self._on_host
        if context is not None:
            self.eager = runs_eagerly(context)(self._on_host)
        self.is_breaking = context is not None

    def run(self, number: int, x: Tensor, y: Tensor, factor: Any, more: Any) -> Any:
        """Run one of the functions.

        Args:
            number: Which one.
            x: Of shape ``[rows, WIDTH]``.
            y: Of the same shape.
            factor: A number, or something that has one.
            more: Nested, of tensors and numbers.
        """
        self._fail_at_random()
        value = x * getattr(factor, "factor", factor)
        if factor == 13:
            raise ValueError("thirteen")
        for name in self.calls[number]:
            found = getattr(self, f"_{name}")(value, x, y, more)
            if name in RESULTS:
                return found
            if self.is_breaking:
                # In another segment, perhaps: parts of the call have run then.
                self._fail_at_random()
            value = found
        raise AssertionError

    def _fail_at_random(self) -> None:
        if self._faults is None or not self.device.is_capturing():
            return
        kind = self._faults.random()
        if kind < 0.05:
            self.num_faults += 1
            raise LookupError("drawn inside a capture")
        if kind < 0.1:
            self.num_faults += 1
            torch.zeros(1, device=self.device.torch_device).item()
        if kind < 0.15:
            self.num_faults += 1
            self.kept = torch.ones(3, device=self.device.torch_device) * 2

    def _linear(self, value: Tensor, x: Tensor, y: Tensor, more: Any) -> Tensor:
        hidden: Tensor = self.layer(value)
        return torch.relu(hidden) - y

    def _write_x(self, value: Tensor, x: Tensor, y: Tensor, more: Any) -> Tensor:
        x[:, 1:].mul_(0.5)
        return value + x

    def _write_y(self, value: Tensor, x: Tensor, y: Tensor, more: Any) -> Tensor:
        y.add_(value)
        return x - y

    def _write_state(self, value: Tensor, x: Tensor, y: Tensor, more: Any) -> Tensor:
        self.state[0].mul_(0.5).add_(value[:1].sum(0))
        return value + self.state[0]

    def _nested(self, value: Tensor, x: Tensor, y: Tensor, more: Any) -> Tensor:
        found: Tensor = more["z"][0]
        times: int = more["n"]
        return value + found * times

    def _columns(self, value: Tensor, x: Tensor, y: Tensor, more: Any) -> Tensor:
        return value.t().contiguous().t() * 2

    def _break(self, value: Tensor, x: Tensor, y: Tensor, more: Any) -> Tensor:
        return self.eager(value) if self.is_breaking else value * 3

    def _on_host(self, value: Tensor) -> Tensor:
        return value * (2.0 if float(value.sum()) > 0 else -1.0)

    def _one(self, value: Tensor, x: Tensor, y: Tensor, more: Any) -> Any:
        return value + 1

    def _several(self, value: Tensor, x: Tensor, y: Tensor, more: Any) -> Any:
        both = value + x
        return {"a": both, "b": [both[:, 2:], x, len(more)], "c": (self.state, y[:1])}

    def _views(self, value: Tensor, x: Tensor, y: Tensor, more: Any) -> Any:
        return x.t(), value.t(), more["z"]


STEPS = ("linear", "write_x", "write_y", "write_state", "nested", "columns", "break")
RESULTS = ("one", "several", "views")


def arguments(draw: random.Random, seed: int, device: GraphDevice) -> tuple[Any, ...]:
    """Return the arguments of one call but its number, as `draw` says."""
    generator = torch.Generator().manual_seed(seed)
    rows = draw.choice((0, 1, 2, 3))
    memory = torch.randn(4, 4, WIDTH, generator=generator).to(device.torch_device)
    kind = draw.randrange(8)
    x, y = memory[0, :rows], memory[1, 4 - rows :]
    if kind == 0:
        x = memory[2].flatten()[1 : 1 + rows * WIDTH].view(rows, WIDTH)
    elif kind == 1:
        x = memory[2].new_zeros(WIDTH, rows).copy_(memory[2, :rows].t()).t()
    elif kind == 2:
        y = x
    elif kind == 3 and rows:
        x = memory[0, :rows]
        y = memory.flatten()[2 : 2 + rows * WIDTH].view(rows, WIDTH)
    else:
        x, y = x.clone(), y.clone()
    factor: Any = draw.choice((1, 1, 2.0, 2.0, True, 0.5))
    if draw.random() < 0.03:
        factor = draw.choice((13, Unknown(2.0), float("nan"), -0.0))
    more = {"z": (memory[3, :rows].clone(), "text"), "n": draw.choice((1, 2))}
    return x, y, factor, more
