"""Layers recorded by the operators they call, with steps of fewer sequences than were captured."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
import torch

import cann_sim
from attn_update import PlanError, StepParameterError, UpdatableLayers, UpdateLane
from npu_graph_runtime import NpuDevice
from npu_graph_testing.attention import assert_layers_equal
from npu_graph_testing.attention.cases import CaseModel, find_case

if TYPE_CHECKING:
    from collections.abc import Iterator

NAMES = ("layers.0", "layers.1")
SEQUENCES = 4
OPERATORS = {
    "latent_attention_v2": "npu_fused_infer_attention_score_v2",
    "fused_infer_attention_v1": "npu_fused_infer_attention_score",
}


@dataclass(frozen=True, kw_only=True)
class Metadata:
    """An engine's metadata of layers: lengths of the sequences of a step, and a table."""

    lengths: list[int]
    table: torch.Tensor | None


def read(metadata: Metadata) -> dict[str, Any]:
    decodes = metadata.table is not None
    lengths = metadata.lengths if decodes else None
    return {
        "actual_seq_lengths": list(range(1, len(metadata.lengths) + 1)),
        "actual_seq_kvlen": lengths,
        "actual_seq_lengths_kv": lengths,
        "block_table": metadata.table,
    }


@dataclass(kw_only=True)
class Engine:
    """Two layers, which call torch_npu's operator, and their graph."""

    model: CaseModel
    layers: UpdatableLayers
    graph: Any = None
    outputs: Any = None

    def arguments(self, layer: int, lengths: list[int]) -> dict[str, Any]:
        step = {"actual_seq_kvlen": lengths}
        if self.model.kind_name == "fused_infer_attention_v1":
            ends = list(range(1, SEQUENCES + 1))
            step = {"actual_seq_lengths": ends, "actual_seq_lengths_kv": lengths}
        arguments: dict[str, Any] = self.model.arguments(SEQUENCES, layer, step)
        return arguments

    def metadata(self, lengths: list[int]) -> dict[str, Metadata]:
        table = self.arguments(0, [])["block_table"]
        return dict.fromkeys(NAMES, Metadata(lengths=lengths, table=table))

    def call(self, layer: int, lengths: list[int]) -> torch.Tensor:
        given = self.arguments(layer, lengths)
        positional = [given.pop(name) for name in ("query", "key", "value")]
        operator = getattr(torch.ops.npu, OPERATORS[self.model.kind_name])
        outputs: tuple[torch.Tensor, ...] = operator(*positional, **given)
        return outputs[0]

    def capture(self, calls: tuple[int, ...] = (1, 1)) -> None:
        """Capture, and call the operator so often in each layer."""
        lengths = [1] * SEQUENCES
        metadata = self.metadata(lengths)
        device = self.model.device
        self.graph = device.create_graph()
        with (
            self.layers.recording("decode"),
            device.capture(self.graph, pool=device.create_memory_pool()),
        ):
            self.outputs = []
            for layer, (name, count) in enumerate(zip(NAMES, calls, strict=True)):
                with self.layers.recording_layer(
                    name, self.model.kind_name, metadata[name], read, pad=True
                ):
                    self.outputs += [self.call(layer, lengths) for _ in range(count)]

    def check(self, given: list[int], all_lengths: list[int]) -> None:
        before = cann_sim.counters().synchronisations
        with self.layers.step("decode", self.metadata(given)):
            self.graph.replay()
        assert cann_sim.counters().synchronisations == before
        expected = [self.call(layer, all_lengths) for layer in range(len(NAMES))]
        assert_layers_equal(self.outputs, expected)


@pytest.fixture(params=["latent_attention_v2 BNSD_NBSD", "v1 decode"])
def engine(request: pytest.FixtureRequest) -> Iterator[Engine]:
    cann_sim.activate()
    device = NpuDevice(0)
    with device.use_stream(device.create_stream()):
        model = CaseModel(device=device, case=find_case(request.param))
        yield Engine(model=model, layers=UpdatableLayers(UpdateLane(device), NAMES))
    device.synchronize()


def test_a_step_has_the_lengths_of_its_metadata(engine: Engine) -> None:
    engine.capture()
    engine.check([5, 40, 7, 48], [5, 40, 7, 48])
    engine.check([6, 41, 8, 1], [6, 41, 8, 1])


def test_sequences_that_a_step_does_not_have_are_of_no_length(engine: Engine) -> None:
    engine.capture()
    engine.check([5, 40, 7, 48], [5, 40, 7, 48])
    engine.check([6, 41], [6, 41, 0, 0])


def test_more_sequences_than_were_captured_are_refused(engine: Engine) -> None:
    engine.capture()
    with pytest.raises(StepParameterError, match="5"):
        engine.layers.begin("decode", engine.metadata([1, 2, 3, 4, 5]))
    engine.check([6, 41], [6, 41, 0, 0])


def test_a_block_table_in_other_memory_is_refused(engine: Engine) -> None:
    engine.capture()
    table = engine.arguments(0, [])["block_table"].clone()
    given = dict.fromkeys(NAMES, Metadata(lengths=[5, 40, 7, 48], table=table))
    with pytest.raises(StepParameterError, match="in other memory"):
        engine.layers.begin("decode", given)
    assert not engine.layers.finish()
    engine.check([6, 41, 8, 1], [6, 41, 8, 1])


def test_a_step_in_which_nothing_decodes_is_refused(engine: Engine) -> None:
    engine.capture()
    given = dict.fromkeys(NAMES, Metadata(lengths=[], table=None))
    with pytest.raises(StepParameterError, match=r"in the metadata of 'layers\.0', found none"):
        engine.layers.begin("decode", given)
    assert not engine.layers.finish()
    engine.check([6, 41], [6, 41, 0, 0])


class _InSteps(UpdatableLayers):
    """Names a layer's launches by their number, as the adapter of vLLM-Ascend does for drafts."""

    def attention(self, layer_name: str, *args: Any, **options: Any) -> tuple[torch.Tensor, ...]:
        return super().attention(f"{layer_name}, step 0", *args, **options)

    def metadata(self, given: dict[str, Metadata]) -> dict[str, Metadata]:
        return {f"{name}, step 0": each for name, each in given.items()}


def test_recorded_layers_go_through_the_method_of_a_subclass(engine: Engine) -> None:
    layers = _InSteps(UpdateLane(engine.model.device), [f"{name}, step 0" for name in NAMES])
    engine.layers = layers
    engine.capture()
    for lengths in ([5, 40, 7, 48], [6, 41, 8, 1]):
        with layers.step("decode", layers.metadata(engine.metadata(lengths))):
            engine.graph.replay()
        expected = [engine.call(layer, lengths) for layer in range(len(NAMES))]
        assert_layers_equal(engine.outputs, expected)


def test_a_layer_that_calls_nothing_is_missing(engine: Engine) -> None:
    with pytest.raises(PlanError, match=r"layers\.1"):
        engine.capture((1, 0))
    assert not engine.layers.is_recorded("decode")


def test_calls_outside_a_capture_run_unchanged(engine: Engine) -> None:
    metadata = engine.metadata([5, 40, 7, 48])
    kind = engine.model.kind_name
    with engine.layers.recording_layer(NAMES[0], kind, metadata[NAMES[0]], read):
        found = engine.call(0, [5, 40, 7, 48])
    assert_layers_equal([found], [engine.call(0, [5, 40, 7, 48])])
    engine.capture()
    engine.check([6, 41, 8, 1], [6, 41, 8, 1])
