"""Models that call attention themselves: a capture without records of it is refused."""

from __future__ import annotations

from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn

import npu_compile
from attn_update import (
    AutomaticRecording,
    Recorder,
    RecordingError,
    StepParameterError,
    StepParameters,
    UpdateLane,
    UpdatePlan,
)
from npu_compile import CapturedSteps, CompileConfig, DecodeRunner, InputSpec
from npu_graph_runtime import (
    CaptureSession,
    CaptureSessionError,
    GraphContext,
    GraphedCallable,
    GraphKey,
    ReplayRefusedError,
    RunMode,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from npu_graph_runtime import NpuDevice

HEADS, WIDTH, BLOCK, COLUMNS = 2, 16, 16, 3
ROWS = 2
KEY = GraphKey(num_tokens=ROWS)
LENGTHS = ([5, 40], [1, 33], [48, 2])


class Decoder(nn.Module):
    """One layer, whose lengths stand in an attribute: as a model of no engine has them."""

    def __init__(self, device: NpuDevice, attend: Callable[..., Any] | None = None) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        shape = (ROWS * COLUMNS, BLOCK, HEADS * WIDTH)
        place = device.torch_device
        self.cache = [torch.randn(shape, generator=generator).half().to(place) for _ in range(2)]
        table = torch.arange(ROWS * COLUMNS, dtype=torch.int32).view(ROWS, COLUMNS)
        self.table = table.to(place)
        self.lengths = [1] * ROWS
        self.attend = attend or torch.ops.npu.npu_fused_infer_attention_score

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        given = {
            "query": hidden.view(-1, HEADS, WIDTH),
            "key": self.cache[0],
            "value": self.cache[1],
            "block_table": self.table,
            "block_size": BLOCK,
            "input_layout": "TND",
            "num_heads": HEADS,
            "scale": WIDTH**-0.5,
            "actual_seq_lengths": list(range(1, ROWS + 1)),
            "actual_seq_lengths_kv": self.lengths,
        }
        output: torch.Tensor = self.attend(**given)[0]
        return output.view(hidden.shape) + hidden


def parameters(lengths: list[int]) -> dict[str, dict[str, list[int]]]:
    ends = list(range(1, ROWS + 1))
    return {"default": {"actual_seq_lengths": ends, "actual_seq_lengths_kv": lengths}}


def make_runner(device: NpuDevice, model: Decoder, recorder: Recorder) -> DecodeRunner:
    config = CompileConfig.from_mapping({"mode": "full", "capture_sizes": [ROWS]})
    return DecodeRunner(
        npu_compile.compile_model(model, config, device=device, dynamic_arg_dims={"hidden": (0,)}),
        inputs={"hidden": InputSpec(dtype=torch.float16, trailing_shape=(HEADS * WIDTH,))},
        recorder=recorder,
        lane=UpdateLane(device),
    )


def draw(lengths: list[int]) -> torch.Tensor:
    generator = torch.Generator().manual_seed(lengths[0])
    return torch.randn(ROWS, HEADS * WIDTH, generator=generator).half()


def test_runner_refuses_a_model_that_calls_attention_itself(device: NpuDevice) -> None:
    model, recorder = Decoder(device), Recorder(device)
    runner = make_runner(device, model, recorder)

    with pytest.raises(RecordingError, match=r"test_unrecorded_attention\.py:\d+ in forward"):
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


class Engine:
    """An engine that takes the runtime and the updates, and composes them itself."""

    def __init__(self, device: NpuDevice, **given: Any) -> None:
        self.device = device
        self.recorder, self.context = Recorder(device), GraphContext()
        kind = "fused_infer_attention_v1"
        self.model = Decoder(device, lambda **call: self.recorder.attention("layer", kind, call))
        self.graphed = GraphedCallable(
            self.model,
            device=device,
            context=self.context,
            run_mode=RunMode.FULL,
            name="decode",
            **given,
        )
        self.lane = UpdateLane(device)
        self.hidden = draw([1, 1]).to(device.torch_device)

    def call(self, key: GraphKey, mode: RunMode = RunMode.FULL) -> Any:
        with self.context.run(mode, key):
            return self.graphed(self.hidden)

    def capture(self, key: GraphKey, *, lazily: bool = False) -> UpdatePlan:
        session = nullcontext() if lazily else CaptureSession(self.device, self.context)
        with session, self.recorder.recording(key):
            self.call(key)
        return UpdatePlan.compile(self.recorder, key)

    def assert_right(self, plan: UpdatePlan) -> None:
        key: Any = plan.key
        for lengths in LENGTHS:
            step = StepParameters(key=key, groups=parameters(lengths))
            found = self.lane.run(plan, step, partial(self.call, key)).cpu()
            self.model.lengths = lengths
            assert torch.equal(found, self.model(self.hidden).cpu())


def test_engine_that_records_by_hand_is_refused_as_well(device: NpuDevice) -> None:
    engine = Engine(device)
    engine.model.attend = torch.ops.npu.npu_fused_infer_attention_score
    with pytest.raises(RecordingError, match="it is not recorded"):
        engine.capture(KEY)
    assert engine.graphed.captured_keys == ()


OTHER = GraphKey(num_tokens=ROWS, extra=("other",))


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


@pytest.mark.parametrize("given", ["lazy_session", "replay_after_capture"])
def test_recorded_attention_is_not_replayed_by_the_call_that_captures_it(
    device: NpuDevice, given: str
) -> None:
    engine: Engine
    options: dict[str, Any] = {"replay_after_capture": True}
    if given == "lazy_session":
        options = {"lazy_session": lambda: CaptureSession(device, engine.context)}
    engine = Engine(device, **options)

    with pytest.raises(CaptureSessionError, match=f"replay the new graph at once \\({given}\\)"):
        engine.capture(KEY, lazily=given == "lazy_session")

    device.synchronize()
    assert engine.graphed.captured_keys == ()
    assert engine.recorder.keys == ()
    if given == "lazy_session":
        engine.assert_right(engine.capture(KEY))


def test_refused_replay_is_an_error_of_the_runtime(device: NpuDevice) -> None:
    engine = Engine(device)
    plan, _ = engine.capture(KEY), engine.capture(OTHER)
    engine.lane.begin(plan, StepParameters(key=KEY, groups=parameters([5, 6])))
    with pytest.raises(ReplayRefusedError):
        engine.call(OTHER)
    engine.lane.abandon()
    engine.assert_right(plan)
