"""What a producer lane does beside its order: other ways to call it, and other readers."""

from __future__ import annotations

import os
import subprocess
import sys
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
import torch

from attn_update import (
    ArgumentError,
    Recorder,
    RecordingError,
    StepParameters,
    UnknownNameError,
    UpdateLane,
    UpdatePlan,
)
from attn_update.kinds import (
    DeviceLengthAttention,
    MetadataOperator,
    default_kinds,
    metadata_kinds,
)
from attn_update.kinds.kind import needs_update
from attn_update.producers import Producer, ProducerLane, ProducerStep
from npu_graph_testing.attention import assert_layers_equal
from npu_graph_testing.attention.sparse_model import CHOSEN, Buffers, SparseModel

if TYPE_CHECKING:
    from npu_graph_runtime import NpuDevice


def make_model(device: NpuDevice, *, captured: bool = False, key: str = "decode") -> SparseModel:
    return SparseModel(
        device=device,
        lane=UpdateLane(device),
        producers=ProducerLane(device),
        buffers=Buffers.make(device),
        key=key,
        sequences=3,
        tokens=4,
        captured=captured,
    )


@pytest.mark.parametrize("captured", [False, True], ids=["beside", "inside"])
def test_bracketed_steps_of_both_lanes_equal_eager(npu_device: NpuDevice, captured: bool) -> None:
    model = make_model(npu_device, captured=captured)
    model.capture()
    random = Random(1)
    for _ in range(6):
        drawn = model.draw(random)
        parameters = StepParameters(key="decode", groups={"default": dict(drawn.host)})
        model.lane.begin(model.plan, parameters)
        model.producers.begin(model.step(drawn))
        model.replay_graph(drawn)
        model.producers.finish("decode")
        model.lane.finish()
        assert_layers_equal(model.outputs, drawn.expected)


def test_stream_of_the_lane_may_become_the_one_that_replays(npu_device: NpuDevice) -> None:
    """Streams of torch_npu come from a small pool."""
    model = make_model(npu_device)
    model.capture()
    drawn = model.draw(Random(2))
    with npu_device.use_stream(model.producers.stream):
        assert_layers_equal(model.run(drawn), drawn.expected)
    assert_layers_equal(model.run(drawn), drawn.expected)


INDEXER = MetadataOperator(
    argument="sparse_indices",
    operator="npu::npu_lightning_indexer",
    bounds=frozenset({"sparse_count"}),
    stage=1,
)
SPARSE = DeviceLengthAttention(
    operator="npu::npu_sparse_flash_attention",
    length_arguments=frozenset({"actual_seq_lengths_query", "actual_seq_lengths_kv"}),
    metadata=(INDEXER,),
)


def indexer_arguments(model: SparseModel) -> dict[str, Any]:
    return {
        **model.index,
        "actual_seq_lengths_query": model.ends,
        "actual_seq_lengths_key": model.lengths,
        "block_table": model.table,
        "layout_query": "TND",
        "layout_key": "PA_BSND",
        "sparse_count": CHOSEN,
    }


class KindModel(SparseModel):
    """Its kind of attention says what makes its metadata."""

    def make_producers(self) -> list[Producer]:
        lengths = next(each for each in super().make_producers() if each.name == "lengths")
        arguments = indexer_arguments(self)
        indexer = Producer.calling(INDEXER, name="indexer", arguments=arguments, buffer=self.chosen)
        return [indexer, lengths]


@pytest.mark.parametrize("captured", [False, True], ids=["beside", "inside"])
def test_producer_that_a_kind_declares_calls_its_operator(
    npu_device: NpuDevice, captured: bool
) -> None:
    model = KindModel(
        device=npu_device,
        lane=UpdateLane(npu_device),
        producers=ProducerLane(npu_device),
        buffers=Buffers.make(npu_device),
        key="decode",
        sequences=3,
        tokens=4,
        captured=captured,
    )
    model.recorder = Recorder(npu_device, {**default_kinds(), "sparse_flash_attention": SPARSE})
    model.capture()
    random = Random(1)
    for _ in range(4):
        drawn = model.draw(random)
        drawn.needs["indexer"] = {"sparse_count": CHOSEN}
        assert_layers_equal(model.run(drawn), drawn.expected)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"sparse_count": None}, "expected an integer as 'sparse_count' .* found None"),
        ({"sparse_counts": 3}, "no argument 'sparse_counts'; did you mean 'sparse_count'"),
    ],
)
def test_producer_of_a_kind_refuses_arguments_that_its_operator_does_not_take(
    npu_device: NpuDevice, change: dict[str, Any], reason: str
) -> None:
    model = make_model(npu_device)
    arguments = {**indexer_arguments(model), **change}
    with pytest.raises(ArgumentError, match=reason):
        Producer.calling(INDEXER, name="indexer", arguments=arguments, buffer=model.chosen)


SORTED = MetadataOperator(
    argument="self", operator="aten::sort", bounds=frozenset(), further=("other",)
)
PRODUCT = DeviceLengthAttention(
    operator="aten::mul.Tensor", length_arguments=frozenset({"other"}), metadata=(SORTED,)
)


def sorting(device: NpuDevice) -> tuple[Producer, torch.Tensor, list[torch.Tensor]]:
    given = torch.zeros(4, device=device.torch_device)
    made = [torch.zeros_like(given), torch.zeros_like(given, dtype=torch.int64)]
    producer = Producer.calling(
        SORTED, name="sorted", arguments={"self": given}, buffer=made[0], further=(made[1],)
    )
    return producer, given, made


@pytest.mark.parametrize("captured", [False, True], ids=["beside", "inside"])
def test_producer_that_a_kind_declares_makes_several_arguments(
    npu_device: NpuDevice, captured: bool
) -> None:
    lane, recorder, graph = (
        ProducerLane(npu_device),
        Recorder(npu_device),
        npu_device.create_graph(),
    )
    producer, given, made = sorting(npu_device)
    with (
        recorder.recording("key", graph=graph),
        npu_device.capture(graph, pool=npu_device.create_memory_pool()),
        lane.recording(recorder, [producer], captured=captured),
    ):
        (out,) = recorder.attention("layer", PRODUCT, {"self": made[0], "other": made[1]})
    for values in ([3.0, 1.0, 2.0, 0.5], [1.0, 5.0, 2.0, 4.0]):
        given.copy_(torch.tensor(values))
        lane.run(ProducerStep(key="key", needs={"sorted": {}}), graph.replay)
        ordered, places = torch.tensor(values).sort()
        torch.testing.assert_close(out.cpu(), ordered * places)


def test_each_argument_that_a_kind_names_is_made_by_a_producer(npu_device: NpuDevice) -> None:
    lane, recorder, graph = (
        ProducerLane(npu_device),
        Recorder(npu_device),
        npu_device.create_graph(),
    )
    producer, _, made = sorting(npu_device)
    with (
        pytest.raises(RecordingError, match="expected 'other' in a buffer of a producer"),
        recorder.recording("key", graph=graph),
        npu_device.capture(graph, pool=npu_device.create_memory_pool()),
        lane.recording(recorder, [producer]),
    ):
        recorder.attention("layer", PRODUCT, {"self": made[0], "other": made[1].clone()})


def test_producer_of_a_kind_needs_a_buffer_for_each_named_result(npu_device: NpuDevice) -> None:
    _, given, made = sorting(npu_device)
    for further in ((), (made[1], made[1])):
        with pytest.raises(ArgumentError, match=rf"expected 1 further .* found {len(further)}"):
            Producer.calling(
                SORTED,
                name="sorted",
                arguments={"self": given},
                buffer=made[0],
                further=further,
            )


@pytest.mark.parametrize("name", metadata_kinds())
def test_operators_that_no_library_registers_are_named(name: str) -> None:
    kind = metadata_kinds()[name]
    assert isinstance(kind, DeviceLengthAttention)
    assert not needs_update(kind)
    assert len(kind.metadata) == (name != "ascend_sparse_flash_attention")
    buffer = torch.zeros(1024, dtype=torch.int32)
    for made_by in kind.metadata:
        with pytest.raises(UnknownNameError, match=f"{made_by.operator}.*import the library"):
            Producer.calling(made_by, name="metadata", arguments={}, buffer=buffer)
    with pytest.raises(UnknownNameError, match=f"{kind.operator}.*import the library"):
        kind.check_arguments({})


def doubled(device: NpuDevice) -> tuple[Producer, torch.Tensor, torch.Tensor]:
    made, given = (torch.zeros(4, device=device.torch_device) for _ in range(2))
    launch = lambda values: torch.mul(given if values is None else values, 2, out=made)  # noqa: E731
    return Producer(name="doubled", launch=launch, buffers=(made,), inputs=(given,)), made, given


@pytest.mark.parametrize("captured", [False, True], ids=["beside", "inside"])
def test_operators_of_the_model_wait_for_producers_on_each_stream(
    npu_device: NpuDevice, captured: bool
) -> None:
    lane, recorder = ProducerLane(npu_device), Recorder(npu_device)
    producer, made, given = doubled(npu_device)
    beside, graph = npu_device.create_stream(), npu_device.create_graph()
    with (
        recorder.recording("key", graph=graph),
        npu_device.capture(graph, pool=npu_device.create_memory_pool()),
        lane.recording(recorder, [producer], captured=captured),
    ):
        current = npu_device.current_stream()
        beside.wait_event(current.record_event())
        lane.wait_for(made, name="the first")
        first = made + 1
        with npu_device.use_stream(beside):
            lane.wait_for(made, name="the second")
            second = made + 2
        lane.wait_for(made)
        current.wait_event(beside.record_event())
    for value in (1.0, 2.0, 3.0):
        values = torch.full((4,), value).to(npu_device.torch_device)
        step = ProducerStep(key="key", needs={"doubled": {}}, values=None if captured else values)

        def replay(values: torch.Tensor = values) -> None:
            given.copy_(values)
            graph.replay()

        lane.run(step, replay)
        assert first.tolist() == [2 * value + 1] * 4
        assert second.tolist() == [2 * value + 2] * 4


def test_plan_without_updates_runs_with_producers_on_an_update_lane(npu_device: NpuDevice) -> None:
    lane, recorder, updates = ProducerLane(npu_device), Recorder(npu_device), UpdateLane(npu_device)
    producer, made, _ = doubled(npu_device)
    graph = npu_device.create_graph()
    with (
        recorder.recording("key", graph=graph),
        npu_device.capture(graph, pool=npu_device.create_memory_pool()),
        lane.recording(recorder, [producer]),
    ):
        lane.wait_for(made)
        out = made + 1
    plan = UpdatePlan.compile(recorder, "key")
    values = torch.full((4,), 5.0).to(npu_device.torch_device)
    step = ProducerStep(key="key", needs={"doubled": {}}, values=values)
    updates.run(plan, StepParameters(key="key"), lambda: lane.run(step, graph.replay))
    assert out.tolist() == [11.0] * 4


def test_graphs_of_two_recorders_with_one_key_have_producers_of_their_own(
    npu_device: NpuDevice,
) -> None:
    lane, graphs, outputs = ProducerLane(npu_device), [], []
    for name in ("target", "draft"):
        recorder, (producer, made, _) = Recorder(npu_device), doubled(npu_device)
        graph = npu_device.create_graph()
        with (
            recorder.recording(8, graph=graph),
            npu_device.capture(graph, pool=npu_device.create_memory_pool()),
            lane.recording(recorder, [producer], key=(name, 8)),
        ):
            lane.wait_for(made)
            outputs.append(made + 1)
        graphs.append((recorder, name, graph))
    for value, (_, name, graph) in zip((1.0, 2.0), graphs, strict=True):
        values = torch.full((4,), value).to(npu_device.torch_device)
        lane.run(ProducerStep(key=(name, 8), needs={"doubled": {}}, values=values), graph.replay)
    assert [out[0].item() for out in outputs] == [3.0, 5.0]
    graphs[0][0].release(8)
    with pytest.raises(UnknownNameError, match="recorded keys: \\('draft', 8\\)"):
        lane.check(ProducerStep(key=("target", 8), needs={}))


PROGRAM = """
import sys
import cann_sim
cann_sim.activate()
from random import Random
import torch
from attn_update import UpdateLane
from attn_update.producers import ProducerLane, producer_lane
from npu_graph_runtime import NpuDevice
from npu_graph_testing.attention.sparse_model import Buffers, SparseModel

device = NpuDevice(0)
if sys.argv[1] == "without":
    producer_lane._fence = lambda *_: None
streams = [device.create_stream() for _ in range(2)]
lane, producers, buffers = UpdateLane(device), ProducerLane(device), Buffers.make(device)
models = []
for key, tokens in (("decode", 4), ("drafts", 6)):
    with device.use_stream(streams[0]):
        models.append(SparseModel(device=device, lane=lane, producers=producers, buffers=buffers,
                                  key=key, sequences=3, tokens=tokens, captured=False))
        models[-1].capture()
random = Random(0)
steps = [model.draw(random) for model in models]
device.synchronize()
for model, drawn, stream in zip(models, steps, streams, strict=True):
    with device.use_stream(stream):
        model.run(drawn)
device.synchronize()
print("no race")
"""


@pytest.mark.parametrize("fence", ["with", "without"])
def test_fence_is_what_keeps_a_step_from_rewriting_what_a_replay_reads(fence: str) -> None:
    """The simulator names each pair of launches that share memory and that nothing orders."""
    done = subprocess.run(
        [sys.executable, "-m", "cann_sim", "run", "--", sys.executable, "-c", PROGRAM, fence],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        env={**os.environ, "CANN_SIM_MEMORY_CHECK": "on"},
    )
    if fence == "with":
        assert done.stdout == "no race\n", done.stderr
    else:
        # Which of the two launches comes last, and is named first, differs from run to run.
        assert "nothing orders its" in done.stderr, done.stderr
        assert "in a graph" in done.stderr, done.stderr
