"""Layers that launch attention twice, as latent attention does under context parallelism.

One launch reads the history in the paged cache, the other the step's own keys. A step gives each
the lengths of its own.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
import torch

import cann_sim
from attn_update import (
    AutomaticRecording,
    PlanError,
    RecordingError,
    StepParameters,
    UpdatableLayers,
    UpdateLane,
    UpdatePlan,
)
from npu_graph_testing.attention import CapturedModel, assert_layers_equal

if TYPE_CHECKING:
    from collections.abc import Mapping

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
            outputs += self.launch(f"layers.{layer}", launch, step, arguments)
        return torch.cat([out.float().flatten() for out in outputs])

    def launch(
        self, layer: str, launch: str, step: Step, arguments: dict[str, Any]
    ) -> tuple[torch.Tensor, ...]:
        """Run one launch of a layer."""
        return self.recorder.attention(layer, self.kind_name, arguments, launch=launch)


class CallingModel(TwoLaunchModel):
    """Calls the operator, as a model that knows no recorder."""

    def launch(
        self, layer: str, launch: str, step: Step, arguments: dict[str, Any]
    ) -> tuple[torch.Tensor, ...]:
        outputs: tuple[torch.Tensor, ...] = torch.ops.npu.npu_fused_infer_attention_score(
            **arguments
        )
        return outputs


@dataclass(kw_only=True)
class LayersModel(CallingModel):
    """Gives its launches to `UpdatableLayers`, by the calls of its operator or without them."""

    layers: UpdatableLayers
    by_call: bool

    def capture(self, *keys: int) -> None:
        for key in keys:
            step = self.captured_step(key)
            self.eager(key, step)
            self.graphs[key] = graph = self.device.create_graph()
            with self.layers.recording(key), self.device.capture(graph, pool=self.pool):
                self.outputs[key] = self.eager(key, step)

    def launch(
        self, layer: str, launch: str, step: Step, arguments: dict[str, Any]
    ) -> tuple[torch.Tensor, ...]:
        if not self.device.is_capturing():
            return super().launch(layer, launch, step, arguments)
        read = partial(self.lengths, launch)
        if not self.by_call:
            return self.layers.attention(
                layer, self.kind_name, step, arguments, read, launch=launch
            )
        with self.layers.recording_layer(layer, self.kind_name, step, read, launch=launch):
            return super().launch(layer, launch, step, arguments)


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


def launch_of(arguments: Mapping[str, object]) -> str:
    return "current" if arguments.get("block_table") is None else "history"


def test_launches_of_a_model_that_calls_the_operator_are_told_apart_by_their_arguments(
    npu_device: NpuDevice,
) -> None:
    random, lane = Random(7), UpdateLane(npu_device)
    model = CallingModel(device=npu_device)
    mode = AutomaticRecording(
        model.recorder,
        operators={"npu::npu_fused_infer_attention_score": model.kind_name},
        layer_name=lambda _, position: f"layers.{position // 2}",
        launch=launch_of,
    )
    with mode:
        model.capture(2, 4)
    assert [*model.recorder.records(2).records][:2] == ["layers.0:current", "layers.0:history"]
    for key in (2, 4, 2):
        step = draw(random, key)
        assert_layers_equal(model.step(lane, key, step), model.eager(key, step))


@pytest.mark.parametrize("by_call", [False, True], ids=["attention", "recording_layer"])
def test_launches_of_updatable_layers_have_lengths_of_their_own(
    npu_device: NpuDevice, by_call: bool
) -> None:
    random, names = Random(7), [f"layers.{layer}" for layer in range(3)]
    layers = UpdatableLayers(UpdateLane(npu_device), names)
    model = LayersModel(device=npu_device, layers=layers, by_call=by_call)
    model.capture(2, 4)
    for key in (2, 4, 2):
        step = draw(random, key)
        with layers.step(key, dict.fromkeys(names, step)):
            model.graphs[key].replay()
        assert_layers_equal(model.outputs[key], model.eager(key, step))


@pytest.mark.parametrize(
    ("names", "reason"),
    [
        (["layers.0", "layers.1"], r"'layers\.1' .* not recorded"),
        ([], r"'layers\.0:current' was recorded and not expected"),
    ],
)
def test_updatable_layers_whose_launches_are_not_those_declared_are_refused(
    npu_device: NpuDevice, names: list[str], reason: str
) -> None:
    layers = UpdatableLayers(UpdateLane(npu_device), names)
    model = LayersModel(device=npu_device, num_layers=1, layers=layers, by_call=False)
    with pytest.raises(PlanError, match=reason):
        model.capture(2)
