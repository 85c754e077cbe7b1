"""Layers that launch attention twice, as latent attention does under context parallelism.

One launch reads the history in the paged cache, the other the step's own keys. A step gives each
the lengths of its own.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
import torch

import cann_sim
from attn_update import PlanError, RecordingError, StepParameters, UpdateLane, UpdatePlan
from npu_graph_testing.attention import CapturedModel, assert_layers_equal

if TYPE_CHECKING:
    from attn_update import Lengths, UpdaterChoice
    from npu_graph_runtime import NpuDevice

HEADS, DIM, ROPE_DIM = 4, 512, 64
BLOCK_SIZE, COLUMNS, BLOCKS = 16, 3, 8
TOKENS = 3
LAUNCHES = ("current", "history")


@dataclass(frozen=True)
class Step:
    """Where the queries of each sequence end, and how many keys each has in the cache."""

    ends: list[int]
    history: list[int]


@dataclass(kw_only=True)
class TwoLaunchModel(CapturedModel[Step]):
    """Layers of two launches, which differ in keys, lengths and logarithms of the softmax sums."""

    kind_name: str = "latent_attention_v1"
    launches: tuple[str, ...] = LAUNCHES
    shared: dict[int, dict[str, Any]] = field(default_factory=dict)
    caches: list[dict[str, torch.Tensor]] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Make the caches."""
        super().__post_init__()
        for _ in range(self.num_layers):
            key = self.random(BLOCKS, 1, BLOCK_SIZE, DIM)
            rope = self.random(BLOCKS, 1, BLOCK_SIZE, ROPE_DIM)
            self.caches.append({"key": key, "value": key, "key_rope": rope})

    def step_arguments(self, key: int, step: Step) -> dict[str, Lengths]:
        """Groups are given in `parameters`."""
        raise NotImplementedError

    def parameters(self, key: int, step: Step) -> StepParameters:
        """Return the step parameters of both launches."""
        return StepParameters(
            key=key, groups={launch: self.lengths(launch, step) for launch in LAUNCHES}
        )

    def lengths(self, launch: str, step: Step) -> dict[str, Lengths]:
        keys = step.history if launch == "history" else step.ends
        return {"actual_seq_lengths": step.ends, "actual_seq_lengths_kv": keys}

    def captured_step(self, key: int) -> Step:
        """Return one token of each sequence in the cache, and as many queries of each."""
        return Step([TOKENS * (i + 1) for i in range(key)], [1] * key)

    def arguments(self, key: int, layer: int, step: Step) -> dict[str, object]:
        """Return what both launches of a layer are called with."""
        if key not in self.shared:
            table = torch.arange(key * COLUMNS, dtype=torch.int32).reshape(key, COLUMNS) % BLOCKS
            tokens = key * TOKENS
            own = self.random(tokens, 1, DIM)
            self.shared[key] = {
                "query": self.random(tokens, HEADS, DIM),
                "query_rope": self.random(tokens, HEADS, ROPE_DIM),
                "table": table.to(self.device.torch_device),
                "own": {"key": own, "value": own, "key_rope": self.random(tokens, 1, ROPE_DIM)},
            }
        return self.shared[key]

    def attention(self, key: int, layer: int, step: Step) -> torch.Tensor:
        """Run both launches of one layer, and return their outputs as one tensor."""
        shared: dict[str, Any] = dict(self.arguments(key, layer, step))
        table, own = shared.pop("table"), shared.pop("own")
        fixed = {
            "input_layout": "TND",
            "num_heads": HEADS,
            "num_key_value_heads": 1,
            "scale": (DIM + ROPE_DIM) ** -0.5,
            "softmax_lse_flag": True,
        }
        of_launch = {
            "history": {**self.caches[layer], "block_table": table, "block_size": BLOCK_SIZE},
            "current": own,
        }
        outputs: list[torch.Tensor] = []
        for launch in self.launches:
            arguments = {**shared, **fixed, **of_launch[launch], **self.lengths(launch, step)}
            outputs += self.recorder.attention(
                f"layers.{layer}", self.kind_name, arguments, launch=launch
            )
        return torch.cat([out.float().flatten() for out in outputs])


def draw(random: Random, key: int) -> Step:
    total = TOKENS * key
    ends = [*sorted(random.randint(0, total) for _ in range(key - 1)), total]
    return Step(ends, [random.randint(1, BLOCK_SIZE * COLUMNS) for _ in range(key)])


def test_both_launches_of_each_layer_are_updated_with_lengths_of_their_own(
    npu_device: NpuDevice, any_updater: UpdaterChoice
) -> None:
    random = Random(7)
    model = TwoLaunchModel(device=npu_device)
    model.capture(2, 4)
    lane = UpdateLane(npu_device, updater=any_updater)
    for _ in range(8):
        key = random.choice([2, 4])
        step = draw(random, key)
        before = cann_sim.counters().task_updates
        found = model.step(lane, key, step)
        lane.drain()
        assert cann_sim.counters().task_updates - before == 2 * model.num_layers
        assert_layers_equal(found, model.eager(key, step))


def test_launches_are_recorded_under_layer_and_launch_and_grouped_by_launch(
    npu_device: NpuDevice,
) -> None:
    model = TwoLaunchModel(device=npu_device, num_layers=1)
    model.capture(2)
    names = ["layers.0:current", "layers.0:history"]
    plan = UpdatePlan.compile(model.recorder, 2, layers=names)
    assert [update.layer_name for update in plan.updates] == names
    assert plan.groups.keys() == set(LAUNCHES)
    with pytest.raises(PlanError, match=r"'layers\.0:history' was recorded and not expected"):
        UpdatePlan.compile(model.recorder, 2, layers=names[:1])


def test_second_launch_under_the_name_of_the_first_is_refused(
    npu_device: NpuDevice,
) -> None:
    model = TwoLaunchModel(device=npu_device, num_layers=1, launches=("history", "history"))
    with pytest.raises(RecordingError, match=r"'layers\.0:history'.*recorded already.*launch="):
        model.capture(2)
