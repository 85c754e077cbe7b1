"""Graphs whose attention an engine recorded itself, as vLLM-Ascend does, adopted by a lane.

`full_graph_fia` and `GraphParams` do the same as vLLM-Ascend's function and class of these
names (`attention_v1.py`, `acl_graph.py`); they call torch_npu.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import count
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
import torch

import cann_sim
from attn_update import (
    ArgumentError,
    CapturedLaunch,
    LaneError,
    Recorder,
    RecordingError,
    StepParameterError,
    StepParameters,
    UnknownNameError,
    UpdatableGraph,
    UpdateLane,
)
from npu_graph_testing.attention import PagedModel, assert_layers_equal, draw_lengths
from npu_graph_testing.attention.paged_model import BLOCK_SIZE, HEAD_DIM, HEADS, KV_HEADS

if TYPE_CHECKING:
    from attn_update import UpdaterChoice
    from npu_graph_runtime import NpuDevice

FIA = "npu::npu_fused_infer_attention_score.out"


@dataclass
class GraphParams:
    """vLLM-Ascend's records of captured attention, by number of tokens."""

    events: dict[int, list[Any]] = field(default_factory=dict)
    workspaces: dict[int, torch.Tensor] = field(default_factory=dict)
    handles: dict[int, list[Any]] = field(default_factory=dict)
    attn_params: dict[int, list[tuple[Any, ...]]] = field(default_factory=dict)


class Engine:
    """Layers of paged attention that record themselves while they are captured."""

    def __init__(self, device: NpuDevice, *, num_layers: int = 3) -> None:
        self.device = device
        self.model = PagedModel(device=device, num_layers=num_layers)
        self.params = GraphParams()
        self.graphs: dict[int, Any] = {}
        self.outputs: dict[int, list[torch.Tensor]] = {}
        self.npu: Any = vars(torch)["npu"]
        self.pool = device.create_memory_pool()

    def capture(self, num_tokens: int) -> None:
        for kept in (self.params.events, self.params.handles, self.params.attn_params):
            kept[num_tokens] = []
        self.model.eager(num_tokens, [1] * num_tokens)
        self.graphs[num_tokens] = graph = self.device.create_graph()
        with self.device.capture(graph, pool=self.pool):
            self.outputs[num_tokens] = [
                self.full_graph_fia(num_tokens, layer) for layer in range(self.model.num_layers)
            ]

    def full_graph_fia(self, num_tokens: int, layer: int) -> torch.Tensor:
        params, weak = self.params, self.device.weak_reference
        given: dict[str, Any] = self.model.arguments(num_tokens, layer, [1] * num_tokens)
        workspace = params.workspaces.get(num_tokens)
        if workspace is None:
            query = torch.ops.npu._npu_fused_infer_attention_score_get_max_workspace
            params.workspaces[num_tokens] = workspace = query(**given)
        output, softmax_lse = torch.empty_like(given["query"]), given["query"].new_empty(1)
        stream = self.npu.current_stream()
        event = self.npu.ExternalEvent()
        event.wait(stream)
        event.reset(stream)
        params.events[num_tokens].append(event)
        params.attn_params[num_tokens].append(
            (
                weak(given["query"]),
                weak(given["key"]),
                weak(given["value"]),
                weak(given["block_table"]),
                None,
                BLOCK_SIZE,
                given["actual_seq_lengths_kv"],
                given["actual_seq_lengths"],
                KV_HEADS,
                HEADS,
                HEAD_DIM**-0.5,
                weak(output),
                weak(softmax_lse),
            )
        )
        self.npu.graph_task_group_begin(stream)
        torch.ops.npu.npu_fused_infer_attention_score.out(
            **given, workspace=workspace, out=[output, softmax_lse]
        )
        params.handles[num_tokens].append(self.npu.graph_task_group_end(stream))
        return output

    def launches(self, num_tokens: int) -> list[CapturedLaunch]:
        """Return the engine's records under the names of the operator's arguments."""
        params = self.params
        return [
            CapturedLaunch(
                layer_name=f"layers.{layer}",
                operator=FIA,
                handle=handle,
                event=event,
                arguments={
                    "query": query,
                    "key": key,
                    "value": value,
                    "block_table": block_table,
                    "atten_mask": mask,
                    "input_layout": "TND",
                    "block_size": block_size,
                    "actual_seq_lengths_kv": lengths,
                    "actual_seq_lengths": ends,
                    "num_key_value_heads": kv_heads,
                    "num_heads": heads,
                    "scale": scale,
                    "workspace": params.workspaces[num_tokens],
                    "out": [output, softmax_lse],
                },
            )
            for layer, handle, event, (
                query,
                key,
                value,
                block_table,
                mask,
                block_size,
                lengths,
                ends,
                kv_heads,
                heads,
                scale,
                output,
                softmax_lse,
            ) in zip(
                count(),
                params.handles[num_tokens],
                params.events[num_tokens],
                params.attn_params[num_tokens],
                strict=False,
            )
        ]

    def adopt(
        self, recorder: Recorder, lane: UpdateLane, num_tokens: int, **given: Any
    ) -> UpdatableGraph:
        given = {"launches": self.launches(num_tokens), **given}
        return UpdatableGraph(recorder, num_tokens, self.graphs[num_tokens], lane, **given)


@pytest.fixture
def engine(npu_device: NpuDevice) -> Engine:
    return Engine(npu_device)


def test_steps_of_adopted_graphs_equal_the_eager_operator_without_a_synchronisation(
    engine: Engine, any_updater: UpdaterChoice
) -> None:
    random, lane = Random(5), UpdateLane(engine.device, updater=any_updater)
    recorder = Recorder(engine.device)
    for num_tokens in (4, 2):
        engine.capture(num_tokens)
    graphs = {num_tokens: engine.adopt(recorder, lane, num_tokens) for num_tokens in (4, 2)}
    for _ in range(6):
        before, burst = cann_sim.counters().synchronisations, []
        for _ in range(4):
            key = random.choice([2, 4])
            lengths = draw_lengths(random, key)
            graphs[key].update([{"actual_seq_lengths_kv": lengths}])
            burst.append((key, lengths, [out.clone() for out in engine.outputs[key]]))
        assert cann_sim.counters().synchronisations == before
        for key, lengths, outputs in burst:
            assert_layers_equal(outputs, engine.model.eager(key, lengths))
    assert lane.counters.updater_steps == (0 if any_updater == "operators" else 24)


def test_an_engine_that_replays_elsewhere_brackets_its_replay(engine: Engine) -> None:
    lane = UpdateLane(engine.device)
    engine.capture(2)
    plan = engine.adopt(Recorder(engine.device), lane, 2).plan
    for lengths in ([7, 30], [8, 31], [40, 2]):
        group = {"actual_seq_lengths": [1, 2], "actual_seq_lengths_kv": lengths}
        lane.begin(plan, StepParameters(key=2, groups={"default": group}))
        engine.graphs[2].replay()
        lane.finish()
        outputs = [out.clone() for out in engine.outputs[2]]
        assert_layers_equal(outputs, engine.model.eager(2, lengths))


def test_an_engines_own_updates_may_come_first(engine: Engine) -> None:
    engine.capture(2)
    stream, params = engine.device.create_stream(), engine.params
    for lengths in ([3, 4], [5, 6]):
        engine.graphs[2].replay()
        with engine.device.use_stream(stream):
            for launch in engine.launches(2):
                engine.npu.graph_task_update_begin(stream, launch.handle)
                torch.ops.npu.npu_fused_infer_attention_score.out(
                    **{**launch.arguments, "actual_seq_lengths_kv": lengths}
                )
                engine.npu.graph_task_update_end(stream)
                params.events[2][int(launch.layer_name[-1])].record(stream)
        engine.device.synchronize()
    lane = UpdateLane(engine.device)
    graph = engine.adopt(Recorder(engine.device), lane, 2)
    for lengths in ([9, 1], [1, 48]):
        graph.update([{"actual_seq_lengths_kv": lengths}])
        outputs = [out.clone() for out in engine.outputs[2]]
        assert_layers_equal(outputs, engine.model.eager(2, lengths))


def test_layers_in_groups_take_an_input_for_each_group(engine: Engine) -> None:
    engine.capture(2)
    lane = UpdateLane(engine.device)
    launches = [
        replace(launch, group="even" if number % 2 == 0 else "odd")
        for number, launch in enumerate(engine.launches(2))
    ]
    graph = engine.adopt(Recorder(engine.device), lane, 2, launches=launches)
    even, odd = {"actual_seq_lengths_kv": [9, 30]}, {"actual_seq_lengths_kv": [4, 5]}
    graph.update([even, odd])
    outputs = [out.clone() for out in engine.outputs[2]]
    expected = [engine.model.eager(2, each["actual_seq_lengths_kv"]) for each in (even, odd)]
    assert_layers_equal(outputs, [expected[layer % 2][layer] for layer in range(3)])

    own = [{"actual_seq_lengths_kv": [layer + 1, 20]} for layer in range(3)]
    graph.update([odd, own[1], {}])
    outputs = [out.clone() for out in engine.outputs[2]]
    lengths = [[4, 5], [2, 20], [9, 30]]
    expected = [engine.model.eager(2, each) for each in lengths]
    assert_layers_equal(outputs, [expected[layer][layer] for layer in range(3)])
    with pytest.raises(StepParameterError, match="expected 1 input, or 3"):
        graph.update([even, odd])


@pytest.mark.parametrize(
    ("change", "error", "reason"),
    [
        ({"arguments": {"scael": 1.0}}, RecordingError, "did you mean 'scale'"),
        ({"arguments": {"out": None}}, RecordingError, "found no 'out'"),
        ({"arguments": {"actual_seq_lengths_kv": [1, 99]}}, StepParameterError, "above 48"),
        ({"arguments": {"workspace": torch.empty(1)}}, ArgumentError, "expected a workspace of"),
        ({"operator": "npu::npu_fused_infer"}, RecordingError, "no kind for npu::npu_fused"),
        ({"layer_name": "layers.1"}, RecordingError, "two layers are named 'layers.1'"),
    ],
)
def test_wrong_records_are_refused_and_nothing_is_kept(
    engine: Engine, change: dict[str, Any], error: type[Exception], reason: str
) -> None:
    engine.capture(2)
    recorder, lane = Recorder(engine.device), UpdateLane(engine.device)
    first, *others = engine.launches(2)
    given = {**change, "arguments": {**first.arguments, **change.get("arguments", {})}}
    with pytest.raises(error, match=reason):
        engine.adopt(recorder, lane, 2, launches=[replace(first, **given), *others])
    assert recorder.keys == ()
    engine.adopt(recorder, lane, 2)


def test_an_operator_that_torch_does_not_know_is_named(engine: Engine) -> None:
    engine.capture(2)
    launch = replace(engine.launches(2)[0], operator="npu::missing.out")
    kind = replace(
        engine.model.recorder.kinds["fused_infer_attention_v1"],  # type: ignore[type-var]
        family=replace(
            engine.model.recorder.kinds["fused_infer_attention_v1"].family,  # type: ignore[attr-defined]
            functional="npu::missing",
        ),
    )
    recorder = Recorder(engine.device, {"missing": kind})
    with pytest.raises(UnknownNameError, match="npu::missing"):
        engine.adopt(
            recorder,
            UpdateLane(engine.device),
            2,
            launches=[launch],
            operators={"npu::missing.out": "missing"},
        )


def test_no_launches_are_refused(engine: Engine) -> None:
    engine.capture(2)
    with pytest.raises(RecordingError, match="expected one at least"):
        engine.adopt(Recorder(engine.device), UpdateLane(engine.device), 2, launches=[])


def test_the_replay_of_another_graph_is_refused(engine: Engine) -> None:
    for num_tokens in (4, 2):
        engine.capture(num_tokens)
    lane = UpdateLane(engine.device)
    plan = engine.adopt(Recorder(engine.device), lane, 2).plan
    group = {"actual_seq_lengths": [1, 2], "actual_seq_lengths_kv": [3, 4]}
    with pytest.raises(LaneError, match="another graph"):
        lane.run(plan, StepParameters(key=2, groups={"default": group}), engine.graphs[4].replay)
