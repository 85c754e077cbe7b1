"""Layers of paged attention, captured on a device that runs the fused operators."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import torch

from attn_update.recorder import Recorder
from attn_update.step_parameters import StepParameters
from attn_update.task_device import TaskDevice
from attn_update.update_plan import UpdatePlan

if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from random import Random

    from attn_update.update_lane import UpdateLane

HEADS, KV_HEADS, HEAD_DIM, BLOCK_SIZE, COLUMNS, BLOCKS = 4, 2, 16, 16, 3, 8
LONGEST = BLOCK_SIZE * COLUMNS


class ReplayableGraph(Protocol):
    """A captured graph."""

    def replay(self) -> None:
        """Queue the captured work on the current stream."""


class CaptureDevice(TaskDevice, Protocol):
    """A device that also captures graphs; `npu_graph_runtime.NpuDevice` fits."""

    torch_device: torch.device

    def create_memory_pool(self) -> object:
        """Return a new pool for the memory of graphs."""

    def create_graph(self) -> Any:
        """Return an empty graph."""

    def capture(self, graph: Any, *, pool: object) -> AbstractContextManager[object]:
        """Capture into the graph inside the context."""


@dataclass(kw_only=True)
class PagedModel:
    """Layers of paged attention over one cache each, captured for several batch sizes.

    A graph key is a number of sequences, each with one new token. Every layer reads its own cache
    of `BLOCKS` blocks, so layers that take each other's arguments are seen in the values.

    Attributes:
        device: Runs it.
        dtype: Of all tensors but block tables.
        layout: ``TND`` or ``BSH``.
        kind_name: A kind of the fused operators.
        num_layers: Layers of each graph.
        fused: Whether plans use fused update calls.
        seed: Of the random values.
        recorder: Recorded the captures.
        pool: Holds the memory of all graphs.
        caches: One for each layer.
        graphs: By key.
        plans: By key.
        inputs: By key, query and block table.
        outputs: By key, one tensor for each layer.
    """

    device: CaptureDevice
    dtype: torch.dtype = torch.float16
    layout: str = "TND"
    kind_name: str = "fused_infer_attention_v1"
    num_layers: int = 3
    fused: bool = True
    seed: int = 0
    recorder: Recorder = field(init=False)
    pool: object = field(init=False)
    caches: list[torch.Tensor] = field(init=False)
    graphs: dict[int, ReplayableGraph] = field(default_factory=dict)
    plans: dict[int, UpdatePlan] = field(default_factory=dict)
    inputs: dict[int, dict[str, torch.Tensor]] = field(default_factory=dict)
    outputs: dict[int, list[torch.Tensor]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Make the recorder, the pool and the caches."""
        self.recorder = Recorder(self.device)
        self.pool = self.device.create_memory_pool()
        self.caches = [
            self.random(BLOCKS, BLOCK_SIZE, KV_HEADS * HEAD_DIM) for _ in range(self.num_layers)
        ]

    def random(self, *shape: int) -> torch.Tensor:
        """Return a new tensor of normal values, another one at each call."""
        self.seed += 1
        generator = torch.Generator().manual_seed(self.seed)
        values = torch.randn(shape, generator=generator)
        return values.to(self.dtype).to(self.device.torch_device)

    def lengths(self, key: int, lengths: list[int]) -> dict[str, list[int]]:
        """Return the arguments of lengths by name.

        Args:
            key: The number of sequences.
            lengths: Of the keys of each.
        """
        is_v1 = self.kind_name.startswith("fused_infer_attention_v1")
        query, keys = (
            ("actual_seq_lengths", "actual_seq_lengths_kv")
            if is_v1
            else ("actual_seq_qlen", "actual_seq_kvlen")
        )
        own = list(range(1, key + 1)) if self.layout == "TND" else [1] * key
        return {query: own, keys: lengths}

    def parameters(self, key: int, lengths: list[int]) -> StepParameters:
        """Return the step parameters for lengths of keys."""
        return StepParameters(key=key, groups={"default": dict(self.lengths(key, lengths))})

    def arguments(self, key: int, layer: int, lengths: list[int]) -> dict[str, object]:
        """Return what one layer calls attention with."""
        if key not in self.inputs:
            packed = (key, HEADS, HEAD_DIM) if self.layout == "TND" else (key, 1, HEADS * HEAD_DIM)
            table = torch.arange(key * COLUMNS, dtype=torch.int32).reshape(key, COLUMNS) % BLOCKS
            table = table.to(self.device.torch_device)
            self.inputs[key] = {"query": self.random(*packed), "block_table": table}
        is_v1 = self.kind_name.startswith("fused_infer_attention_v1")
        heads, scale = ("num_heads", "scale") if is_v1 else ("num_query_heads", "softmax_scale")
        return {
            **self.inputs[key],
            **self.lengths(key, lengths),
            "key": self.caches[layer],
            "value": self.caches[layer],
            "input_layout": self.layout,
            "block_size": BLOCK_SIZE,
            heads: HEADS,
            "num_key_value_heads": KV_HEADS,
            scale: HEAD_DIM**-0.5,
        }

    def attention(self, key: int, layer: int, lengths: list[int]) -> torch.Tensor:
        """Run the attention of one layer through the recorder."""
        arguments = self.arguments(key, layer, lengths)
        return self.recorder.attention(f"layers.{layer}", self.kind_name, arguments)[0]

    def capture(self, *keys: int) -> None:
        """Capture a graph for each key, with all lengths one, and compile the plans."""
        for key in sorted(keys, reverse=True):
            self.eager(key, [1] * key)
            self.graphs[key] = graph = self.device.create_graph()
            with self.recorder.recording(key), self.device.capture(graph, pool=self.pool):
                layers = range(self.num_layers)
                self.outputs[key] = [self.attention(key, layer, [1] * key) for layer in layers]
            self.plans[key] = UpdatePlan.compile(self.recorder, key, fused=self.fused)

    def eager(self, key: int, lengths: list[int]) -> list[torch.Tensor]:
        """Return what all layers give at once, without a graph."""
        return [self.attention(key, layer, lengths) for layer in range(self.num_layers)]

    def step(self, lane: UpdateLane, key: int, lengths: list[int]) -> list[torch.Tensor]:
        """Run one step and return copies of its outputs, queued behind the replay."""
        lane.run(self.plans[key], self.parameters(key, lengths), self.graphs[key].replay)
        return [out.clone() for out in self.outputs[key]]


def draw_lengths(random: Random, key: int) -> list[int]:
    """Return random lengths of keys that a `PagedModel` can hold."""
    return [random.randint(1, LONGEST) for _ in range(key)]


def assert_layers_equal(outputs: list[torch.Tensor], expected: list[torch.Tensor]) -> None:
    """Compare the outputs of all layers bit by bit.

    Raises:
        AssertionError: A layer differs; the message names it.
    """
    for layer, (out, value) in enumerate(zip(outputs, expected, strict=True)):
        if not torch.equal(out.cpu(), value.cpu()):
            raise AssertionError(f"the outputs of layer {layer} are not those expected")
