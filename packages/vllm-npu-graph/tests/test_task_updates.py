"""Graphs whose attention tasks an engine captured by provider and layer name, without the engine.

`Task`, `Provider` and the sources hold what vllm-ascend's classes hold, and `capture_task` calls
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


# The names of version 2 for what version 1 takes.
V2_NAMES = {
    "actual_seq_lengths": "actual_seq_qlen",
    "actual_seq_lengths_kv": "actual_seq_kvlen",
    "num_heads": "num_query_heads",
    "scale": "softmax_scale",
}


@dataclass(frozen=True)
class Provider:
    """Reads what a step changes; with a window the table stays the captured one."""

    layer_name: str
    has_window: bool = False
    is_draft: bool = False
    is_v2: bool = False

    def resolve(self, metadata: dict[str, Any]) -> dict[str, Any]:
        own = metadata[self.layer_name]
        names = V2_NAMES if self.is_v2 else {}
        given = {
            names.get("actual_seq_lengths", "actual_seq_lengths"): own.actual_seq_lengths_q,
            names.get("actual_seq_lengths_kv", "actual_seq_lengths_kv"): own.seq_lens_list,
        }
        has_table = not (self.has_window or self.is_v2)
        return {**given, "block_table": own.block_tables} if has_table else given


@dataclass(frozen=True)
class ContextSource:
    """The source of a model's steps: the metadata of each layer by name."""

    context: dict[str, Any] | None

    def get(self, provider: Any) -> list[dict[str, Any]]:
        return [provider.resolve(self.context)]


@dataclass(frozen=True)
class SharedSource:
    """The source of a draft's steps: the arguments of each launch, with the name of its layer."""

    params: list[dict[str, Any]]

    def get(self, provider: Any) -> list[dict[str, Any]]:
        return [
            {name: value for name, value in given.items() if name != "layer_name"}
            for given in self.params
            if given["layer_name"] == provider.layer_name
        ]


@dataclass
class Task:
    operation: Any
    kwargs: dict[str, Any]
    provider: Any
    provider_index: int
    handle: Any
    event: Any


class Engine:
    """Layers that are captured for two sequences, on version 1 or 2 of the operator."""

    def __init__(
        self, device: NpuDevice, providers: list[Provider], names: dict[str, str] | None = None
    ) -> None:
        self.device = device
        self.names = names or {}
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
        index = sum(task.provider == provider for task in self.tasks)
        if index > 0 and provider.is_draft:
            # One sequence of two tokens, as the engine captures all steps of a draft.
            given |= {"actual_seq_lengths": [2], "actual_seq_lengths_kv": [2]}
            given["block_table"] = given["block_table"][:1]
        given = {self.names.get(name, name): value for name, value in given.items()}
        output, lse = torch.empty_like(given["query"]), given["query"].new_empty(1)
        name = f"npu_fused_infer_attention_score{'_v2' if self.names else ''}"
        query = getattr(torch.ops.npu, f"_{name}_get_max_workspace")
        given |= {"workspace": query(**given), "out": [output, lse]}
        operation = getattr(torch.ops.npu, name).out
        stream, event = self.npu.current_stream(), self.npu.ExternalEvent()
        event.wait(stream)
        event.reset(stream)
        self.npu.graph_task_group_begin(stream)
        operation(**given)
        handle = self.npu.graph_task_group_end(stream)
        self.tasks.append(Task(operation, given, provider, index, handle, event))
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
        source = self.source(*captured)
        return TaskUpdates(self.graph, self.tasks, recorder, lane, "decode", source)

    def source(self, *steps: list[int]) -> ContextSource:
        """Return the source of a step."""
        return ContextSource(self.metadata(*steps))

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
        updates.replay(engine.source(step))
        assert cann_sim.counters().synchronisations == before
        engine.assert_step(step)
    assert lane.counters.updater_steps == (0 if updater == "operators" else 4)


def test_layers_with_other_metadata_and_windows_have_their_own_lengths(device: NpuDevice) -> None:
    providers = [Provider("layers.0"), Provider("layers.1", has_window=True), Provider("layers.2")]
    engine = Engine(device, providers)
    updates = engine.updates(UpdateLane(device), [1, 1], [2, 1])
    for steps in (([5, 40], [6, 41]), ([48, 1], [6, 41])):
        updates.replay(engine.source(*steps))
        engine.assert_step(*steps)


def test_steps_of_version_2_equal_the_eager_operator(device: NpuDevice) -> None:
    engine = Engine(device, [Provider(name, is_v2=True) for name in NAMES], V2_NAMES)
    # The engine captures a tensor of key lengths, and gives a list in each step.
    for task in engine.tasks:
        task.kwargs["actual_seq_kvlen"] = torch.tensor([1, 1])
    updates = engine.updates(UpdateLane(device), [1, 1])
    for step in ([5, 40], [48, 1]):
        updates.replay(engine.source(step))
        engine.assert_step(step)


def draft_source(engine: Engine, *steps: list[int]) -> SharedSource:
    """Return the source of a draft with one layer, whose steps have one token a sequence."""
    table = engine.model.inputs[SEQUENCES]["block_table"]
    names = ("layer_name", "actual_seq_lengths", "actual_seq_lengths_kv", "block_table")
    return SharedSource(
        [dict(zip(names, ("layers.0", [1, 2], step, table), strict=True)) for step in steps]
    )


def test_each_step_of_a_draft_has_its_own_lengths_and_as_many_sequences_as_tokens(
    device: NpuDevice,
) -> None:
    engine = Engine(device, [Provider("layers.0", is_draft=True)] * 3)
    captured, recorder = draft_source(engine, [1, 1], [1, 1], [1, 1]), make_recorder(device)
    lane = UpdateLane(device)
    updates = TaskUpdates(engine.graph, engine.tasks, recorder, lane, "draft", captured)
    for first in (4, 30):
        steps = [[first + step, 9 + step] for step in range(3)]
        updates.replay(draft_source(engine, *steps))
        engine.assert_step(*steps)
    with pytest.raises(StepParameterError, match="expected those of 3 launches"):
        updates.replay(draft_source(engine, [1, 1], [2, 2]))


@dataclass(frozen=True)
class PagedProvider:
    """Reads what a step of paged attention changes."""

    layer_name: str

    def resolve(self, metadata: dict[str, Any]) -> dict[str, Any]:
        own = metadata[self.layer_name]
        return {"context_lens": own.seq_lens, "block_table": own.block_tables}


def test_paged_attention_is_captured_with_lengths_that_no_sequence_reaches(
    device: NpuDevice,
) -> None:
    def random(*shape: int) -> torch.Tensor:
        return torch.randn(shape, dtype=torch.float16).to(device.torch_device)

    table = torch.arange(8, dtype=torch.int32).view(2, 4).to(device.torch_device)
    given: dict[str, Any] = {
        "query": random(2, 4, 128),
        "key_cache": random(8, 128, 2, 128),
        "value_cache": random(8, 128, 2, 128),
        "num_kv_heads": 2,
        "num_heads": 4,
        "scale_value": 128**-0.5,
        "block_table": table,
        "context_lens": torch.tensor([6144, 6144], dtype=torch.int32),
        "out": random(2, 4, 128),
    }
    operation = torch.ops.atb._npu_paged_attention
    workspace = torch.ops.atb._npu_paged_attention_get_workspace(**given)
    npu, graph = vars(torch)["npu"], device.create_graph()
    with device.capture(graph, pool=device.create_memory_pool()):
        stream, event = npu.current_stream(), npu.ExternalEvent()
        event.wait(stream)
        event.reset(stream)
        npu.graph_task_group_begin(stream)
        operation(**given, workspace=workspace)
        handle = npu.graph_task_group_end(stream)
    kwargs, provider = {**given, "workspace": workspace}, PagedProvider("layers.0")
    task = Task(operation, kwargs, provider, 0, handle, event)

    def source(lengths: list[int]) -> ContextSource:
        own = SimpleNamespace(seq_lens=torch.tensor(lengths), block_tables=table)
        return ContextSource({"layers.0": own})

    lane, recorder = UpdateLane(device), make_recorder(device)
    updates = TaskUpdates(graph, [task], recorder, lane, "decode", source([1, 1]))
    for lengths in ([5, 400], [512, 1]):
        updates.replay(source(lengths))
        out = given["out"].clone()
        expected = torch.empty_like(out)
        step = {**given, "context_lens": torch.tensor(lengths, dtype=torch.int32), "out": expected}
        operation(**step)
        assert torch.equal(out, expected)


def test_layers_that_share_a_cache_and_its_name_are_all_updated(device: NpuDevice) -> None:
    engine = Engine(device, [Provider("layers.0"), Provider("layers.0"), Provider("layers.2")])
    updates = engine.updates(UpdateLane(device), [1, 1])
    updates.replay(engine.source([7, 30]))
    engine.assert_step([7, 30])


def test_a_table_in_other_memory_is_taken(device: NpuDevice) -> None:
    engine = Engine(device, [Provider(name) for name in NAMES])
    updates = engine.updates(UpdateLane(device), [1, 1])
    metadata = engine.metadata([20, 33])
    moved = metadata["layers.0"].block_tables.flip(0).contiguous()
    metadata["layers.0"].block_tables = moved
    updates.replay(ContextSource(metadata))
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
        updates.replay(ContextSource(metadata))
    with pytest.raises(StepParameterError, match="found none; run a step without attention"):
        updates.replay(ContextSource(None))
    counted = cann_sim.counters() - before
    assert (counted.replays, counted.task_updates) == (0, 0)
    updates.replay(engine.source([9, 3]))
    engine.assert_step([9, 3])


def test_attention_of_an_unknown_kind_is_refused(device: NpuDevice) -> None:
    engine = Engine(device, [Provider(name) for name in NAMES])
    engine.tasks[1].operation = torch.ops.npu.npu_prompt_flash_attention.default
    with pytest.raises(RecordingError, match="no kind for npu::npu_prompt_flash_attention"):
        engine.updates(UpdateLane(device), [1, 1])
