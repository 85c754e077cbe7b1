from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
import torch

from npu_graph_runtime import (
    AddressCheck,
    CaptureSession,
    FakeDevice,
    GraphContext,
    GraphCounters,
    GraphDevice,
    Graphed,
    GraphedCallable,
    GraphKey,
    NpuDevice,
    RunMode,
)
from npu_graph_runtime.errors import (
    CaptureSessionError,
    DeadlockError,
    GraphKeyError,
    GraphNotCapturedError,
    IllegalWhileCapturingError,
    InputAddressError,
    WeakOutputError,
)
from npu_graph_runtime.observer import (
    GraphCaptured,
    GraphMissed,
    GraphReleased,
    GraphReplayed,
    RuntimeEvent,
)

KEY = GraphKey(num_tokens=4)


class Step:
    """Doubles its input, and counts how often the host ran it."""

    def __init__(self) -> None:
        self.runs = 0

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        self.runs += 1
        return x * 2


class Log:
    def __init__(self) -> None:
        self.events: list[RuntimeEvent] = []

    def observe(self, event: RuntimeEvent, /) -> None:
        self.events.append(event)


def graphed(device: GraphDevice, context: GraphContext, function: Any, **options: Any) -> Any:
    options = {"run_mode": RunMode.FULL, "name": "decode", **options}
    return GraphedCallable(function, device=device, context=context, **options)


def capture(
    device: GraphDevice, context: GraphContext, callable_: Any, *args: Any, key: GraphKey = KEY
) -> Any:
    with CaptureSession(device, context), context.run(callable_.run_mode, key):
        return callable_(*args)


def test_call_in_other_mode_calls_the_function(fake: FakeDevice, context: GraphContext) -> None:
    step = Step()
    wrapper = graphed(fake, context, step)
    x = torch.ones(4)
    assert wrapper(x).tolist() == [2.0] * 4
    with context.run(RunMode.PIECEWISE, KEY):
        assert wrapper(x).tolist() == [2.0] * 4
    assert step.runs == 2
    assert wrapper.counters == GraphCounters(captured=0, replayed=0, missed=0, released=0)


def test_call_captured_replays_with_new_inputs_and_runs_no_host_code(
    fake: FakeDevice, context: GraphContext
) -> None:
    step, x = Step(), torch.ones(4)
    wrapper = graphed(fake, context, step)
    capture(fake, context, wrapper, x)
    assert step.runs == 2
    for value in (3.0, 5.0):
        x.fill_(value)
        with context.run(RunMode.FULL, KEY):
            assert wrapper(x).tolist() == [value * 2] * 4
    assert step.runs == 2
    assert wrapper.counters == GraphCounters(captured=1, replayed=2, missed=0, released=0)


def test_capturing_call_returns_unwritten_outputs(fake: FakeDevice, context: GraphContext) -> None:
    wrapper = graphed(fake, context, Step())
    out = capture(fake, context, wrapper, torch.ones(4))
    assert out.isnan().all()


@pytest.mark.parametrize("warmup_runs", [0, 3])
def test_capture_runs_function_eagerly_first_as_often_as_configured(
    fake: FakeDevice, context: GraphContext, warmup_runs: int
) -> None:
    step = Step()
    wrapper = graphed(fake, context, step, warmup_runs=warmup_runs)
    capture(fake, context, wrapper, torch.ones(4))
    assert step.runs == warmup_runs + 1


@pytest.mark.parametrize("make", [copy.copy, copy.deepcopy, pickle.dumps])
def test_copies_are_refused_by_name(fake: FakeDevice, context: GraphContext, make: Any) -> None:
    with pytest.raises(TypeError, match=r"captured function 'decode'.*make a GraphedCallable of"):
        make(graphed(fake, context, torch.relu))


def test_several_keys_have_graphs_of_their_own(fake: FakeDevice, context: GraphContext) -> None:
    wrapper = graphed(fake, context, lambda x: x[: int(context.key.num_tokens)] * 2)  # type: ignore[union-attr]
    x = torch.arange(8.0)
    keys = [GraphKey(num_tokens=8), GraphKey(num_tokens=4), GraphKey(num_tokens=4, uniform=True)]
    with CaptureSession(fake, context):
        for key in keys:
            with context.run(RunMode.FULL, key):
                wrapper(x)
    assert wrapper.captured_keys == tuple(keys)
    for key in keys:
        assert wrapper.is_captured(key)
        with context.run(RunMode.FULL, key):
            assert wrapper(x).tolist() == [2.0 * i for i in range(key.num_tokens)]


def test_new_equal_key_finds_the_graph(fake: FakeDevice, context: GraphContext) -> None:
    wrapper, x = graphed(fake, context, Step()), torch.ones(4)
    capture(fake, context, wrapper, x)
    with context.run(RunMode.FULL, GraphKey(num_tokens=4)):
        wrapper(x)
    assert wrapper.counters.replayed == 1


def test_call_uncaptured_without_session_raises_with_keys(
    fake: FakeDevice, context: GraphContext
) -> None:
    wrapper, x = graphed(fake, context, Step()), torch.ones(4)
    with context.run(RunMode.FULL, KEY), pytest.raises(GraphNotCapturedError, match="no key is"):
        wrapper(x)
    capture(fake, context, wrapper, x)
    with (
        context.run(RunMode.FULL, GraphKey(num_tokens=8)),
        pytest.raises(LookupError, match=r"num_tokens=8.*captured keys: \(num_tokens=4\)"),
    ):
        wrapper(x)
    assert wrapper.counters.missed == 2


def test_call_with_mode_set_without_key_raises(fake: FakeDevice, context: GraphContext) -> None:
    wrapper = graphed(fake, context, Step())
    context.mode = RunMode.FULL
    with pytest.raises(GraphKeyError, match="no graph key"):
        wrapper(torch.ones(4))


def test_full_wrapper_around_piecewise_wrappers_captures_straight_through(
    fake: FakeDevice, context: GraphContext
) -> None:
    first = graphed(fake, context, lambda x: x + 1, run_mode=RunMode.PIECEWISE, name="first")
    second = graphed(fake, context, lambda x: x * 3, run_mode=RunMode.PIECEWISE, name="second")
    host_runs: list[int] = []
    between = torch.zeros(4)

    def model(x: torch.Tensor) -> torch.Tensor:
        torch.neg(first(x), out=between)
        host_runs.append(1)
        result: torch.Tensor = second(between)
        return result

    full = graphed(fake, context, model, warmup_runs=0)
    x = torch.ones(4)
    with CaptureSession(fake, context):
        for mode in (RunMode.PIECEWISE, RunMode.FULL):
            with context.run(mode, KEY):
                full(x)
    assert [len(wrapper.captured_keys) for wrapper in (first, second, full)] == [1, 1, 1]
    host_runs.clear()
    x.fill_(4)
    for mode, runs in ((RunMode.PIECEWISE, 1), (RunMode.FULL, 1), (RunMode.EAGER, 2)):
        with context.run(mode, KEY):
            assert full(x).tolist() == [-15.0] * 4
        assert len(host_runs) == runs
    assert first.counters.replayed == second.counters.replayed == full.counters.replayed == 1


def test_wrapper_inside_wrapper_of_same_mode_raises_naming_both(
    fake: FakeDevice, context: GraphContext
) -> None:
    inner = graphed(fake, context, Step(), name="inner")
    outer = graphed(fake, context, inner, name="outer")
    with pytest.raises(CaptureSessionError, match=r"capturing 'inner'.*'outer' under key"):
        capture(fake, context, outer, torch.ones(4))


@pytest.mark.parametrize("name", ["fake", "npu"])
@pytest.mark.parametrize("mode", [RunMode.FULL, RunMode.BREAKABLE])
@pytest.mark.parametrize("observer", [None, Log()])
def test_replay_inside_the_capture_of_an_outer_callable_names_the_cause(
    request: pytest.FixtureRequest,
    context: GraphContext,
    name: str,
    mode: RunMode,
    observer: Log | None,
) -> None:
    device = request.getfixturevalue(name)
    x = torch.ones(4, device=device.torch_device)
    options = {"warmup_runs": 0, "observer": observer}
    inner = graphed(device, context, Step(), name="attention", run_mode=mode, **options)
    capture(device, context, inner, x)
    outer = graphed(device, context, lambda x: inner(x) + 1, run_mode=mode, **options)
    with pytest.raises(CaptureSessionError) as caught:
        capture(device, context, outer, x)
    assert "replaying 'attention' under key (num_tokens=4): 'decode' under key" in str(caught.value)
    assert f"for the same run mode, {mode.name}" in str(caught.value)
    assert isinstance(caught.value.__cause__, RuntimeError)

    # The remedy that it names.
    inner = graphed(device, context, Step(), run_mode=RunMode.PIECEWISE, **options)
    capture(device, context, inner, x)
    capture(device, context, outer, x)
    with context.run(mode, KEY):
        assert outer(x).tolist() == [3.0] * 4
    outer.release_all()


def test_devices_of_one_index_are_equal(npu: NpuDevice, context: GraphContext) -> None:
    other = NpuDevice(0)
    assert (other, hash(other)) == (npu, hash(npu))
    assert FakeDevice("npu:0") not in {npu, other}
    x = torch.ones(4, device=npu.torch_device)
    step = graphed(npu, context, Step())
    capture(other, context, step, x)
    x.fill_(3)
    with context.run(RunMode.FULL, KEY):
        assert step(x).tolist() == [6.0] * 4
    step.release_all()


def test_session_of_other_device_raises(fake: FakeDevice, context: GraphContext) -> None:
    wrapper = graphed(fake, context, Step())
    with pytest.raises(CaptureSessionError, match="of device other:0, expected fake:0"):
        capture(FakeDevice("other:0"), context, wrapper, torch.ones(4))
    with pytest.raises(CaptureSessionError, match="another FakeDevice that is called fake:0 too"):
        capture(FakeDevice(), context, wrapper, torch.ones(4))


@pytest.mark.parametrize(
    ("policy", "first_raises", "second_raises"),
    [
        (AddressCheck.ALWAYS, True, True),
        (AddressCheck.FIRST_REPLAY, True, False),
        (AddressCheck.NEVER, False, False),
    ],
)
def test_address_check_by_policy_refuses_moved_input_before_launch(
    fake: FakeDevice,
    context: GraphContext,
    policy: AddressCheck,
    first_raises: bool,
    second_raises: bool,
) -> None:
    x, moved = torch.ones(4), torch.full((4,), 7.0)

    def replay_moved(wrapper: Any) -> bool:
        try:
            wrapper(moved)
        except InputAddressError:
            return True
        return False

    wrapper = graphed(fake, context, Step(), address_check=policy)
    capture(fake, context, wrapper, x)
    with context.run(RunMode.FULL, KEY):
        assert replay_moved(wrapper) is first_raises
        assert wrapper.counters.replayed == (0 if first_raises else 1)
        wrapper(x)
        assert replay_moved(wrapper) is second_raises


def test_address_check_covers_keyword_and_nested_inputs(
    fake: FakeDevice, context: GraphContext
) -> None:
    def step(metadata: dict[str, list[torch.Tensor]], *, mask: torch.Tensor) -> torch.Tensor:
        return metadata["tables"][0] + mask

    tables, mask = {"tables": [torch.ones(2)]}, torch.ones(2)
    wrapper = graphed(fake, context, step)
    with CaptureSession(fake, context), context.run(RunMode.FULL, KEY):
        wrapper(tables, mask=mask)
    with context.run(RunMode.FULL, KEY):
        assert wrapper(tables, mask=mask).tolist() == [2.0, 2.0]
        with pytest.raises(InputAddressError, match="mask is a tensor"):
            wrapper(tables, mask=mask.clone())
        with pytest.raises(InputAddressError, match=r"args\[0\]\['tables'\]\[0\]"):
            wrapper({"tables": [torch.ones(2)]}, mask=mask)


def test_outputs_weak_by_default_do_not_own_their_memory(
    fake: FakeDevice, context: GraphContext
) -> None:
    x = torch.ones(4)
    for weak, is_same in ((True, False), (False, True)):
        wrapper = graphed(fake, context, Step(), weak_outputs=weak)
        captured = capture(fake, context, wrapper, x)
        with context.run(RunMode.FULL, KEY):
            replayed = wrapper(x)
        assert replayed.data_ptr() == captured.data_ptr()
        assert (replayed is captured) is is_same


def test_outputs_nested_keep_their_structure(fake: FakeDevice, context: GraphContext) -> None:
    wrapper = graphed(fake, context, lambda x: {"a": (x + 1, None), "b": [x * 2, "text"]})
    x = torch.ones(2)
    capture(fake, context, wrapper, x)
    with context.run(RunMode.FULL, KEY):
        out = wrapper(x)
    assert out["a"][0].tolist() == [2.0, 2.0]
    assert out["a"][1] is None
    assert out["b"][1] == "text"


def test_outputs_that_cannot_be_weak_raise_and_leave_no_graph(
    fake: FakeDevice, context: GraphContext
) -> None:
    class Odd(list[torch.Tensor]):
        def __init__(self, first: torch.Tensor, second: torch.Tensor) -> None:
            super().__init__([first, second])

    wrapper = graphed(fake, context, lambda x: Odd(x + 1, x + 2))
    with pytest.raises(WeakOutputError, match="outputs of type Odd cannot be kept weakly"):
        capture(fake, context, wrapper, torch.ones(4))
    assert wrapper.captured_keys == ()
    assert fake.memory_figures().allocated == 0


def test_release_frees_memory_and_allows_capture_again(
    fake: FakeDevice, context: GraphContext
) -> None:
    wrapper, x = graphed(fake, context, Step()), torch.ones(4)
    capture(fake, context, wrapper, x)
    assert fake.memory_figures().allocated == 16
    wrapper.release(KEY)
    assert fake.memory_figures().allocated == 0
    assert not wrapper.is_captured(KEY)
    with context.run(RunMode.FULL, KEY), pytest.raises(GraphNotCapturedError):
        wrapper(x)
    elsewhere = torch.full((4,), 3.0)
    capture(fake, context, wrapper, elsewhere)
    with context.run(RunMode.FULL, KEY):
        assert wrapper(elsewhere).tolist() == [6.0] * 4
    assert wrapper.counters == GraphCounters(captured=2, replayed=1, missed=1, released=1)


def test_released_graph_is_not_replayed_though_it_was_the_last_one(
    fake: FakeDevice, context: GraphContext
) -> None:
    wrapper, x = graphed(fake, context, Step()), torch.ones(4)
    capture(fake, context, wrapper, x)
    with context.run(RunMode.FULL, KEY):
        wrapper(x)
        wrapper.release(KEY)
        with pytest.raises(GraphNotCapturedError):
            wrapper(x)
    elsewhere = torch.full((4,), 3.0)
    capture(fake, context, wrapper, elsewhere)
    with context.run(RunMode.FULL, KEY):
        assert wrapper(elsewhere).tolist() == [6.0] * 4


def test_call_that_is_compared_is_passed_on_although_its_graph_was_the_last_one(
    fake: FakeDevice, context: GraphContext
) -> None:
    wrapper, x = graphed(fake, context, Step()), torch.ones(4)
    capture(fake, context, wrapper, x)
    with context.run(RunMode.FULL, KEY):
        wrapper(x)
        with wrapper.compared(lambda call: call.captured.key):
            assert wrapper(x) is KEY
        assert wrapper(x).tolist() == [2.0] * 4


def test_keys_that_take_turns_replay_their_own_graphs(
    fake: FakeDevice, context: GraphContext
) -> None:
    wrapper = graphed(fake, context, Step())
    keys = {4: KEY, 8: GraphKey(num_tokens=8)}
    inputs = {size: torch.ones(size) for size in keys}
    for size, key in keys.items():
        capture(fake, context, wrapper, inputs[size], key=key)
    for size in (4, 8, 4, 4, 8, 8, 4):
        with context.run(RunMode.FULL, keys[size]):
            assert wrapper(inputs[size]).tolist() == [2.0] * size


def test_release_of_key_not_captured_raises(fake: FakeDevice, context: GraphContext) -> None:
    wrapper = graphed(fake, context, Step())
    with pytest.raises(GraphNotCapturedError, match="releasing 'decode'"):
        wrapper.release(KEY)


def test_release_all_releases_every_key(fake: FakeDevice, context: GraphContext) -> None:
    wrapper, x = graphed(fake, context, Step()), torch.ones(4)
    for num_tokens in (8, 4):
        capture(fake, context, wrapper, x, key=GraphKey(num_tokens=num_tokens))
    wrapper.release_all()
    wrapper.release_all()
    assert wrapper.captured_keys == ()
    assert wrapper.counters.released == 2


def test_capture_failing_leaves_wrapper_usable(fake: FakeDevice, context: GraphContext) -> None:
    is_bad = True

    def step(x: torch.Tensor) -> torch.Tensor:
        return x * x.sum().item() if is_bad else x * 2

    wrapper, x = graphed(fake, context, step), torch.ones(4)
    with pytest.raises(
        IllegalWhileCapturingError, match=r"capturing 'decode' under key \(num_tokens=4\)"
    ):
        capture(fake, context, wrapper, x)
    assert wrapper.captured_keys == ()
    is_bad = False
    capture(fake, context, wrapper, x)
    with context.run(RunMode.FULL, KEY):
        assert wrapper(x).tolist() == [2.0] * 4


@pytest.mark.parametrize("is_observed", [True, False])
def test_replay_failing_on_device_is_diagnosed(
    fake: FakeDevice, context: GraphContext, is_observed: bool
) -> None:
    wrapper = graphed(fake, context, Step(), observer=Log() if is_observed else None)
    x = torch.ones(4)
    capture(fake, context, wrapper, x)
    graph, pool = fake.create_graph(), fake.create_memory_pool()
    with (
        context.run(RunMode.FULL, KEY),
        pytest.raises(IllegalWhileCapturingError, match="replaying 'decode'") as caught,
        fake.capture(graph, pool=pool),
    ):
        wrapper(x)
    assert caught.value.code == 107027
    with context.run(RunMode.FULL, KEY):
        assert wrapper(x).tolist() == [2.0] * 4


def test_graph_that_waits_for_external_event_replays_after_it(
    fake: FakeDevice, context: GraphContext
) -> None:
    event, lane = fake.create_external_event(), fake.create_stream()

    def step(x: torch.Tensor) -> torch.Tensor:
        if fake.is_capturing():
            event.wait(fake.current_stream())
            event.reset(fake.current_stream())
        return x * 2

    wrapper, x = graphed(fake, context, step), torch.ones(4)
    capture(fake, context, wrapper, x)
    with context.run(RunMode.FULL, KEY):
        out = wrapper(x)
        assert out.isnan().all()
        event.record(lane)
        assert out.tolist() == [2.0] * 4
        wrapper(x)
        with pytest.raises(DeadlockError, match="stream 0 waits for an external event"):
            fake.synchronize()


def test_observer_receives_each_event_with_durations(
    fake: FakeDevice, context: GraphContext
) -> None:
    log = Log()
    wrapper = graphed(fake, context, Step(), observer=log)
    x = torch.ones(4)
    with context.run(RunMode.FULL, KEY), pytest.raises(GraphNotCapturedError):
        wrapper(x)
    capture(fake, context, wrapper, x)
    with context.run(RunMode.FULL, KEY):
        wrapper(x)
    wrapper.release(KEY)
    missed, captured, replayed, released = log.events
    assert missed == GraphMissed(name="decode", key=KEY)
    assert isinstance(captured, GraphCaptured)
    assert captured.seconds > 0
    assert captured.warmup_seconds > 0
    assert isinstance(replayed, GraphReplayed)
    assert (replayed.name, replayed.key, replayed.seconds > 0) == ("decode", KEY, True)
    assert released == GraphReleased(name="decode", key=KEY)
    assert wrapper.counters.replayed == 1


def test_wrapper_describes_itself(fake: FakeDevice, context: GraphContext) -> None:
    step = Step()
    wrapper = graphed(fake, context, step)
    assert repr(wrapper) == "GraphedCallable('decode', FULL, 0 graphs)"


@pytest.mark.parametrize(
    ("options", "message"),
    [({"run_mode": RunMode.EAGER}, "run_mode is EAGER"), ({"warmup_runs": -1}, "-1")],
)
def test_wrapper_with_impossible_option_raises(
    fake: FakeDevice, context: GraphContext, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        graphed(fake, context, Step(), **options)


def test_function_is_reached_through_the_wrapper(fake: FakeDevice, context: GraphContext) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(2, 2))
    step = GraphedCallable(model, device=fake, context=context, run_mode=RunMode.FULL, name="model")

    assert step.unwrap() is model


def test_class_has_no_hook_that_makes_attributes_slow() -> None:
    """With one, CPython looks up each attribute of a replay by its slow path."""
    hooks = {"__getattr__", "__getattribute__"}
    classes = (*GraphedCallable.__mro__, *Graphed.__mro__)
    assert not any(hooks & vars(each).keys() for each in classes if each is not object)
