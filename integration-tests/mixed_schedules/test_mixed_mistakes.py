"""Mistakes with updates, producers and layer events in one graph: each is an error with its name.

After each the steps are right again.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING

import pytest

from attn_update import LaneError, RecordingError, StepParameterError
from mixed_schedules.reading_engine import ReadingEngine
from mixed_schedules.schedule_run import run_schedules

if TYPE_CHECKING:
    from collections.abc import Callable

    from mixed_schedules.sending_model import SendingModel, SentStep
    from npu_graph_runtime import NpuDevice


@pytest.fixture(params=[False, True], ids=["beside", "inside"])
def engine(device: NpuDevice, request: pytest.FixtureRequest) -> ReadingEngine:
    return ReadingEngine(device, captured=(request.param,) * 2, shares_buffers=True)


def assert_works(engine: ReadingEngine) -> None:
    assert run_schedules(engine, 4, 0).wrong == []


def test_bound_that_is_too_small_is_refused_and_ends_no_step(engine: ReadingEngine) -> None:
    model = engine.models[0]
    drawn = model.draw(Random(1))
    step = engine.launch(model, drawn)
    large = replace(drawn, needs=drawn.needs | {"indexer": {"longest": 49}})
    with pytest.raises(StepParameterError, match="'indexer': the bound 'longest' is too small"):
        engine.launch(model, large)
    engine.read_some(step, Random(1))
    engine.device.synchronize()
    assert step.is_right()
    assert_works(engine)


def test_buffer_that_another_step_would_rewrite_is_refused(engine: ReadingEngine) -> None:
    first, second = engine.models
    drawn = first.draw(Random(1)), second.draw(Random(1))
    first.producers.begin(first.step(drawn[0]))
    with pytest.raises(LaneError, match="would be rewritten early: the step of key 'decode'"):
        second.producers.begin(second.step(drawn[1]))
    first.producers.abandon("decode")
    assert_works(engine)


def replay_twice(model: SendingModel, drawn: SentStep) -> None:
    def twice() -> None:
        model.replay_graph(drawn)
        model.replay_graph(drawn)

    model.run_with(drawn, twice)


def replay_alone(model: SendingModel, drawn: SentStep) -> None:
    model.replay_graph(drawn)


@pytest.mark.parametrize(
    ("mistake", "error", "reason"),
    [
        (replay_twice, LaneError, "a second time in one step: the events of its stages would be"),
        (replay_alone, RuntimeError, "its producers have not run for this replay"),
    ],
    ids=["twice", "alone"],
)
def test_stages_whose_events_would_be_used_twice_or_lost_are_refused(
    engine: ReadingEngine,
    mistake: Callable[[SendingModel, SentStep], None],
    error: type[Exception],
    reason: str,
) -> None:
    model = engine.models[0]
    drawn = model.draw(Random(1))
    with (
        engine.device.use_stream(engine.streams[model.key]),
        pytest.raises(error, match=reason),
    ):
        mistake(model, drawn)
    engine.device.synchronize()
    assert_works(engine)


def capture_late(model: SendingModel) -> None:
    """Capture the layers, and then their producers."""
    graph, pool = model.device.create_graph(), model.device.create_memory_pool()
    host = {"actual_seq_lengths": [1, 2, 4], "actual_seq_lengths_kv": [1, 1, 2]}
    made = model.make_producers()
    with (
        model.events.around_capture(model.graph_key),
        model.recorder.recording(model.key, graph=graph),
        model.device.capture(graph, pool=pool),
    ):
        model.layers(model.ends, model.lengths, model.chosen, host)
        with model.producers.recording(model.recorder, made, captured=model.captured):
            pass


def test_producers_after_a_layer_that_reads_their_buffers_are_refused(
    engine: ReadingEngine,
) -> None:
    model = engine.models[0]
    model.recorder.release(model.key)
    with pytest.raises(RecordingError, match=r"'indexer' would run after the layer 'layers\.0'"):
        capture_late(model)
    model.capture()
    assert_works(engine)
