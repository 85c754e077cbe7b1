"""Kinds that read their lengths on the device, on simulated CANN: captured and never updated."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

import pytest
import torch

import cann_sim
from attn_update import (
    ArgumentError,
    PlanError,
    Recorder,
    RecordingError,
    StepParameters,
    UpdateLane,
    UpdatePlan,
)
from attn_update.kinds import DeviceLengthAttention, default_kinds
from attn_update.kinds.kind import needs_update

if TYPE_CHECKING:
    from collections.abc import Iterator

    from npu_graph_runtime import NpuDevice

SEQUENCES, KEYS, DIM = 3, 12, 8


@pytest.fixture
def kind() -> Iterator[DeviceLengthAttention]:
    """Sums the values of as many keys as a tensor of the device says."""
    namespace = f"attn_update_test_{uuid.uuid4().hex}"
    library: Any = torch.library.Library(namespace, "DEF")  # type: ignore[no-untyped-call]
    library.define("attention(Tensor query, Tensor value, Tensor lengths) -> Tensor")

    def attention(query: torch.Tensor, value: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        positions = torch.arange(KEYS, device=value.device, dtype=lengths.dtype)
        seen = (positions < lengths.unsqueeze(1)).to(value.dtype)
        return query + (value * seen.unsqueeze(2)).sum(1)

    library.impl("attention", attention, "CompositeExplicitAutograd")
    yield DeviceLengthAttention(
        operator=f"{namespace}::attention", length_arguments=frozenset({"lengths"})
    )
    library._destroy()


def make_arguments() -> dict[str, Any]:
    value = torch.arange(SEQUENCES * KEYS * DIM, dtype=torch.float32).reshape(SEQUENCES, KEYS, DIM)
    lengths = torch.ones(SEQUENCES, dtype=torch.int32)
    query = torch.zeros(SEQUENCES, DIM)
    tensors = {"query": query, "value": value, "lengths": lengths}
    return {name: tensor.to("npu") for name, tensor in tensors.items()}


def test_replay_reads_new_device_lengths_without_an_update(
    npu_device: NpuDevice, kind: DeviceLengthAttention
) -> None:
    recorder = Recorder(npu_device, {**default_kinds(), "sparse": kind})
    arguments = make_arguments()
    graph = npu_device.create_graph()
    with (
        recorder.recording("decode"),
        npu_device.capture(graph, pool=npu_device.create_memory_pool()),
    ):
        (out,) = recorder.attention("layers.0", "sparse", arguments)
    plan = UpdatePlan.compile(recorder, "decode", layers=["layers.0"])
    assert (plan.updates, plan.groups) == ((), {})
    lane = UpdateLane(npu_device)
    before = cann_sim.counters()
    for lengths in ([3, 12, 0], [4, 1, 9]):
        arguments["lengths"].copy_(torch.tensor(lengths, dtype=torch.int32))
        lane.run(plan, StepParameters(key="decode"), graph.replay)
        (expected,) = recorder.attention("layers.0", "sparse", arguments)
        assert torch.equal(out.cpu(), expected.cpu())
    after = cann_sim.counters()
    assert (after.replays - before.replays, after.task_updates - before.task_updates) == (2, 0)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"lengths": [1, 2, 3]}, "expected 'lengths' on npu:0.*found list"),
        ({"lengths": torch.ones(3)}, "expected 'lengths' on npu:0.*found cpu"),
        ({"length": None}, "did you mean 'lengths'"),
        ({"query": None}, "expected a tensor as 'query'"),
    ],
)
def test_lengths_that_would_be_fixed_at_capture_are_refused(
    npu_device: NpuDevice, kind: DeviceLengthAttention, change: dict[str, Any], reason: str
) -> None:
    recorder = Recorder(npu_device, {"sparse": kind})
    arguments = make_arguments()
    graph = npu_device.create_graph()
    with (
        recorder.recording("decode"),
        npu_device.capture(graph, pool=npu_device.create_memory_pool()),
    ):
        before = cann_sim.counters().captured_launches
        with pytest.raises(ArgumentError, match=reason):
            recorder.attention("layers.0", "sparse", {**arguments, **change})
        assert cann_sim.counters().captured_launches == before
        recorder.attention("layers.0", "sparse", arguments)
        with pytest.raises(RecordingError, match="recorded already"):
            recorder.attention("layers.0", "sparse", arguments)
    with pytest.raises(PlanError, match=r"layers\.1"):
        UpdatePlan.compile(recorder, "decode", layers=["layers.0", "layers.1"])


def test_only_kinds_without_step_arguments_need_no_update(kind: DeviceLengthAttention) -> None:
    assert not needs_update(kind)
    needless = [name for name, kind in default_kinds().items() if not needs_update(kind)]
    assert needless == [
        "sparse_flash_attention",
        "kv_quant_sparse_flash_attention",
        "lightning_indexer",
        "quant_lightning_indexer",
    ]
