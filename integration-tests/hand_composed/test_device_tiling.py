"""FIA that reads lengths and its division among cores on the device: graphs without any update."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
import torch

import cann_sim
from attn_update import Recorder, RecordingError
from attn_update.kinds import DeviceLengthAttention, default_kinds, metadata_kinds
from attn_update.producers import Producer, ProducerError, ProducerLane, ProducerStep
from cann_sim.engine_kernels.vllm_ascend_fused_infer import register
from npu_graph_runtime.errors import ReplayRefusedError

if TYPE_CHECKING:
    from npu_graph_runtime import NpuDevice
    from npu_graph_runtime.device import DeviceGraph

KIND, KEY = "fused_infer_attention_sink", "decode"
HEADS, KV_HEADS, WIDTH, BLOCK, LAYERS = 4, 2, 64, 16, 3
NEEDS = {"lengths": {}, "metadata": {"batch_size": 3}}
STEPS = (([1, 4, 5], [7, 48, 20]), ([2, 3, 5], [33, 1, 47]), ([0, 5, 5], [0, 9, 0]))


@dataclass(kw_only=True)
class Layers:
    """Layers of one graph, whose lengths are in two buffers."""

    device: NpuDevice

    def __post_init__(self) -> None:
        register()
        torch.manual_seed(0)
        self.producers = ProducerLane(self.device)
        self.recorder = Recorder(self.device, {**default_kinds(), **metadata_kinds()})
        self.ends, self.keys = (torch.tensor([1, 4, 5]).to("npu") for _ in range(2))
        self.metadata = torch.zeros(1024, dtype=torch.int32).to("npu")
        mask = torch.triu(torch.ones(2048, 2048), diagonal=1)
        self.tensors = {
            "query": torch.randn(5, HEADS, WIDTH).bfloat16().to("npu"),
            "block_table": torch.randperm(10)[:9].reshape(3, 3).int().to("npu"),
            "atten_mask": mask.to(torch.int8).to("npu"),
        }
        self.caches = [
            [torch.randn(10, KV_HEADS, BLOCK, WIDTH).bfloat16().to("npu") for _ in range(2)]
            for _ in range(LAYERS)
        ]
        self.attributes: dict[str, Any] = {
            "num_query_heads": HEADS,
            "num_key_value_heads": KV_HEADS,
            "softmax_scale": 0.1,
            "input_layout": "TND",
            "sparse_mode": 3,
            "block_size": BLOCK,
        }

    def made(self) -> list[Producer]:
        """Return the producers of the lengths and of the metadata."""
        kind = metadata_kinds()[KIND]
        assert isinstance(kind, DeviceLengthAttention)
        metadata = Producer.calling(
            kind.metadata[0],
            name="metadata",
            arguments={
                "num_heads_q": HEADS,
                "num_heads_kv": KV_HEADS,
                "head_dim_qk": WIDTH,
                "head_dim_v": WIDTH,
                "actual_seq_lengths": self.ends,
                "actual_seq_lengths_kv": self.keys,
                "batch_size": 3,
                "sparse_mode": 3,
                "input_layout": "TND",
                "input_layout_kv": "PA",
                "block_size": BLOCK,
            },
            buffer=self.metadata,
        )
        lengths = Producer(name="lengths", launch=self.write, buffers=(self.ends, self.keys))
        return [lengths, metadata]

    def write(self, values: torch.Tensor) -> None:
        """Write the lengths of a step."""
        self.ends.copy_(values[0])
        self.keys.copy_(values[1])

    def attend(self, layer: int, name: str | None = None) -> torch.Tensor:
        """Launch one layer."""
        key, value = self.caches[layer]
        arguments = {
            **self.tensors,
            **self.attributes,
            "key": key,
            "value": value,
            "actual_seq_qlen": self.ends,
            "actual_seq_kvlen": self.keys,
            "meta_data": self.metadata,
        }
        return self.recorder.attention(name or f"layers.{layer}", KIND, arguments)[0]

    def expected(self, layer: int, ends: list[int], keys: list[int]) -> torch.Tensor:
        """Return what FIA v2 gives with these lengths on the host."""
        key, value = self.caches[layer]
        found: torch.Tensor = torch.ops.npu.npu_fused_infer_attention_score_v2(
            **self.tensors,
            **self.attributes,
            key=key,
            value=value,
            actual_seq_qlen=ends,
            actual_seq_kvlen=keys,
        )[0]
        return found.cpu()

    def capture(
        self, made: list[Producer], *, captured: bool = False
    ) -> tuple[DeviceGraph, list[torch.Tensor]]:
        """Capture all layers with their producers."""
        graph = self.device.create_graph()
        with (
            self.recorder.recording(KEY, graph=graph),
            self.device.capture(graph, pool=self.device.create_memory_pool()),
            self.producers.recording(self.recorder, made, captured=captured),
        ):
            outputs = [self.attend(layer) for layer in range(LAYERS)]
        return graph, outputs


def test_replays_of_new_lengths_equal_lengths_on_the_host(device: NpuDevice) -> None:
    layers = Layers(device=device)
    graph, outputs = layers.capture(layers.made())
    before = cann_sim.counters()
    for ends, keys in STEPS:
        values = torch.tensor([ends, keys]).to("npu")
        layers.producers.run(ProducerStep(key=KEY, needs=NEEDS, values=values), graph.replay)
        for layer, found in enumerate(outputs):
            assert torch.equal(found.cpu(), layers.expected(layer, ends, keys))
            assert torch.equal(found.cpu(), layers.attend(layer, "eager").cpu())
    counted = cann_sim.counters() - before
    assert (counted.replays, counted.task_updates) == (len(STEPS), 0)


def test_producers_inside_of_the_graph_are_refused(device: NpuDevice) -> None:
    layers = Layers(device=device)
    with pytest.raises(ProducerError) as raised:
        layers.capture(layers.made()[1:], captured=True)
    assert "expected a stream that is not captured" in str(raised.value.__cause__)


def test_a_capture_without_the_producer_of_the_metadata_is_refused(device: NpuDevice) -> None:
    layers = Layers(device=device)
    with pytest.raises(RecordingError, match="expected 'meta_data' in a buffer of a producer"):
        layers.capture(layers.made()[:1])


def test_a_replay_without_its_producers_is_refused(device: NpuDevice) -> None:
    layers = Layers(device=device)
    graph, _ = layers.capture(layers.made())
    with pytest.raises(ReplayRefusedError, match="its producers have not run for this replay"):
        graph.replay()
