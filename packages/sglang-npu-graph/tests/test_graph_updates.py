"""Graphs of a target and a draft runner, updated as SGLang does, on simulated CANN without it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
import torch

import cann_sim
from attn_update import StepParameterError, UpdateError, UpdateLane
from npu_graph_runtime import NpuDevice
from npu_graph_testing.attention import PagedModel, assert_layers_equal
from sglang_npu_graph.graph_updates import GraphUpdates

if TYPE_CHECKING:
    from collections.abc import Iterator

LENGTHS = "actual_seq_lengths_kv"


def npu() -> Any:
    return vars(torch)["npu"]


@dataclass(kw_only=True)
class Runner:
    """What one of the engine's runners has: a model, its graphs by number of sequences, updates."""

    model: PagedModel
    updates: GraphUpdates
    graphs: dict[int, Any] = field(default_factory=dict)

    def capture(self, key: int, *, records: bool = True) -> None:
        """Capture by torch_npu's own recording, or with lengths that stay as they are."""
        self.model.eager(key, [1] * key)
        self.updates.forget(key)
        operator = torch.ops.npu.npu_fused_infer_attention_score
        self.graphs[key] = npu().NPUGraph()
        with npu().graph(self.graphs[key], auto_dispatch_capture=records):
            self.model.outputs[key] = []
            for layer in range(self.model.num_layers):
                given: dict[str, Any] = self.model.arguments(key, layer, [1] * key)
                tensors = [given.pop(name) for name in ("query", "key", "value")]
                self.model.outputs[key].append(operator(*tensors, **given)[0])
        self.updates.add(key, self.graphs[key])

    def check(self, key: int, lengths: list[int]) -> None:
        """Update and compare with the eager operator."""
        self.updates.update(key, [{LENGTHS: lengths}])
        assert_layers_equal(self.model.outputs[key], self.model.eager(key, lengths))


@pytest.fixture
def runners() -> Iterator[tuple[Runner, Runner]]:
    cann_sim.activate()
    device = NpuDevice(0)
    with device.use_stream(device.create_stream()):
        lane = UpdateLane(device)
        target, draft = (
            Runner(
                model=PagedModel(device=device, num_layers=layers),
                updates=GraphUpdates(device, lane),
            )
            for layers in (3, 2)
        )
        for runner in (target, draft):
            runner.capture(4)
            runner.capture(2)
        yield target, draft
    device.synchronize()


def test_target_and_draft_share_a_lane_and_not_their_keys(runners: tuple[Runner, Runner]) -> None:
    target, draft = runners
    before = cann_sim.counters().synchronisations
    for step in range(3):
        target.updates.update(4, [{LENGTHS: [5 + step, 6, 17, 0]}])
        draft.updates.update(4, [{LENGTHS: [7, 8 + step, 1, 0]}])
        target.updates.update(2, [{LENGTHS: [20, 21 + step]}])
    assert cann_sim.counters().synchronisations == before
    target.check(4, [9, 30, 2, 40])
    draft.check(4, [9, 30, 2, 41])
    target.check(2, [48, 1])


def test_each_launch_of_a_draft_graph_takes_lengths_of_its_own(
    runners: tuple[Runner, Runner],
) -> None:
    _, draft = runners
    given = [[3, 4], [30, 1]]
    draft.updates.update(2, [{LENGTHS: each} for each in given])
    for layer, each in enumerate(given):
        expected = draft.model.eager(2, each)[layer]
        assert_layers_equal([draft.model.outputs[2][layer]], [expected])


def test_a_graph_is_captured_again_under_its_key(runners: tuple[Runner, Runner]) -> None:
    target, _ = runners
    target.check(2, [5, 6])
    npu().synchronize()
    target.capture(2)
    target.check(2, [9, 4])
    target.check(4, [9, 4, 7, 1])


def test_a_graph_without_records_is_just_replayed(runners: tuple[Runner, Runner]) -> None:
    target, _ = runners
    target.capture(3, records=False)
    assert not target.updates.has(3)
    assert not target.updates.left_out


def test_an_operator_without_a_kind_is_left_to_the_engine_with_the_reason(
    runners: tuple[Runner, Runner],
) -> None:
    target, _ = runners
    records = target.graphs[2].graph_dispatch_mode.graph_dispatch_records
    records[1].op_cache_entry = torch.ops.aten.relu.default
    target.updates.add(2, target.graphs[2])
    assert not target.updates.has(2)
    assert "aten::relu" in target.updates.left_out[2]
    target.check(4, [5, 6, 7, 8])
    target.capture(2)
    assert not target.updates.left_out
    target.check(2, [9, 4])


def test_a_refused_step_launches_nothing(runners: tuple[Runner, Runner]) -> None:
    target, _ = runners
    before = cann_sim.counters().replays
    with pytest.raises(StepParameterError, match=r"did you mean .*actual_seq_lengths_kv"):
        target.updates.update(2, [{"actual_seq_kvlen": [5, 6]}])
    assert cann_sim.counters().replays == before
    target.check(2, [5, 6])


def test_a_failed_update_is_an_error_and_the_next_step_is_right(
    runners: tuple[Runner, Runner],
) -> None:
    target, _ = runners
    with cann_sim.injected_faults("task_update:1"), pytest.raises(UpdateError):
        target.updates.update(2, [{LENGTHS: [5, 6]}])
    npu().synchronize()
    target.check(2, [7, 8])


def test_after_clear_nothing_is_updated(runners: tuple[Runner, Runner]) -> None:
    target, draft = runners
    target.updates.clear()
    assert not target.updates.has(2)
    assert not target.updates.has(4)
    draft.check(2, [7, 8])
