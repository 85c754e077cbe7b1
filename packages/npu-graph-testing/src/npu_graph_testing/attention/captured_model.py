"""Layers of attention, captured for several graph keys and run at once for comparison."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, TypeVar

import torch

from attn_update import Recorder, StepParameters, UpdatePlan

if TYPE_CHECKING:
    from collections.abc import Mapping

    from attn_update import Lengths, ParameterGroup, UpdateLane
    from attn_update.kinds import Kind
    from npu_graph_runtime import GraphDevice
    from npu_graph_runtime.device import DeviceGraph

_Step = TypeVar("_Step")


@dataclass(kw_only=True)
class CapturedModel(ABC, Generic[_Step]):
    """Layers of attention; a graph key is a number of sequences (or whatever the subclass says).

    Attributes:
        dtype: Of all tensors that are not given another.
        kind_name: A kind of the recorder's table.
        kinds: The table of the recorder; default its own.
        num_layers: Layers of each graph.
        fused: Whether plans use fused update calls.
        groups: Declared for every plan; default derived from the capture.
        seed: Of the random values.
        pool: Holds the memory of all graphs.
        outputs: By key, one tuple of tensors for each layer.
    """

    device: GraphDevice
    dtype: torch.dtype = torch.float16
    kind_name: str = "fused_infer_attention_v1"
    kinds: Mapping[str, Kind] | None = None
    num_layers: int = 3
    fused: bool = True
    groups: Mapping[str, ParameterGroup] | None = None
    seed: int = 0
    recorder: Recorder = field(init=False)
    pool: object = field(init=False)
    graphs: dict[int, DeviceGraph] = field(default_factory=dict)
    plans: dict[int, UpdatePlan] = field(default_factory=dict)
    outputs: dict[int, list[torch.Tensor]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.recorder = Recorder(self.device, self.kinds)
        self.pool = self.device.create_memory_pool()

    @abstractmethod
    def step_arguments(self, key: int, step: _Step) -> dict[str, Lengths]:
        """Return the step parameters of a step."""

    @abstractmethod
    def captured_step(self, key: int) -> _Step:
        """Return the step that is captured."""

    @abstractmethod
    def arguments(self, key: int, layer: int, step: _Step) -> dict[str, object]:
        """Return the arguments of attention in one layer."""

    def random(self, *shape: int, dtype: torch.dtype | None = None) -> torch.Tensor:
        """Return a new tensor of normal values on the device, another one at each call."""
        self.seed += 1
        generator = torch.Generator().manual_seed(self.seed)
        values = torch.randn(shape, generator=generator)
        return values.to(dtype or self.dtype).to(self.device.torch_device)

    def parameters(self, key: int, step: _Step) -> StepParameters:
        """Return the step parameters of a step."""
        given = self.step_arguments(key, step)
        return StepParameters(key=key, groups={"default": dict(given)} if given else {})

    def attention(self, key: int, layer: int, step: _Step) -> torch.Tensor:
        """Run the attention of one layer through the recorder."""
        arguments = self.arguments(key, layer, step)
        return self.recorder.attention(f"layers.{layer}", self.kind_name, arguments)[0]

    def capture(self, *keys: int) -> None:
        """Capture a graph for each key, the largest first, and compile the plans."""
        for key in sorted(keys, reverse=True):
            step = self.captured_step(key)
            self.eager(key, step)
            self.graphs[key] = graph = self.device.create_graph()
            recording = self.recorder.recording(key, graph=graph)
            with recording, self.device.capture(graph, pool=self.pool):
                layers = range(self.num_layers)
                self.outputs[key] = [self.attention(key, layer, step) for layer in layers]
            self.plans[key] = UpdatePlan.compile(
                self.recorder, key, groups=self.groups, fused=self.fused
            )

    def eager(self, key: int, step: _Step) -> list[torch.Tensor]:
        """Return the eager outputs of all layers, without a graph."""
        return [self.attention(key, layer, step) for layer in range(self.num_layers)]

    def step(self, lane: UpdateLane, key: int, step: _Step) -> list[torch.Tensor]:
        """Run one step and return copies of its outputs, queued after the replay."""
        parameters = self.parameters(key, step)
        lane.run(self.plans[key], parameters, self.graphs[key].replay)
        return [out.clone() for out in self.outputs[key]]


def assert_layers_equal(outputs: list[torch.Tensor], expected: list[torch.Tensor]) -> None:
    """Compare the outputs of all layers bit by bit.

    Raises:
        AssertionError: A layer differs; the message names it.
    """
    for layer, (out, value) in enumerate(zip(outputs, expected, strict=True)):
        if not torch.equal(out.cpu(), value.cpu()):
            raise AssertionError(f"the outputs of layer {layer} are not those expected")
