"""Paged attention of ATB: its workspace, its refusals, and calls that are recorded by dispatch."""

from __future__ import annotations

import importlib
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
import torch

from attn_update import (
    ArgumentError,
    AutomaticRecording,
    StepParameterError,
    UpdateLane,
    UpdatePlan,
)
from attn_update.kinds import PagedAttention
from attn_update.operator_lookup import find_operator
from attn_update.recording.workspace import WorkspaceNeeds
from npu_graph_testing.attention.cases import CaseModel, find_case

if TYPE_CHECKING:
    from collections.abc import Mapping

    from npu_graph_runtime import NpuDevice

LONGEST, MOST_WORKSPACE = 48, 6144


def make_model(device: NpuDevice, **given: Any) -> CaseModel:
    return CaseModel(device=device, case=find_case("paged attention"), **given)


def arguments(model: CaseModel, key: int = 2) -> dict[str, Any]:
    return model.arguments(key, 0, model.captured_step(key))


def asked_bytes(given: dict[str, Any], length: int) -> int:
    """Return the operator's own workspace need for a length of all sequences."""
    ask: Any = torch.ops.atb._npu_paged_attention_get_workspace
    lens = torch.full((len(given["query"]),), length, dtype=torch.int32)
    asked = ask(**{**given, "context_lens": lens, "out": torch.empty_like(given["query"])})
    size: int = asked.numel()
    return size


def test_attention_equals_the_operator(npu_device: NpuDevice) -> None:
    model = make_model(npu_device)
    given = {**arguments(model), "context_lens": [5, LONGEST]}
    (found,) = model.recorder.attention("layer", "paged_attention", given)
    out = torch.empty_like(given["query"])
    operator: Any = torch.ops.atb._npu_paged_attention
    operator(**{**given, "context_lens": torch.tensor([5, LONGEST], dtype=torch.int32), "out": out})
    assert torch.equal(found.cpu(), out.cpu())
    (same,) = model.recorder.attention("layer", "paged_attention", {**given, "out": out})
    assert same is out


def test_workspace_serves_every_length_although_the_longest_need_less(
    npu_device: NpuDevice,
) -> None:
    given = arguments(make_model(npu_device))
    given["block_table"] = torch.zeros(2, 600, dtype=torch.int32).to(npu_device.torch_device)
    needed = PagedAttention().workspace_bytes(given)
    longest = 600 * 16
    assert asked_bytes(given, longest) < asked_bytes(given, MOST_WORKSPACE)
    for length in (1, 128, MOST_WORKSPACE - 16, MOST_WORKSPACE, MOST_WORKSPACE + 1, longest):
        assert asked_bytes(given, length) <= needed


@pytest.mark.parametrize("most", [1, 128, 3000, 5000, MOST_WORKSPACE, 9000])
def test_workspace_serves_devices_that_need_the_most_at_another_length(
    npu_device: NpuDevice, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    """The simulated query needs the most at one length, so it answers for that one in its place."""
    given = arguments(make_model(npu_device))
    given["block_table"] = torch.zeros(2, 600, dtype=torch.int32).to(npu_device.torch_device)

    def find(name: str) -> Any:
        operator: Any = find_operator(name)

        def ask(context_lens: torch.Tensor, **other: Any) -> Any:
            swapped = {most: MOST_WORKSPACE, MOST_WORKSPACE: most}
            lens = [swapped.get(length, length) for length in context_lens.tolist()]
            return operator(context_lens=torch.tensor(lens, dtype=torch.int32), **other)

        return ask

    # The package has a function of the module's name.
    module = importlib.import_module("attn_update.kinds.paged_attention")
    monkeypatch.setattr(module, "find_operator", find)
    assert PagedAttention().workspace_bytes(given) == asked_bytes(given, MOST_WORKSPACE)


def test_workspace_is_requested_once_for_all_layers(npu_device: NpuDevice) -> None:
    model, needs = make_model(npu_device), WorkspaceNeeds()
    asked = list[object]()

    class Counted(PagedAttention):
        def workspace_bytes(self, arguments: Mapping[str, object]) -> int:
            asked.append(arguments)
            return super().workspace_bytes(arguments)

    kind, given = Counted(), arguments(model)
    needed = needs.of(kind, given)
    assert needs.of(kind, {**given, "query": torch.empty_like(given["query"])}) == needed
    assert len(asked) == 1
    table = torch.zeros(2, 600, dtype=torch.int32).to(npu_device.torch_device)
    assert needs.of(kind, {**given, "block_table": table}) > needed
    assert len(asked) == 2


def test_workspace_is_one_buffer_for_all_layers_and_keys(npu_device: NpuDevice) -> None:
    model = make_model(npu_device, num_layers=3)
    model.capture(2, 4)
    assert model.recorder.workspace.num_buffers == 1
    before = model.recorder.workspace.allocated_bytes
    lane, random = UpdateLane(npu_device), Random(3)
    for key in (2, 4, 2):
        model.run(lane, model.draw(random, key))
    assert model.recorder.workspace.allocated_bytes == before


def test_calls_of_the_operator_are_recorded_by_dispatch(npu_device: NpuDevice) -> None:
    model = make_model(npu_device)
    given, lens = arguments(model), torch.tensor([1, 1], dtype=torch.int32)
    out = torch.zeros_like(given["query"])
    operator: Any = torch.ops.atb._npu_paged_attention
    graph, pool = npu_device.create_graph(), npu_device.create_memory_pool()
    with (
        model.recorder.recording(2),
        AutomaticRecording(model.recorder),
        npu_device.capture(graph, pool=pool),
    ):
        assert operator(**{**given, "context_lens": lens, "out": out}) is None
    plan = UpdatePlan.compile(model.recorder, 2)
    assert [update.layer_name for update in plan.updates] == ["_npu_paged_attention.0"]
    model.plans[2] = plan
    lane = UpdateLane(npu_device)
    lane.run(plan, model.parameters(2, {"context_lens": [7, 33]}), graph.replay)
    found = out.clone()
    operator(**{**given, "context_lens": torch.tensor([7, 33], dtype=torch.int32), "out": out})
    assert torch.equal(found.cpu(), out.cpu())


def test_short_batch_is_padded_with_empty_sequences() -> None:
    given = {
        "query": torch.zeros(3, 4, 16),
        "key_cache": torch.zeros(8, 16, 2, 16),
        "value_cache": torch.zeros(8, 16, 2, 16),
        "block_table": torch.zeros(3, 3, dtype=torch.int32),
        "context_lens": [1, 1, 1],
    }
    kind = PagedAttention()
    geometry = kind.geometry(given)
    prepared = kind.prepare({"context_lens": [9, 5]}, geometry, pad=True, what="a step")
    lens = prepared["context_lens"]
    assert isinstance(lens, torch.Tensor)
    assert (lens.tolist(), lens.dtype) == ([9, 5, 0], torch.int32)
    with pytest.raises(StepParameterError, match="expected 3 lengths as captured, found 2"):
        kind.prepare({"context_lens": [9, 5]}, geometry, pad=False, what="a step")


def test_lengths_of_a_step_are_copied() -> None:
    given = {
        "query": torch.zeros(1, 4, 16),
        "key_cache": torch.zeros(8, 16, 2, 16),
        "block_table": torch.zeros(1, 3, dtype=torch.int32),
        "context_lens": [1],
    }
    kind, lens = PagedAttention(), torch.tensor([9], dtype=torch.int32)
    geometry = kind.geometry(given)
    prepared = kind.prepare({"context_lens": lens}, geometry, pad=False, what="a step")
    lens[0] = 5
    copied = prepared["context_lens"]
    assert isinstance(copied, torch.Tensor)
    assert copied.tolist() == [9]


@pytest.mark.parametrize(
    ("change", "error", "reason"),
    [
        ({"context_len": [1, 1]}, ArgumentError, "did you mean 'context_lens'"),
        ({"workspace": None}, ArgumentError, "'workspace' is allocated by the recorder"),
        ({"context_lens": None}, ArgumentError, "expected 'context_lens'"),
        ({"value_cache": None}, ArgumentError, "'value_cache'.*expected a tensor"),
        ({"context_lens": [1, LONGEST + 1]}, StepParameterError, "3 block table columns of 16"),
        ({"context_lens": [1]}, StepParameterError, "expected 2 lengths"),
        ({"block_table": torch.zeros(1, 3)}, StepParameterError, "2 sequences need as many rows"),
    ],
)
def test_attention_called_wrongly_is_refused_before_any_launch(
    npu_device: NpuDevice, change: dict[str, Any], error: type[Exception], reason: str
) -> None:
    model = make_model(npu_device)
    given = {**arguments(model), **change}
    graph, pool = npu_device.create_graph(), npu_device.create_memory_pool()
    with (
        pytest.raises(error, match=reason),
        model.recorder.recording(2),
        npu_device.capture(graph, pool=pool),
    ):
        model.recorder.attention("layer", "paged_attention", given)
