"""Graphs whose attention tasks an engine captured by provider and layer name, without the engine.

`Task` and `Provider` hold what vllm-ascend's classes of these names do, and `capture_task` calls
torch_npu as its `UpdatableGraph.register_task` does.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import torch

import cann_sim
from attn_update import RecordingError, StepParameterError, UpdateLane
from npu_graph_runtime import NpuDevice
from npu_graph_testing.attention import PagedModel, assert_layers_equal, draw_lengths
from vllm_npu_graph.v0_30.task_updates import TaskUpdates, make_recorder

if TYPE_CHECKING:
    from collections.abc import Iterator

SEQUENCES = 2
NAMES = ("layers.0", "layers.1", "layers.2")


@dataclass(frozen=True)
class Provider:
    """Reads what a step changes; with a window the table stays the captured one."""

    layer_name: str
    has_window: bool = False

    def resolve(self, metadata: dict[str, Any]) -> dict[str, Any]:
        own = metadata[self.layer_name]
        given = {
            "actual_seq_lengths": own.actual_seq_lengths_q,
            "actual_seq_lengths_kv": own.seq_lens_list,
        }
        return given if self.has_window else {**given, "block_table": own.block_tables}


@dataclass
class Task:
    operation: Any
    kwargs: dict[str, Any]
    provider: Any
    handle: Any
    event: Any


class Engine:
    """Three layers, captured for two sequences."""

    def __init__(self, device: NpuDevice, providers: list[Provider]) -> None:
        self.device = device
        self.model = PagedModel(device=device, num_layers=len(providers))
        self.npu: Any = vars(torch)["npu"]
        self.tasks: list[Task] = []
        self.model.eager(SEQUENCES, [1] * SEQUENCES)
        self.graph = device.create_graph()
        with device.capture(self.graph, pool=device.create_memory_pool()):
            self.outputs = [
                self.capture_task(layer, provider) for layer, provider in enumerate(providers)
            ]

    def capture_task(self, layer: int, provider: Provider) -> torch.Tensor:
        given: dict[str, Any] = self.model.arguments(SEQUENCES, layer, [1] * SEQUENCES)
        output, lse = torch.empty_like(given["query"]), given["query"].new_empty(1)
        query = torch.ops.npu._npu_fused_infer_attention_score_get_max_workspace
        given |= {"workspace": query(**given), "out": [output, lse]}
        operation = torch.ops.npu.npu_fused_infer_attention_score.out
        stream, event = self.npu.current_stream(), self.npu.ExternalEvent()
        event.wait(stream)
        event.reset(stream)
        self.npu.graph_task_group_begin(stream)
        operation(**given)
        handle = self.npu.graph_task_group_end(stream)
        self.tasks.append(Task(operation, given, provider, handle, event))
        return output

    def metadata(self, *steps: list[int]) -> dict[str, Any]:
        """Return a step's metadata: one object for all layers, or one for each."""
        table = self.model.inputs[SEQUENCES]["block_table"]
        made = [
            SimpleNamespace(actual_seq_lengths_q=[1, 2], seq_lens_list=step, block_tables=table)
            for step in steps
        ]
        return {name: made[layer % len(made)] for layer, name in enumerate(NAMES)}

    def updates(self, lane: UpdateLane, *captured: list[int]) -> TaskUpdates:
        """Return the updates of a graph of which each metadata object of the capture has a step."""
        recorder = make_recorder(self.device)
        metadata = self.metadata(*captured)
        return TaskUpdates(self.graph, self.tasks, recorder, lane, "decode", metadata)

    def assert_step(self, *steps: list[int]) -> None:
        expected = [self.model.eager(SEQUENCES, step) for step in steps]
        own = [expected[layer % len(steps)][layer] for layer in range(len(NAMES))]
        assert_layers_equal([out.clone() for out in self.outputs], own)


@pytest.fixture
def device() -> Iterator[NpuDevice]:
    cann_sim.activate()
    made = NpuDevice(0)
    with made.use_stream(made.create_stream()):
        yield made
    made.synchronize()


@pytest.mark.parametrize("updater", ["native", "kernels", "operators"])
def test_steps_equal_the_eager_operator_without_a_synchronisation(
    device: NpuDevice, updater: Any
) -> None:
    engine, random = Engine(device, [Provider(name) for name in NAMES]), Random(3)
    lane = UpdateLane(device, updater=updater)
    updates = engine.updates(lane, [1, 1])
    for _ in range(4):
        step = draw_lengths(random, SEQUENCES)
        before = cann_sim.counters().synchronisations
        updates.replay(engine.metadata(step))
        assert cann_sim.counters().synchronisations == before
        engine.assert_step(step)
    assert lane.counters.updater_steps == (0 if updater == "operators" else 4)


def test_layers_with_other_metadata_and_windows_have_their_own_lengths(device: NpuDevice) -> None:
    providers = [Provider("layers.0"), Provider("layers.1", has_window=True), Provider("layers.2")]
    engine = Engine(device, providers)
    updates = engine.updates(UpdateLane(device), [1, 1], [2, 1])
    for steps in (([5, 40], [6, 41]), ([48, 1], [6, 41])):
        updates.replay(engine.metadata(*steps))
        engine.assert_step(*steps)


def test_layers_that_share_a_cache_and_its_name_are_all_updated(device: NpuDevice) -> None:
    engine = Engine(device, [Provider("layers.0"), Provider("layers.0"), Provider("layers.2")])
    updates = engine.updates(UpdateLane(device), [1, 1])
    updates.replay(engine.metadata([7, 30]))
    engine.assert_step([7, 30])


def test_a_table_in_other_memory_is_taken(device: NpuDevice) -> None:
    engine = Engine(device, [Provider(name) for name in NAMES])
    updates = engine.updates(UpdateLane(device), [1, 1])
    metadata = engine.metadata([20, 33])
    moved = metadata["layers.0"].block_tables.flip(0).contiguous()
    metadata["layers.0"].block_tables = moved
    updates.replay(metadata)
    engine.model.inputs[SEQUENCES]["block_table"] = moved
    engine.assert_step([20, 33])


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (lambda metadata: metadata.pop("layers.1"), "'layers.1' has none"),
        (
            lambda metadata: metadata.update({"layers.2": SimpleNamespace()}),
            "'layers.2' has another",
        ),
        (
            lambda metadata: setattr(metadata["layers.0"], "seq_lens_list", None),
            "expected actual_seq_lengths, actual_seq_lengths_kv, block_table",
        ),
        (lambda metadata: metadata["layers.0"].seq_lens_list.append(1), "expected 2"),
        (lambda metadata: metadata.clear(), "'layers.0' has none"),
    ],
)
def test_a_step_that_does_not_fit_is_refused_before_anything_is_launched(
    device: NpuDevice, spoil: Any, reason: str
) -> None:
    engine = Engine(device, [Provider(name) for name in NAMES])
    updates = engine.updates(UpdateLane(device), [1, 1])
    metadata = engine.metadata([4, 5])
    spoil(metadata)
    before = cann_sim.counters()
    with pytest.raises(StepParameterError, match=reason):
        updates.replay(metadata)
    with pytest.raises(StepParameterError, match="found none; run a step without attention"):
        updates.replay(None)
    counted = cann_sim.counters() - before
    assert (counted.replays, counted.task_updates) == (0, 0)
    updates.replay(engine.metadata([9, 3]))
    engine.assert_step([9, 3])


def test_attention_of_an_unknown_kind_is_refused(device: NpuDevice) -> None:
    engine = Engine(device, [Provider(name) for name in NAMES])
    engine.tasks[1].operation = torch.ops.npu.npu_fused_infer_attention_score_v2.out
    with pytest.raises(RecordingError, match="no kind for npu::npu_fused_infer_attention_score_v2"):
        engine.updates(UpdateLane(device), [1, 1])
