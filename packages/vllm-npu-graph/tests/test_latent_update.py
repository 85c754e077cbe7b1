"""Recorded latent attention (MLA), on simulated CANN without the engine."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pytest

import cann_sim
from attn_update import StepParameterError, UpdateLane
from npu_graph_runtime import NpuDevice
from npu_graph_testing.attention import assert_layers_equal
from npu_graph_testing.attention.cases import CaseModel, find_case
from vllm_npu_graph.attention_update import AttentionUpdate, latent_reader

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch

NAMES = ("layers.0", "layers.1")
SEQUENCES = 4


@dataclass(frozen=True, kw_only=True)
class Decode:
    """What the engine's metadata hold for the sequences that decode."""

    block_table: torch.Tensor
    seq_lens_list: list[int]


@dataclass(frozen=True, kw_only=True)
class Metadata:
    """What the engine gives a layer."""

    decode: Decode | None


@dataclass(frozen=True, kw_only=True)
class Context:
    """What the engine's forward context says about a step."""

    batch_descriptor: str
    attn_metadata: dict[str, Metadata]


@dataclass(kw_only=True)
class Step:
    """Two layers and their graph."""

    model: CaseModel
    update: AttentionUpdate
    graph: Any = None
    outputs: Any = None

    def metadata(self, lengths: list[int]) -> dict[str, Metadata]:
        table: Any = self.model.arguments(SEQUENCES, 0, {})["block_table"]
        shared = Metadata(decode=Decode(block_table=table, seq_lens_list=lengths))
        return dict.fromkeys(NAMES, shared)

    def arguments(self, layer: int, lengths: list[int]) -> dict[str, object]:
        return self.model.arguments(SEQUENCES, layer, {"actual_seq_kvlen": lengths})

    def capture(self) -> None:
        lengths = [1] * SEQUENCES
        metadata = self.metadata(lengths)
        self.graph = self.model.device.create_graph()
        with (
            self.update.recording("decode"),
            self.model.device.capture(self.graph, pool=self.model.device.create_memory_pool()),
        ):
            self.outputs = [
                self.update.attention(
                    name,
                    "latent_attention_v2",
                    metadata[name],
                    self.arguments(layer, lengths),
                    latent_reader(self.arguments(layer, lengths)["block_table"]),  # type: ignore[arg-type]
                )[0]
                for layer, name in enumerate(NAMES)
            ]

    def check(self, given: list[int], all_lengths: list[int]) -> None:
        before = cann_sim.counters().synchronisations
        context = Context(batch_descriptor="decode", attn_metadata=self.metadata(given))
        with self.update.replaying(context):
            self.graph.replay()
        assert cann_sim.counters().synchronisations == before
        expected = self.model.eager(SEQUENCES, {"actual_seq_kvlen": all_lengths})
        assert_layers_equal(self.outputs, expected)


@pytest.fixture(params=["BNSD_NBSD", "BNSD_NBSD padded"])
def step(request: pytest.FixtureRequest) -> Iterator[Step]:
    cann_sim.activate()
    device = NpuDevice(0)
    with device.use_stream(device.create_stream()):
        case = find_case(f"latent_attention_v2 {request.param}")
        model = CaseModel(device=device, case=case)
        made = Step(model=model, update=AttentionUpdate(UpdateLane(device), frozenset(NAMES)))
        made.capture()
        yield made
    device.synchronize()


def test_a_step_has_the_lengths_of_its_metadata(step: Step) -> None:
    step.check([5, 40, 7, 48], [5, 40, 7, 48])
    step.check([6, 41, 8, 1], [6, 41, 8, 1])


def test_sequences_that_a_step_does_not_have_are_of_no_length(step: Step) -> None:
    step.check([5, 40, 7, 48], [5, 40, 7, 48])
    step.check([6, 41], [6, 41, 0, 0])


def test_a_block_table_in_other_memory_is_refused(step: Step) -> None:
    metadata = step.metadata([5, 40, 7, 48])
    decode = metadata[NAMES[0]].decode
    assert decode is not None
    other = Metadata(decode=replace(decode, block_table=decode.block_table.clone()))
    with pytest.raises(StepParameterError, match="stands in other memory"):
        step.update.begin("decode", dict.fromkeys(NAMES, other))
    assert not step.update.finish()
    step.check([6, 41, 8, 1], [6, 41, 8, 1])


def test_a_step_in_which_nothing_decodes_is_refused(step: Step) -> None:
    with pytest.raises(StepParameterError, match="no sequence decodes"):
        step.update.begin("decode", dict.fromkeys(NAMES, Metadata(decode=None)))
    assert not step.update.finish()
    step.check([6, 41], [6, 41, 0, 0])
