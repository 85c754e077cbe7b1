"""Each mistake with producers is an error with its name, and the next step is right."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
import torch

import cann_sim
from attn_update import (
    AttnUpdateError,
    DeadTensorError,
    LaneError,
    Recorder,
    RecordingError,
    StepParameterError,
    UnknownNameError,
    UpdateLane,
)
from attn_update.kinds import DeviceLengthAttention, MetadataOperator
from attn_update.producers import Producer, ProducerError, ProducerLane
from npu_graph_testing.attention import assert_layers_equal
from npu_graph_testing.attention.sparse_model import Buffers, SparseModel

if TYPE_CHECKING:
    from collections.abc import Callable

    from npu_graph_runtime import GraphDevice, NpuDevice
    from npu_graph_testing.attention.sparse_model import DrawnStep

FORMS = [False, True]
FORM_NAMES = ["beside", "inside"]


def make_model(
    device: GraphDevice, *, captured: bool = False, beside: SparseModel | None = None
) -> SparseModel:
    """Return a captured model, of another key than the one whose lanes and buffers it shares."""
    model = SparseModel(
        device=device,
        lane=UpdateLane(device) if beside is None else beside.lane,
        producers=ProducerLane(device) if beside is None else beside.producers,
        buffers=Buffers.make(device) if beside is None else beside.buffers,
        key="decode" if beside is None else "drafts",
        sequences=3,
        tokens=4 if beside is None else 6,
        captured=captured,
    )
    model.capture()
    return model


@pytest.fixture(params=FORMS, ids=FORM_NAMES)
def model(npu_device: NpuDevice, request: pytest.FixtureRequest) -> SparseModel:
    """A captured model, with its producers before the graph and inside it."""
    return make_model(npu_device, captured=request.param)


@pytest.fixture
def beside(npu_device: NpuDevice) -> SparseModel:
    """A captured model with its producers outside the graph."""
    return make_model(npu_device)


def drawn_steps(model: SparseModel, count: int = 3) -> list[DrawnStep]:
    random = Random(5)
    return [model.draw(random) for _ in range(count)]


def assert_works(model: SparseModel) -> None:
    """Show that steps are right, the host ahead of the device."""
    steps = drawn_steps(model)
    outputs = [model.run(drawn) for drawn in steps]
    for drawn, out in zip(steps, outputs, strict=True):
        assert_layers_equal(out, drawn.expected)


def num_launches() -> int:
    now = cann_sim.counters()
    return now.launches + now.captured_launches + now.updated_launches + now.replays


def assert_refused(
    model: SparseModel, call: Callable[[], object], error: type[Exception], reason: str
) -> None:
    """Show that a call is refused before anything is launched, and that the next steps work."""
    model.device.synchronize()
    before = num_launches()
    with pytest.raises(error, match=reason):
        call()
    model.device.synchronize()
    assert num_launches() == before
    assert_works(model)


def test_step_that_needs_more_than_a_bound_is_refused(model: SparseModel) -> None:
    (drawn,) = drawn_steps(model, 1)
    needs = drawn.needs | {"indexer": {"longest": 49}}
    large = replace(drawn, needs=needs)
    reason = "'indexer': the bound 'longest' is too small: .* for 48 at most, .* needs 49"
    assert_refused(model, lambda: model.run(large), StepParameterError, reason)


@pytest.mark.parametrize(
    ("needs", "reason"),
    [
        ({"lengths": {"sequences": 3}}, "the bound 'longest' is declared and was not given; give"),
        ({"lengths": {"sequences": 3, "longest": -1}}, "integer of 0 or more .* found -1"),
        ({"lengths": {"sequences": 3, "longest": 2.5}}, "integer of 0 or more .* found 2.5"),
        (
            {"lengths": {"sequences": 3, "longest": 2, "long": 1}},
            "the bound 'long' is not declared; did you mean 'longest'",
        ),
        ({"compressor": {}}, "captured without the producer 'compressor'.*stages of its capture"),
        ({"indexer": None}, "producer 'indexer' of stage 1 was captured and is not given"),
    ],
)
def test_step_of_other_producers_or_bounds_than_captured_is_refused(
    beside: SparseModel, needs: dict[str, Any], reason: str
) -> None:
    (drawn,) = drawn_steps(beside, 1)
    merged = {name: need for name, need in {**drawn.needs, **needs}.items() if need is not None}
    wrong = replace(drawn, needs=merged)
    assert_refused(beside, lambda: beside.run(wrong), StepParameterError, reason)


@pytest.mark.parametrize("freed", ["resized", "exchanged"])
def test_step_whose_buffer_was_freed_or_exchanged_is_refused(
    model: SparseModel, freed: str
) -> None:
    (drawn,) = drawn_steps(model, 1)
    model.device.synchronize()
    if freed == "resized":
        model.buffers.ends.untyped_storage().resize_(0)
    else:
        model.lengths.data = model.lengths.clone()
    model.device.synchronize()
    before = num_launches()
    with pytest.raises(
        DeadTensorError, match=r"buffer of the producer 'lengths' was freed or exch"
    ):
        model.run(drawn)
    assert num_launches() == before


def begin(model: SparseModel, drawn: DrawnStep) -> None:
    model.producers.begin(model.step(drawn))


def test_second_step_of_a_key_before_the_first_is_finished_is_refused(model: SparseModel) -> None:
    """Its producers would rewrite what the replay of the first reads."""
    first, second = drawn_steps(model, 2)
    begin(model, first)
    reason = "begun and never finished, and its buffers would be rewritten early"
    assert_refused(model, lambda: begin(model, second), LaneError, reason)


@pytest.mark.parametrize("captured", FORMS, ids=FORM_NAMES)
def test_step_of_another_key_that_shares_a_buffer_is_refused_until_the_first_is_finished(
    model: SparseModel, captured: bool
) -> None:
    other = make_model(model.device, captured=captured, beside=model)
    (first,), (second,) = drawn_steps(model, 1), drawn_steps(other, 1)
    begin(model, first)
    reason = "would be rewritten early: the step of key 'decode' uses it, was begun and is not fin"
    model.device.synchronize()
    before = num_launches()
    with pytest.raises(LaneError, match=reason):
        begin(other, second)
    with pytest.raises(LaneError, match=reason):
        other.producers.run_now(other.make_producers(), (second.counts, second.lengths))
    model.device.synchronize()
    assert num_launches() == before
    model.producers.abandon("decode")
    assert_works(other)
    assert_works(model)


def test_buffer_that_something_else_writes_is_noticed_at_the_next_step(
    model: SparseModel,
) -> None:
    (drawn,) = drawn_steps(model, 1)
    model.run(drawn)
    model.buffers.chosen.fill_(-1)
    # Only what fills its storage is counted.
    model.buffers.ends.zero_()
    whole = Buffers.make(model.device)
    whole_model = SparseModel(
        device=model.device,
        lane=model.lane,
        producers=model.producers,
        buffers=whole,
        key="whole",
        sequences=4,
        tokens=6,
        captured=model.captured,
    )
    whole_model.capture()
    assert_works(whole_model)
    whole.chosen.fill_(-1)
    (step,) = drawn_steps(whole_model, 1)
    reason = "'indexer' was rewritten early: something else than its producer wrote it"
    assert_refused(whole_model, lambda: whole_model.run(step), LaneError, reason)


def test_graph_that_is_replayed_twice_in_a_step_would_use_its_events_twice(
    model: SparseModel,
) -> None:
    (drawn,) = drawn_steps(model, 1)

    def twice() -> None:
        model.replay_graph(drawn)
        model.replay_graph(drawn)

    with pytest.raises(LaneError, match=r"a second time in one step: the events .* used twice"):
        model.producers.run(model.step(drawn), twice)
    for update in model.plan.updates:  # the replay waits for those too
        update.event.record(model.producers.stream)
    model.device.synchronize()
    assert_works_by_producers(model)


def assert_works_by_producers(model: SparseModel) -> None:
    """Show that steps of a model are right, in which a lane may not know of the replays before."""
    model.lane.close()
    model.lane = UpdateLane(model.device)
    assert_works(model)


def test_graph_that_is_replayed_without_a_step_of_its_producers_is_refused(
    model: SparseModel,
) -> None:
    reason = "'decode': its producers have not run for this replay"
    assert_refused(model, model.graph.replay, RuntimeError, reason)


def test_graph_that_is_replayed_on_another_stream_than_its_step_is_refused(
    model: SparseModel,
) -> None:
    (drawn,) = drawn_steps(model, 1)
    other = model.device.create_stream()

    def elsewhere() -> None:
        with model.device.use_stream(other):
            model.graph.replay()

    with pytest.raises(LaneError, match="another stream is current than when the step was begun"):
        model.producers.run(model.step(drawn), elsewhere)
    assert_works(model)


def test_step_that_does_not_replay_its_graph_is_an_error(model: SparseModel) -> None:
    (drawn,) = drawn_steps(model, 1)
    with pytest.raises(LaneError, match=r"finishing a step of key 'decode': .* was not replayed"):
        model.producers.run(model.step(drawn), lambda: None)
    assert_works(model)


@pytest.mark.parametrize("call", ["finish", "abandon"])
def test_step_that_was_not_begun_cannot_end(beside: SparseModel, call: str) -> None:
    with pytest.raises(LaneError, match="none was begun"):
        getattr(beside.producers, call)("decode")
    assert_works(beside)


class InjectedError(Exception):
    """Raised by a test."""


@pytest.mark.parametrize("queued", [False, True], ids=["not-queued", "queued"])
@pytest.mark.parametrize("error", [InjectedError, KeyboardInterrupt])
def test_step_after_a_replay_that_failed_is_right(
    model: SparseModel, error: type[BaseException], queued: bool
) -> None:
    (drawn,) = drawn_steps(model, 1)

    def fail() -> None:
        if queued:
            model.replay_graph(drawn)
        raise error

    for _ in range(2):
        with pytest.raises(error):
            model.run_with(drawn, fail)
    assert_works(model)


def test_producer_that_fails_is_named_and_nothing_is_replayed(
    npu_device: NpuDevice,
) -> None:
    model = make_model(npu_device)
    (drawn,) = drawn_steps(model, 1)
    npu_device.synchronize()
    before = cann_sim.counters().replays
    wrong = replace(drawn, counts=drawn.counts.cpu())
    with pytest.raises(ProducerError, match="the producer 'lengths' failed") as caught:
        model.run(wrong)
    assert caught.value.producer == "lengths"
    npu_device.synchronize()
    assert cann_sim.counters().replays == before
    assert_works(model)


def test_released_key_may_be_captured_again(model: SparseModel) -> None:
    assert_works(model)
    (drawn,) = drawn_steps(model, 1)
    model.device.synchronize()
    model.recorder.release("decode")
    with pytest.raises(UnknownNameError, match="never recorded, or released"):
        model.producers.check(model.step(drawn))
    model.capture()
    assert_works(model)


def capture_failure(
    model: SparseModel, capture: Callable[[], None], error: type[AttnUpdateError], reason: str
) -> None:
    """Show that a capture is refused, and that a right one works afterwards."""
    model.device.synchronize()
    model.recorder.release("decode")
    graph = model.device.create_graph()
    with (
        pytest.raises(error, match=reason),
        model.recorder.recording("decode", graph=graph),
        model.device.capture(graph, pool=model.device.create_memory_pool()),
    ):
        capture()
    model.capture()
    assert_works(model)


HOST = {"actual_seq_lengths": [1, 2, 4], "actual_seq_lengths_kv": [1, 1, 2]}


def run_layers(model: SparseModel) -> None:
    model.layers(model.ends, model.lengths, model.chosen, HOST)


def test_producers_that_are_recorded_after_a_layer_that_reads_them_are_refused(
    model: SparseModel,
) -> None:
    def capture() -> None:
        run_layers(model)
        made = model.make_producers()
        with model.producers.recording(model.recorder, made, captured=model.captured):
            pass

    reason = "'indexer' would run after the layer 'layers.0', which reads its buffer"
    capture_failure(model, capture, RecordingError, reason)


def change_stages(made: list[Producer]) -> list[Producer]:
    return [replace(each, stage=3) for each in made]


def name_twice(made: list[Producer]) -> list[Producer]:
    return [replace(each, name="lengths") for each in made]


def write_twice(made: list[Producer]) -> list[Producer]:
    return [*made, replace(made[0], name="again")]


def leave_unread(made: list[Producer]) -> list[Producer]:
    unread = torch.zeros(4, device="npu")
    spare = Producer(name="spare", launch=lambda _: unread.zero_(), buffers=(unread,))
    return [*made, spare]


def break_up(made: list[Producer]) -> list[Producer]:
    columns = torch.zeros(4, 4, device="npu")[:, :2]
    return [*made, Producer(name="columns", launch=lambda _: None, buffers=(columns,))]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (change_stages, "'indexer' of stage 3 reads what 'lengths' of stage 3 makes"),
        (name_twice, "two are named 'lengths'"),
        (write_twice, "'indexer' and 'again' write the same memory"),
        (leave_unread, r"no layer .* reads the buffers of 'spare' \(stage 0\)"),
        (break_up, "a buffer of 'columns' is not contiguous"),
    ],
)
def test_producers_that_do_not_fit_each_other_are_refused_at_capture(
    model: SparseModel, change: Callable[[list[Producer]], list[Producer]], reason: str
) -> None:
    def capture() -> None:
        made = change(model.make_producers())
        with model.producers.recording(model.recorder, made, captured=model.captured):
            run_layers(model)

    capture_failure(model, capture, RecordingError, reason)


def test_producers_of_a_key_are_recorded_once(model: SparseModel) -> None:
    def capture() -> None:
        for _ in range(2):
            made = model.make_producers()
            with model.producers.recording(model.recorder, made, captured=model.captured):
                run_layers(model)

    capture_failure(model, capture, RecordingError, "two graphs would use the events of one")


def test_producers_are_recorded_inside_of_a_capture_and_a_recording(
    npu_device: NpuDevice, beside: SparseModel
) -> None:
    lane, made = ProducerLane(npu_device), beside.make_producers()
    with pytest.raises(RecordingError, match="found no recording"):
        lane.recording(beside.recorder, made).__enter__()
    with (
        pytest.raises(RecordingError, match="found no capture"),
        beside.recorder.recording("other"),
        lane.recording(beside.recorder, made),
    ):
        pass
    with pytest.raises(RecordingError, match="no producers are recorded now"):
        lane.wait_for(beside.chosen)
    assert_works(beside)


def test_layer_whose_kind_needs_a_producer_is_not_captured_without_one(
    npu_device: NpuDevice, beside: SparseModel
) -> None:
    made_by = MetadataOperator(
        argument="sparse_indices", operator="npu::npu_lightning_indexer", bounds=frozenset()
    )
    kind = DeviceLengthAttention(
        operator="npu::npu_sparse_flash_attention",
        length_arguments=frozenset({"actual_seq_lengths_query", "actual_seq_lengths_kv"}),
        metadata=(made_by,),
    )
    beside.recorder = Recorder(
        npu_device, {**beside.recorder.kinds, "sparse_flash_attention": kind}
    )
    beside.producers = ProducerLane(npu_device)
    graph, pool = npu_device.create_graph(), npu_device.create_memory_pool()
    with (
        pytest.raises(RecordingError, match=r"reads .sparse_indices., .* no producers are"),
        beside.recorder.recording("decode", graph=graph),
        npu_device.capture(graph, pool=pool),
    ):
        run_layers(beside)
    graph = npu_device.create_graph()
    with (
        pytest.raises(RecordingError, match="expected 'sparse_indices' in a buffer of a producer"),
        beside.recorder.recording("decode", graph=graph),
        npu_device.capture(graph, pool=pool),
        beside.producers.recording(beside.recorder, beside.make_producers()),
    ):
        beside.layers(beside.ends, beside.lengths, beside.chosen.clone(), HOST)
    beside.capture()
    assert_works(beside)
