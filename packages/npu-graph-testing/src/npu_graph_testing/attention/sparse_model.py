"""A small model of sparse attention whose lengths and selection producers make on the device."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from attn_update import Recorder, StepParameters, UpdateLane, UpdatePlan
from attn_update.producers import Producer, ProducerLane, ProducerStep

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from npu_graph_runtime import GraphDevice
    from npu_graph_runtime.device import DeviceGraph

BLOCKS, BLOCK_SIZE, COLUMNS, CHOSEN = 8, 16, 3, 6
LONGEST = BLOCK_SIZE * COLUMNS
HEADS, LATENT_DIM, ROPE_DIM, INDEX_DIM = 4, 512, 64, 128
MOST_TOKENS, MOST_SEQUENCES = 6, 4


@dataclass(frozen=True, kw_only=True)
class DrawnStep:
    """A step of one key.

    Attributes:
        counts: Query tokens of each sequence, all tokens of the key together; int32 on the device.
        lengths: Keys of each sequence; int32 on the device.
        host: Query ends and key lengths on the host, for the layer that is updated.
        needs: What the step needs of the producers' bounds.
        expected: What the layers give eagerly, on the CPU.
    """

    counts: torch.Tensor
    lengths: torch.Tensor
    host: dict[str, list[int]]
    needs: dict[str, dict[str, int]]
    expected: list[torch.Tensor]


@dataclass(kw_only=True)
class Buffers:
    """What producers of several keys write, each key the front of it.

    Attributes:
        ends: Where the queries of each sequence end; int32.
        lengths: Keys of each sequence; int32.
        chosen: The keys that each token looks at, [tokens, 1, chosen]; int32.
        given: What producers inside a graph make both from, [2, sequences]; int32.
    """

    ends: torch.Tensor
    lengths: torch.Tensor
    chosen: torch.Tensor
    given: torch.Tensor

    @classmethod
    def make(cls, device: GraphDevice) -> Buffers:
        """Return new buffers."""

        def integers(*shape: int) -> torch.Tensor:
            return torch.ones(shape, dtype=torch.int32).to(device.torch_device)

        return cls(
            ends=integers(MOST_SEQUENCES),
            lengths=integers(MOST_SEQUENCES),
            chosen=integers(MOST_TOKENS, 1, CHOSEN),
            given=integers(2, MOST_SEQUENCES),
        )


@dataclass(kw_only=True)
class SparseModel:
    """One graph: a layer of fused attention, which is updated, between two of sparse attention.

    Attributes:
        device: Runs it; it has torch_npu's operators.
        lane: Updates the graph.
        buffers: What they write; graphs of other keys may share it.
        sequences: How many, 4 at most.
        tokens: Query tokens of all sequences, 6 at most.
        captured: Whether the producers are captured into the graph.
    """

    device: GraphDevice
    lane: UpdateLane
    producers: ProducerLane
    buffers: Buffers
    key: str
    sequences: int
    tokens: int
    captured: bool
    recorder: Recorder = field(init=False)
    graph: DeviceGraph = field(init=False)
    plan: UpdatePlan = field(init=False)
    outputs: list[torch.Tensor] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.recorder = Recorder(self.device)
        generator = torch.Generator().manual_seed(self.tokens)

        def random(*shape: int) -> torch.Tensor:
            return torch.randn(shape, generator=generator).half().to(self.device.torch_device)

        table = torch.randint(0, BLOCKS, (self.sequences, COLUMNS), generator=generator)
        self.table = table.int().to(self.device.torch_device)
        self.index = {
            "query": random(self.tokens, 64, INDEX_DIM),
            "key": random(BLOCKS, BLOCK_SIZE, 1, INDEX_DIM),
            "weights": random(self.tokens, 64),
        }
        self.query = random(self.tokens, HEADS, LATENT_DIM)
        self.rope = random(self.tokens, HEADS, ROPE_DIM)
        self.caches = [
            (random(BLOCKS, BLOCK_SIZE, 1, LATENT_DIM), random(BLOCKS, BLOCK_SIZE, 1, ROPE_DIM))
            for _ in range(2)
        ]
        self.fused_query = random(self.tokens, HEADS, 16)
        self.fused_cache = random(BLOCKS, BLOCK_SIZE, HEADS * 16)
        # All that a graph keeps stays at its address.
        self.ends = self.buffers.ends[: self.sequences]
        self.lengths = self.buffers.lengths[: self.sequences]
        self.chosen = self.buffers.chosen[: self.tokens]
        self.given = self.buffers.given[:, : self.sequences]

    def make_producers(self) -> list[Producer]:
        """Return the producers, not in the order of their stages."""
        bounds = {"sequences": self.sequences, "longest": LONGEST}
        given = (self.given[0], self.given[1]) if self.captured else ()
        return [
            Producer(
                name="indexer",
                launch=lambda _: self.chosen.copy_(self.choose(self.ends, self.lengths)),
                buffers=(self.chosen,),
                inputs=(self.ends, self.lengths, *self.index.values(), self.table),
                bounds={"longest": LONGEST},
                stage=1,
            ),
            Producer(
                name="lengths",
                launch=self._make_lengths,
                buffers=(self.ends, self.lengths),
                inputs=given,
                bounds=bounds,
            ),
        ]

    def choose(self, ends: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        """Return the keys that each token looks at."""
        chosen: torch.Tensor = torch.ops.npu.npu_lightning_indexer(
            **self.index,
            actual_seq_lengths_query=ends,
            actual_seq_lengths_key=lengths,
            block_table=self.table,
            layout_query="TND",
            layout_key="PA_BSND",
            sparse_count=CHOSEN,
        )[0]
        return chosen

    def layers(
        self,
        ends: torch.Tensor,
        lengths: torch.Tensor,
        chosen: torch.Tensor,
        host: dict[str, list[int]],
    ) -> list[torch.Tensor]:
        """Run all layers by the recorder."""
        first = self._sparse(0, ends, lengths, chosen)
        second = self._fused(host)
        return [first, second, self._sparse(2, ends, lengths, chosen)]

    def capture(self) -> None:
        """Capture the graph."""
        host = {"actual_seq_lengths": [*range(1, self.sequences), self.tokens]}
        host["actual_seq_lengths_kv"] = [LONGEST] * self.sequences
        self.graph = self.device.create_graph()
        counts = torch.ones(self.sequences, dtype=torch.int32)
        counts[-1] += self.tokens - self.sequences
        longest = torch.full_like(counts, LONGEST)
        drawn = [each.to(self.device.torch_device) for each in (counts, longest)]
        self.producers.run_now(self.make_producers(), None if self.captured else drawn)
        self.layers(self.ends, self.lengths, self.chosen, host)
        made = self.make_producers()
        pool = self.device.create_memory_pool()
        with (
            self.recorder.recording(self.key, graph=self.graph),
            self.device.capture(self.graph, pool=pool),
            self.producers.recording(self.recorder, made, captured=self.captured),
        ):
            self.outputs = self.layers(self.ends, self.lengths, self.chosen, host)
        self.plan = UpdatePlan.compile(self.recorder, self.key)

    def draw(self, random: Random) -> DrawnStep:
        """Return a step with what its layers give eagerly."""
        cuts = sorted(random.sample(range(1, self.tokens), self.sequences - 1))
        host_ends = [*cuts, self.tokens]
        counts = [end - start for start, end in zip([0, *cuts], host_ends, strict=True)]
        lengths = [random.randint(count, LONGEST) for count in counts]
        host = {"actual_seq_lengths": host_ends, "actual_seq_lengths_kv": lengths}
        counts_on, lengths_on, ends = (
            torch.tensor(each, dtype=torch.int32).to(self.device.torch_device)
            for each in (counts, lengths, host_ends)
        )
        out = self.layers(ends, lengths_on, self.choose(ends, lengths_on), host)
        longest = max(lengths)
        return DrawnStep(
            counts=counts_on,
            lengths=lengths_on,
            host=host,
            needs={
                "lengths": {"sequences": self.sequences, "longest": longest},
                "indexer": {"longest": longest},
            },
            expected=[each.cpu() for each in out],
        )

    def step(self, drawn: DrawnStep) -> ProducerStep:
        """Return what the producers of a step are given."""
        values = None if self.captured else (drawn.counts, drawn.lengths)
        return ProducerStep(key=self.key, needs=drawn.needs, values=values)

    def run(self, drawn: DrawnStep) -> list[torch.Tensor]:
        """Run one step and return copies of its outputs, queued after the replay."""
        self.run_with(drawn, lambda: self.replay_graph(drawn))
        return [out.clone() for out in self.outputs]

    def run_with(self, drawn: DrawnStep, replay: Callable[[], None]) -> None:
        """Run one step with a replay of its graph."""
        parameters = StepParameters(key=self.key, groups={"default": dict(drawn.host)})
        step = self.step(drawn)
        self.lane.run(self.plan, parameters, lambda: self.producers.run(step, replay))

    def replay_graph(self, drawn: DrawnStep) -> None:
        """Replay the graph, which reads its inputs anew where it has the producers."""
        if self.captured:
            self.given[0].copy_(drawn.counts)
            self.given[1].copy_(drawn.lengths)
        self.graph.replay()

    def _make_lengths(self, values: Any) -> None:
        counts, lengths = (self.given[0], self.given[1]) if values is None else values
        torch.cumsum(counts, 0, dtype=torch.int32, out=self.ends)
        self.lengths.copy_(lengths)

    def _fused(self, host: dict[str, list[int]]) -> torch.Tensor:
        arguments = {
            "query": self.fused_query,
            "key": self.fused_cache,
            "value": self.fused_cache,
            "block_table": self.table,
            "block_size": BLOCK_SIZE,
            "input_layout": "TND",
            "num_heads": HEADS,
            "num_key_value_heads": HEADS,
            "scale": 0.25,
            **host,
        }
        return self.recorder.attention("layers.1", "fused_infer_attention_v1", arguments)[0]

    def _sparse(
        self, layer: int, ends: torch.Tensor, lengths: torch.Tensor, chosen: torch.Tensor
    ) -> torch.Tensor:
        latent, rope = self.caches[layer // 2]
        arguments = {
            "query": self.query,
            "query_rope": self.rope,
            "key": latent,
            "value": latent,
            "key_rope": rope,
            "sparse_indices": chosen,
            "block_table": self.table,
            "actual_seq_lengths_query": ends,
            "actual_seq_lengths_kv": lengths,
            "scale_value": (LATENT_DIM + ROPE_DIM) ** -0.5,
            "layout_query": "TND",
            "layout_kv": "PA_BSND",
            "attention_mode": 2,
        }
        return self.recorder.attention(f"layers.{layer}", "sparse_flash_attention", arguments)[0]
