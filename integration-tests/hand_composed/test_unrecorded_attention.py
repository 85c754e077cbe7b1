"""Models that call attention themselves: a capture without records of it is refused."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest
import torch

import npu_compile
from attn_update import (
    AutomaticRecording,
    Recorder,
    RecordingError,
    StepParameterError,
    StepParameters,
    UpdateLane,
)
from hand_composed.composed_engine import (
    HEADS,
    KEY,
    LENGTHS,
    OTHER,
    ROWS,
    WIDTH,
    Decoder,
    Engine,
    draw,
    parameters,
)
from npu_compile import CapturedSteps, CompileConfig, DecodeRunner, InputSpec
from npu_graph_runtime import CaptureSession, RunMode
from npu_graph_runtime.errors import CaptureSessionError, ReplayRefusedError

if TYPE_CHECKING:
    from npu_graph_runtime import NpuDevice


def make_runner(device: NpuDevice, model: Decoder, recorder: Recorder) -> DecodeRunner:
    config = CompileConfig.from_mapping({"mode": "full", "capture_sizes": [ROWS]})
    return DecodeRunner(
        npu_compile.compile_model(model, config, device=device, dynamic_arg_dims={"hidden": (0,)}),
        inputs={"hidden": InputSpec(dtype=torch.float16, trailing_shape=(HEADS * WIDTH,))},
        recorder=recorder,
        lane=UpdateLane(device),
    )


def test_runner_refuses_a_model_that_calls_attention_itself(device: NpuDevice) -> None:
    model, recorder = Decoder(device), Recorder(device)
    runner = make_runner(device, model, recorder)

    with pytest.raises(RecordingError, match=r"composed_engine\.py:\d+ in forward"):
        runner.capture(lambda _: None)

    assert recorder.keys == ()
    with AutomaticRecording(recorder):
        runner.capture(lambda _: None)
    with pytest.raises(StepParameterError, match="'default' is declared and was not given"):
        runner.run({"hidden": draw([1, 1])}, {})
    for lengths in LENGTHS:
        found = runner.run({"hidden": draw(lengths)}, parameters(lengths)).cpu()
        model.lengths = lengths
        assert torch.equal(found, model(draw(lengths).to(device.torch_device)).cpu())


def test_captured_steps_refuse_a_model_that_calls_attention_itself(device: NpuDevice) -> None:
    model, recorder = Decoder(device), Recorder(device)
    config = CompileConfig.from_mapping({"mode": "full"})
    compiled = npu_compile.compile_model(model, config, device=device)
    steps = CapturedSteps(compiled, recorder=recorder, lane=UpdateLane(device))
    hidden = draw([1, 1]).to(device.torch_device)
    inputs = {KEY: {"hidden": hidden}}

    with pytest.raises(RecordingError, match="it is not recorded"):
        steps.capture(inputs, lambda _: None)

    with AutomaticRecording(recorder):
        steps.capture(inputs, lambda _: None)
    for lengths in LENGTHS:
        hidden.copy_(draw(lengths))
        found = steps.run(KEY, inputs[KEY], parameters(lengths)).cpu()
        model.lengths = lengths
        assert torch.equal(found, model(hidden).cpu())


def test_engine_that_records_by_hand_is_refused_as_well(device: NpuDevice) -> None:
    engine = Engine(device)
    engine.model.attend = torch.ops.npu.npu_fused_infer_attention_score
    with pytest.raises(RecordingError, match="it is not recorded"):
        engine.capture(KEY)
    assert engine.graphed.captured_keys == ()


def test_engine_whose_callable_replays_another_graph_is_refused(device: NpuDevice) -> None:
    engine = Engine(device)
    plan, other = engine.capture(KEY), engine.capture(OTHER)
    step = StepParameters(key=KEY, groups=parameters([5, 6]))

    with pytest.raises(RuntimeError, match="of another graph, of key"):
        engine.lane.run(plan, step, partial(engine.call, OTHER))
    with pytest.raises(RuntimeError, match="did not replay the graph"):
        engine.lane.run(plan, step, partial(engine.call, KEY, RunMode.EAGER))

    device.synchronize()
    engine.assert_right(plan)
    engine.assert_right(other)


def test_recorded_attention_is_not_replayed_by_the_call_that_captures_it(
    device: NpuDevice,
) -> None:
    engine: Engine
    engine = Engine(device, lazy_session=lambda: CaptureSession(device, engine.context))

    with pytest.raises(CaptureSessionError, match=r"replay the new graph at once \(lazy_session\)"):
        engine.capture(KEY, lazily=True)

    device.synchronize()
    assert engine.graphed.captured_keys == ()
    assert engine.recorder.keys == ()
    engine.assert_right(engine.capture(KEY))


def test_refused_replay_is_an_error_of_the_runtime(device: NpuDevice) -> None:
    engine = Engine(device)
    plan, _ = engine.capture(KEY), engine.capture(OTHER)
    engine.lane.begin(plan, StepParameters(key=KEY, groups=parameters([5, 6])))
    with pytest.raises(ReplayRefusedError):
        engine.call(OTHER)
    engine.lane.abandon()
    engine.assert_right(plan)
