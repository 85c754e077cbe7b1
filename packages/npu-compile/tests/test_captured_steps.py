from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch

import npu_compile
from attn_update import Recorder, RecordingError, UpdateLane
from attn_update.kinds import DeviceLengthAttention
from npu_compile import CapturedSteps, CompileConfig, CompiledModel, CompileMode, ConfigError
from npu_compile.errors import RunnerStateError
from npu_graph_runtime import GraphKey

if TYPE_CHECKING:
    from npu_graph_runtime import FakeDevice

PLAIN = GraphKey(num_tokens=2, extra=("plain",))
NEGATED = GraphKey(num_tokens=2, extra=("negated",))
LARGE = GraphKey(num_tokens=4, extra=("plain",))


class _Model:
    def __init__(self) -> None:
        self.sign = 1
        self.calls = 0

    def __call__(self, values: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return values * 2 * self.sign


class _Attending(_Model):
    """Its attention reads what is like lengths on the device, so nothing is updated."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__()
        self.lengths = torch.ones(1)
        self._recorder = recorder
        self._kind = DeviceLengthAttention(
            operator="aten::mul.Tensor", length_arguments=frozenset({"other"})
        )

    def __call__(self, values: torch.Tensor) -> torch.Tensor:
        given = {"self": super().__call__(values), "other": self.lengths}
        return self._recorder.attention("layers.0", self._kind, given)[0]


class _Engine:
    def __init__(self, device: FakeDevice, recorder: Recorder, model: _Model | None = None) -> None:
        self.model = _Model() if model is None else model
        self.prepared: list[GraphKey] = []
        self.values = torch.zeros(4)
        self.compiled = npu_compile.compile_model(
            self.model, CompileConfig(mode=CompileMode.FULL, fuse=False), device=device
        )
        self.steps = CapturedSteps(self.compiled, recorder=recorder, lane=UpdateLane(device))

    def inputs(self, key: GraphKey) -> dict[str, torch.Tensor]:
        return {"values": self.values[: key.num_tokens]}

    def prepare(self, key: GraphKey) -> None:
        self.prepared.append(key)
        self.model.sign = -1 if key.extra == ("negated",) else 1

    def capture(self, *keys: GraphKey) -> dict[GraphKey, Any]:
        return self.steps.capture({key: self.inputs(key) for key in keys}, self.prepare)

    def run(self, key: GraphKey) -> list[float]:
        output: torch.Tensor = self.steps.run(key, self.inputs(key), {})
        return output.tolist()


@pytest.fixture
def recorder(device: FakeDevice) -> Recorder:
    return Recorder(device)


@pytest.fixture
def engine(device: FakeDevice, recorder: Recorder) -> _Engine:
    return _Engine(device, recorder)


def test_steps_replay_the_graph_of_the_callers_key(engine: _Engine) -> None:
    outputs = engine.capture(PLAIN, NEGATED, LARGE)
    engine.values.copy_(torch.tensor([1.0, 2.0, 3.0, 4.0]))

    assert engine.prepared[0] is LARGE
    assert outputs.keys() == engine.steps.update_plans.keys() == {PLAIN, NEGATED, LARGE}
    assert engine.run(NEGATED) == [-2, -4]
    assert engine.run(PLAIN) == [2, 4]
    assert engine.run(LARGE) == [2, 4, 6, 8]
    assert outputs[NEGATED].tolist() == [-2, -4]


def test_steps_capture_further_keys_later(engine: _Engine) -> None:
    engine.capture(PLAIN)
    engine.values.fill_(1)
    assert engine.run(PLAIN) == [2, 2]

    engine.capture(NEGATED)

    assert engine.run(PLAIN) == [2, 2]
    assert engine.run(NEGATED) == [-2, -2]


def test_layers_without_an_update_are_captured_for_each_key(
    device: FakeDevice, recorder: Recorder
) -> None:
    model = _Attending(recorder)
    engine = _Engine(device, recorder, model)
    engine.capture(PLAIN, LARGE)
    engine.values.fill_(1)
    for length in (3.0, 5.0):
        model.lengths.fill_(length)
        assert engine.run(PLAIN) == [2 * length] * 2
        assert engine.run(LARGE) == [2 * length] * 4


def test_steps_release_gives_up_graph_plan_and_records(engine: _Engine, recorder: Recorder) -> None:
    engine.capture(PLAIN, NEGATED)

    engine.steps.release([PLAIN, LARGE])
    assert engine.compiled.captured_keys == engine.steps.update_plans.keys() == {NEGATED}
    assert set(recorder.keys) == {NEGATED}
    with pytest.raises(RunnerStateError, match=r"running a step of .*not captured here, .*negated"):
        engine.run(PLAIN)

    engine.capture(PLAIN)
    engine.values.fill_(1)
    assert engine.run(PLAIN) == [2, 2]
    engine.steps.release()
    assert not engine.compiled.captured_keys
    assert not recorder.keys


def test_steps_do_not_change_graphs_of_other_steps(device: FakeDevice, recorder: Recorder) -> None:
    engine = _Engine(device, recorder)
    engine.capture(PLAIN)
    other = CapturedSteps(engine.compiled, recorder=recorder, lane=UpdateLane(device))

    with pytest.raises(RunnerStateError, match="captured already; release them first"):
        other.capture({PLAIN: engine.inputs(PLAIN)}, engine.prepare)
    other.release([PLAIN])
    other.release()

    engine.values.fill_(1)
    assert engine.run(PLAIN) == [2, 2]


def test_steps_of_another_model_under_a_recorded_key_leave_nothing(
    device: FakeDevice, recorder: Recorder
) -> None:
    first, second = _Engine(device, recorder), _Engine(device, recorder)
    first.capture(PLAIN)

    with pytest.raises(RecordingError, match="recorded already"):
        second.capture(LARGE, PLAIN)

    assert not second.compiled.captured_keys
    assert not second.steps.update_plans
    assert set(recorder.keys) == {PLAIN}
    first.values.fill_(1)
    assert first.run(PLAIN) == [2, 2]


def test_steps_release_a_capture_that_fails_and_keep_those_before(
    engine: _Engine, recorder: Recorder
) -> None:
    engine.capture(PLAIN)

    def prepare(key: GraphKey) -> None:
        if key is NEGATED:
            raise ValueError("no lengths")

    with pytest.raises(ValueError, match="no lengths"):
        engine.steps.capture({key: engine.inputs(key) for key in (LARGE, NEGATED)}, prepare)

    assert engine.compiled.captured_keys == engine.steps.update_plans.keys() == {PLAIN}
    assert set(recorder.keys) == {PLAIN}
    engine.values.fill_(1)
    assert engine.run(PLAIN) == [2, 2]
    engine.capture(LARGE, NEGATED)
    assert engine.run(NEGATED) == [-2, -2]


def test_steps_refuse_invalid_arguments(device: FakeDevice, recorder: Recorder) -> None:
    compiled = npu_compile.compile_model(
        _Model(), CompileConfig(mode=CompileMode.FULL, fuse=False), device=device
    )
    lane = UpdateLane(device)

    def make(model: Any = compiled, **changed: Any) -> None:
        CapturedSteps(model, **{"recorder": recorder, "lane": lane, **changed})

    with pytest.raises(ConfigError, match="the model is a _Model, expected a CompiledModel"):
        make(_Model())
    with pytest.raises(ConfigError, match="recorder is None, expected a Recorder"):
        make(recorder=None)
    with pytest.raises(ConfigError, match="lane is UpdateLane, expected a UpdateLane"):
        make(lane=UpdateLane)
    with pytest.raises(ConfigError, match="groups is a list, expected a Mapping"):
        make(groups=[])
    eager = CompiledModel(_Model(), CompileConfig(fuse=False), device=device)
    with pytest.raises(ConfigError, match="mode 'eager', which captures no whole step"):
        make(eager)
    with pytest.raises(ConfigError, match="prepare is None, expected a function"):
        CapturedSteps(compiled, recorder=recorder, lane=lane).capture({}, None)  # type: ignore[arg-type]
