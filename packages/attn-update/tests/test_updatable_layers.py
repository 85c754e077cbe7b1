"""Layers that share their metadata, recorded and updated on simulated CANN."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pytest
import torch

import cann_sim
from attn_update import (
    LaneError,
    PlanError,
    StepParameterError,
    UpdatableLayers,
    UpdateLane,
)
from attn_update.kinds import FusedInferAttention
from npu_graph_runtime import NpuDevice
from npu_graph_testing.attention import PagedModel, assert_layers_equal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from attn_update import Lengths

NAMES = ("layers.0", "layers.1", "layers.2")


@dataclass(frozen=True, kw_only=True)
class Metadata:
    """An engine's metadata of a layer."""

    query_ends: list[int]
    key_lengths: list[int]
    table: torch.Tensor


def read_lengths(metadata: Metadata) -> dict[str, Lengths]:
    return {
        "actual_seq_lengths": metadata.query_ends,
        "actual_seq_lengths_kv": metadata.key_lengths,
        "block_table": metadata.table,
    }


@dataclass(kw_only=True)
class Decode:
    """Three layers, of which the last has metadata of its own, and their graph."""

    model: PagedModel
    update: UpdatableLayers
    graph: Any = None
    outputs: Any = None

    def metadata(self, shared: list[int], own: list[int]) -> dict[str, Metadata]:
        arguments: Any = self.model.arguments(2, 0, shared)
        first = Metadata(query_ends=[1, 2], key_lengths=shared, table=arguments["block_table"])
        last = replace(first, key_lengths=own)
        return {"layers.0": first, "layers.1": first, "layers.2": last}

    def settle(self) -> None:
        """Wait for all that was launched."""
        device: Any = self.model.device
        device.synchronize()

    def capture(
        self, names: tuple[str, ...] = NAMES, key: str = "decode", pool: object = None
    ) -> None:
        """Capture as our runtime does, or as the engine into a pool of its own."""
        metadata = self.metadata([1, 1], [1, 1])
        device = self.model.device
        self.graph = device.create_graph()
        with (
            self.update.recording(key),
            device.capture(self.graph, pool=device.create_memory_pool())
            if pool is None
            else torch.get_device_module("npu").graph(self.graph, pool=pool),
        ):
            self.outputs = [
                self.update.attention(
                    name,
                    FusedInferAttention(rebind_block_table=True),
                    metadata[name],
                    self.model.arguments(2, NAMES.index(name), [1, 1]),
                    read_lengths,
                )[0]
                for name in names
            ]

    def step(self, shared: list[int], own: list[int]) -> None:
        self.update.begin("decode", self.metadata(shared, own))
        self.graph.replay()
        assert self.update.finish()

    def check(self, shared: list[int], own: list[int]) -> None:
        self.step(shared, own)
        assert_layers_equal(self.outputs[:2], self.model.eager(2, shared)[:2])
        assert_layers_equal(self.outputs[2:], self.model.eager(2, own)[2:])


@pytest.fixture
def decode() -> Iterator[Decode]:
    cann_sim.activate()
    device = NpuDevice(0)
    with device.use_stream(device.create_stream()):
        model = PagedModel(device=device)
        made = Decode(model=model, update=UpdatableLayers(UpdateLane(device), frozenset(NAMES)))
        made.capture()
        yield made
    device.synchronize()


def test_each_layer_takes_the_lengths_of_its_metadata(decode: Decode) -> None:
    before = cann_sim.counters().synchronisations
    for shared, own in (([5, 6], [30, 2]), ([6, 7], [31, 3]), ([6, 7], [1, 48])):
        decode.step(shared, own)
    assert cann_sim.counters().synchronisations == before
    decode.check([9, 1], [48, 48])


def test_layers_that_share_otherwise_than_at_capture_are_refused(decode: Decode) -> None:
    metadata = decode.metadata([5, 6], [7, 8])
    metadata["layers.1"] = replace(metadata["layers.1"])
    with pytest.raises(StepParameterError, match=r"layers of 'layers\.0' shared"):
        decode.update.begin("decode", metadata)
    assert not decode.update.finish()
    decode.check([5, 6], [7, 8])


@pytest.mark.parametrize("left", [None, "layers.0", "layers.1"])
def test_a_step_without_metadata_of_a_layer_is_refused(decode: Decode, left: str | None) -> None:
    """As an idle rank under data parallelism might run one."""
    metadata = decode.metadata([5, 6], [7, 8])
    given = None if left is None else {name: metadata[name] for name in metadata if name != left}
    with pytest.raises(StepParameterError, match="found none of '" + (left or NAMES[0])):
        decode.update.begin("decode", given)
    assert not decode.update.finish()
    decode.check([5, 6], [7, 8])


def test_a_step_whose_replay_failed_is_given_up(decode: Decode) -> None:
    decode.update.begin("decode", decode.metadata([5, 6], [7, 8]))
    decode.update.abandon()
    decode.update.abandon()
    decode.update.begin("decode", decode.metadata([5, 6], [7, 8]))
    decode.graph.replay()
    decode.update.abandon()
    decode.settle()
    decode.check([9, 4], [2, 3])


def test_a_step_is_a_context_around_the_replay(decode: Decode) -> None:
    given = decode.metadata([5, 6], [7, 8])
    with decode.update.step("decode", given):
        decode.graph.replay()
    assert_layers_equal(decode.outputs[2:], decode.model.eager(2, [7, 8])[2:])

    def fail_behind_the_replay() -> None:
        decode.graph.replay()
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), decode.update.step("decode", given):
        fail_behind_the_replay()
    decode.settle()
    decode.check([9, 4], [2, 3])


def test_a_graph_is_captured_again_under_its_key(decode: Decode) -> None:
    decode.check([5, 6], [7, 8])
    decode.settle()
    decode.capture()
    decode.check([9, 4], [2, 3])


def test_the_engine_captures_again_into_its_pool_when_all_was_released(decode: Decode) -> None:
    """torch_npu refuses a pool without a graph that still has memory in use, such as workspace."""
    npu = torch.get_device_module("npu")
    pool = npu.graph_pool_handle()
    decode.update = UpdatableLayers(decode.update.lane, frozenset(NAMES))
    for _ in range(2):
        decode.capture(key="other", pool=pool)
        other = decode.graph
        decode.capture(pool=pool)
        decode.check([9, 4], [2, 3])
        decode.settle()
        decode.outputs = None
        decode.graph.reset()
        other.reset()
        decode.update.release_all()


def test_a_graph_of_some_layers_is_refused(decode: Decode) -> None:
    with pytest.raises(PlanError, match=r"layers\.2"):
        decode.capture(NAMES[:2])
    assert not decode.update.is_recorded("decode")
    decode.settle()
    decode.capture()
    decode.check([9, 4], [2, 3])


def test_a_graph_without_attention_is_not_ours(decode: Decode) -> None:
    with decode.update.recording("other"):
        pass
    assert not decode.update.is_recorded("other")
    assert decode.update.is_recorded("decode")
    with decode.update.recording("other"):
        pass
    with pytest.raises(LaneError, match="none was begun"):
        decode.update.lane.finish()
