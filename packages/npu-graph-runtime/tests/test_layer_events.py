"""Layer events: other streams and the host wait for named places of captured graphs."""

from __future__ import annotations

import contextlib
import random
import threading
from typing import TYPE_CHECKING, Any

import pytest
import torch

from npu_graph_runtime import (
    CaptureSession,
    FakeDevice,
    GraphContext,
    GraphedCallable,
    GraphKey,
    LayerEvents,
    NpuDevice,
    RunMode,
    runs_eagerly,
)
from npu_graph_runtime.capturing.breakable_capture import CapturedSegment, SegmentedGraph
from npu_graph_runtime.errors import LayerEventError, ReplayRefusedError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from npu_graph_runtime import GraphDevice
    from npu_graph_runtime.device import DeviceGraph, ExternalEvent

KEY = GraphKey(num_tokens=4)
LAYERS = 4
NAMES = tuple(f"layers.{layer}.kv" for layer in range(LAYERS))


class Model:
    """Layer by layer writes a cache, and records that it did; may wait for a gate in between."""

    def __init__(
        self,
        device: GraphDevice,
        *,
        run_mode: RunMode = RunMode.FULL,
        gated: bool = False,
        names: tuple[str, ...] = NAMES,
        events: LayerEvents | None = None,
    ) -> None:
        self.device, self.context = device, GraphContext()
        self.names = names
        self.events = events or LayerEvents(device)
        self.gate: ExternalEvent | None = device.create_external_event() if gated else None
        self.run_mode = run_mode
        self.x = torch.zeros(4, device=device.torch_device)
        self.caches = [torch.zeros(4, device=device.torch_device) for _ in range(LAYERS)]
        self.between: Any = runs_eagerly(self.context)(lambda x: x + 0)
        self.graphed = GraphedCallable(
            self.forward,
            device=device,
            context=self.context,
            run_mode=run_mode,
            name="model",
            around_capture=self.events.around_capture,
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer, (name, cache) in enumerate(zip(self.names, self.caches, strict=True)):
            x = self.between(x) + 1 if self.run_mode is RunMode.BREAKABLE else x + 1
            cache.copy_(x)
            self.events.record(name)
            if layer == 0 and self.gate is not None and self.device.is_capturing():
                stream = self.device.current_stream()
                self.gate.wait(stream)
                self.gate.reset(stream)
        return x

    def capture(self, key: GraphKey = KEY) -> None:
        session = CaptureSession(device=self.device, context=self.context)
        with torch.no_grad(), session, self.context.run(self.run_mode, key):
            self.graphed(self.x)

    def replay(self, value: float) -> None:
        with torch.no_grad():
            self.x.fill_(value)
            with self.context.run(self.run_mode, KEY):
                self.graphed(self.x)


@pytest.fixture(params=["fake", "npu"])
def device(request: pytest.FixtureRequest) -> Any:
    return request.getfixturevalue(request.param)


def test_another_stream_reads_a_layer_while_later_layers_wait(device: GraphDevice) -> None:
    model = Model(device, gated=True)
    model.capture()
    consumer = device.create_stream()
    copied = torch.zeros(4, device=device.torch_device)
    device.synchronize()
    for value in (3, 8):
        model.replay(value)
        step = model.events.current
        step.wait("layers.0.kv", consumer)
        with device.use_stream(consumer):
            copied.copy_(model.caches[0])
            assert copied.tolist() == [value + 1] * 4
        assert step.is_reached("layers.0.kv")
        assert not step.is_reached("layers.1.kv")
        assert model.gate is not None
        model.gate.record(consumer)
        step.synchronize("layers.3.kv")
        assert step.is_reached("layers.3.kv")


def test_host_waits_for_a_layer(device: GraphDevice) -> None:
    model = Model(device)
    model.capture()
    model.replay(5)
    seen: list[Any] = []

    def consume() -> None:
        model.events.current.synchronize("layers.2.kv")
        seen.append(model.caches[2].tolist())

    thread = threading.Thread(target=consume)
    thread.start()
    thread.join(60)
    assert seen == [[8.0] * 4]


def test_step_that_nobody_waited_for_does_not_let_the_next_wait_through(
    device: GraphDevice,
) -> None:
    model = Model(device, gated=True)
    model.capture()
    gate, opener = model.gate, device.create_stream()
    assert gate is not None
    for asked in ((), ("layers.3.kv",), ()):
        model.replay(1)
        gate.record(opener)
        for name in asked:
            model.events.current.synchronize(name)
        device.synchronize()
    model.replay(2)
    step = model.events.current
    assert not step.is_reached("layers.0.kv")  # stale: nobody queried it in the step before
    gate.record(opener)
    step.synchronize("layers.0.kv")
    assert step.is_reached("layers.0.kv")
    step.synchronize("layers.3.kv")
    model.replay(3)
    step = model.events.current
    step.synchronize("layers.0.kv")
    assert [step.is_reached(name) for name in step.names] == [True, False, False, False]
    gate.record(opener)
    device.synchronize()
    step.synchronize("layers.3.kv")
    assert all(step.is_reached(name) for name in step.names)


def test_slow_consumer_delays_no_replay(device: GraphDevice) -> None:
    model = Model(device)
    model.capture()
    consumer, release = device.create_stream(), device.create_external_event()
    release.wait(consumer)
    release.reset(consumer)
    for value in range(5):
        model.replay(value)
        for name in model.names:
            model.events.current.wait(name, consumer)
        device.current_stream().synchronize()
        assert model.caches[-1].tolist() == [value + LAYERS] * 4
    assert not consumer.query()
    release.record(device.current_stream())
    device.synchronize()


@pytest.mark.parametrize("run_mode", [RunMode.FULL, RunMode.BREAKABLE], ids=lambda mode: mode.name)
def test_values_are_those_of_the_step_for_every_reader(
    device: GraphDevice, run_mode: RunMode, num_calls: int
) -> None:
    model = Model(device, run_mode=run_mode)
    model.capture()
    choose = random.Random(7)
    consumers = [device.create_stream() for _ in range(2)]
    copies = [torch.zeros(4, device=device.torch_device) for _ in range(2 * LAYERS)]
    device.synchronize()
    for value in range(num_calls // 5):
        for consumer in consumers:
            device.current_stream().wait_stream(consumer)
        model.replay(value)
        asked = {}
        for number, consumer in enumerate(consumers):
            for layer in range(LAYERS):
                if choose.random() < 0.4:
                    place = number * LAYERS + layer
                    model.events.current.wait(model.names[layer], consumer)
                    with device.use_stream(consumer), torch.no_grad():
                        copies[place].copy_(model.caches[layer])
                    asked[place] = value + layer + 1
        if choose.random() < 0.3:
            device.synchronize()
            for place, expected in asked.items():
                assert copies[place].tolist() == [expected] * 4, (value, place)


def test_any_order_of_streams_gives_the_values_of_the_step(num_models: int) -> None:
    for seed in range(num_models * 4):
        choose = random.Random(seed)
        device = FakeDevice(is_held=True)
        model = Model(device)
        model.capture()
        consumer = device.create_stream()
        copies = [torch.zeros(4) for _ in range(LAYERS)]
        device.synchronize()
        for value in range(4):
            device.current_stream().wait_stream(consumer)
            model.replay(value)
            asked = [layer for layer in range(LAYERS) if choose.random() < 0.5]
            for layer in asked:
                device.advance(choose, choose.randrange(4))
                model.events.current.wait(model.names[layer], consumer)
                with device.use_stream(consumer), torch.no_grad():
                    copies[layer].copy_(model.caches[layer])
            if choose.random() < 0.5:
                device.synchronize()
                for layer in asked:
                    assert copies[layer].tolist() == [value + layer + 1] * 4, seed
        device.synchronize()


def test_eager_step_has_ordinary_events(device: GraphDevice) -> None:
    model = Model(device)
    with torch.no_grad(), model.events.eager_step() as step:
        model.forward(model.x)
    assert step is model.events.current
    assert step.names == model.names
    step.synchronize("layers.3.kv")
    assert step.is_reached("layers.0.kv")


def test_nothing_is_recorded_in_an_eager_run_outside_of_a_step(device: GraphDevice) -> None:
    model = Model(device)
    model.forward(model.x)
    with pytest.raises(LayerEventError, match="no step was replayed yet"):
        _ = model.events.current


def test_eager_run_outside_of_a_step_leaves_no_current_step(device: GraphDevice) -> None:
    model = Model(device)
    model.capture()
    model.replay(1)
    with torch.no_grad():
        model.forward(model.x)
    # That of the replay is reached already, and this run is not.
    with pytest.raises(LayerEventError, match=r"use eager_step\(\)"):
        _ = model.events.current
    model.replay(2)
    model.events.current.synchronize("layers.3.kv")
    assert model.caches[3].tolist() == [2.0 + LAYERS] * 4


@pytest.mark.parametrize("is_eager", [False, True])
def test_name_that_is_recorded_twice_is_refused(device: GraphDevice, is_eager: bool) -> None:
    model = Model(device, names=("kv", "kv", "last", "end"))

    def eager_step() -> None:
        with model.events.eager_step():
            model.forward(model.x)

    step = eager_step if is_eager else model.capture
    with pytest.raises(LayerEventError, match=r"'kv': the name was recorded before in this"):
        step()
    model.names = ("a", "b", "c", "d")
    model.capture()
    model.replay(1)
    model.events.current.synchronize("d")


def test_unknown_name_and_step_that_is_over_are_refused(device: GraphDevice) -> None:
    model = Model(device)
    model.capture()
    model.replay(1)
    step = model.events.current
    with pytest.raises(LayerEventError, match=r"'layers.9.kv': the step has recorded 'layers"):
        step.wait("layers.9.kv")
    model.replay(2)
    with pytest.raises(LayerEventError, match=r"of step 1: the graph was replayed again"):
        step.wait("layers.0.kv")
    model.events.current.wait("layers.0.kv")
    device.synchronize()


def test_graph_that_was_captured_without_the_events_makes_no_step(device: GraphDevice) -> None:
    model = Model(device)
    graphed = GraphedCallable(
        model.forward,
        device=device,
        context=model.context,
        run_mode=RunMode.FULL,
        name="model",
    )
    session = CaptureSession(device=device, context=model.context)
    with torch.no_grad(), model.context.run(RunMode.FULL, KEY):
        with session:
            graphed(model.x)
        graphed(model.x)
    with pytest.raises(LayerEventError, match="no step was replayed yet"):
        _ = model.events.current
    device.synchronize()


def test_capture_that_records_no_name_is_refused(device: GraphDevice) -> None:
    model = Model(device)
    model.names, names = (), model.names
    model.caches, caches = [], model.caches
    with pytest.raises(LayerEventError, match="has recorded no name"):
        model.capture()
    model.names, model.caches = names, caches
    model.capture()
    model.replay(1)
    model.events.current.synchronize("layers.3.kv")


def test_capture_that_is_not_the_devices_own_is_refused(npu: NpuDevice) -> None:
    events = LayerEvents(npu)
    native: Any = vars(torch)["npu"]
    graph = native.NPUGraph()
    with (
        pytest.raises(LayerEventError, match=r"this thread captures no graph by capture\(\)"),
        events.around_capture(KEY),
        native.graph(graph),
    ):
        events.record("kv")
    graph.reset()


def test_device_that_cannot_wrap_replays_is_refused() -> None:
    class _OtherDevice:
        name = "other:0"

    other: Any = _OtherDevice()
    with pytest.raises(LayerEventError, match="a _OtherDevice has no wrap_replays"):
        LayerEvents(other)


def test_graph_is_captured_again_after_its_release(device: GraphDevice) -> None:
    model = Model(device)
    for round_ in range(3):
        model.capture()
        for value in range(2):
            model.replay(value)
            model.events.current.synchronize("layers.3.kv")
            assert model.caches[3].tolist() == [value + LAYERS] * 4, round_
        step = model.events.current
        model.graphed.release(KEY)
        model.events.release(KEY)
        with pytest.raises(LayerEventError, match="replayed again or released"):
            step.wait("layers.3.kv")


@pytest.mark.parametrize("run_mode", [RunMode.FULL, RunMode.BREAKABLE], ids=lambda mode: mode.name)
def test_every_replay_is_a_step_whoever_replays(device: GraphDevice, run_mode: RunMode) -> None:
    model = Model(device, run_mode=run_mode)
    model.capture()
    graph = model.graphed.graph_of(KEY)
    with torch.no_grad():
        for value in range(4):
            model.x.fill_(value)
            graph.replay()
            step = model.events.current
            if value % 2:
                step.wait("layers.1.kv")
            # Two replays, and nobody has asked for anything of the first.
            graph.replay()
            with pytest.raises(LayerEventError, match="replayed again"):
                step.wait("layers.2.kv")
            model.events.current.synchronize("layers.3.kv")
            assert model.caches[3].tolist() == [value + LAYERS] * 4
    # Its captured records would reach events that later captures use.
    model.events.release(KEY)
    with pytest.raises(ReplayRefusedError, match="its layer events were released"):
        graph.replay()
    with pytest.raises(LayerEventError, match="replayed again or released"):
        model.events.current.wait("layers.3.kv")


def test_graph_is_not_replayed_after_another_took_its_key(device: GraphDevice) -> None:
    target = Model(device)
    draft = Model(device, events=target.events)
    target.capture()
    draft.capture()
    draft.replay(1)
    # Its replay would make no step, and `current` would be that of the draft.
    with pytest.raises(ReplayRefusedError, match="capture of the same key"):
        target.replay(5)
    draft.replay(2)
    draft.events.current.synchronize("layers.3.kv")
    assert draft.caches[3].tolist() == [2.0 + LAYERS] * 4


def test_thread_asks_for_a_step_while_another_graph_is_captured(device: GraphDevice) -> None:
    model = Model(device)
    model.capture()
    for value in range(3):
        model.replay(value)
        for name in NAMES:
            model.events.current.synchronize(name)
    model.replay(3)
    step, capture, reader = model.events.current, device.capture, device.create_stream()
    asked: list[str] = []

    def ask(name: str) -> None:
        step.wait(name, reader)
        asked.append(name)

    @contextlib.contextmanager
    def capturing(*args: Any, **options: Any) -> Iterator[None]:
        with capture(*args, **options):
            thread = threading.Thread(target=ask, args=(NAMES[len(asked) % LAYERS],))
            thread.start()
            thread.join(60)
            yield

    other = Model(device, events=model.events, names=("a", "b", "c", "d"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(device, "capture", capturing)
        other.capture(GraphKey(num_tokens=8))
    assert asked == [*NAMES, NAMES[0]]
    with device.use_stream(reader):
        read = [cache + 0 for cache in model.caches]
    device.synchronize()
    assert [cache.tolist() for cache in read] == [[3.0 + layer] * 4 for layer in range(1, 5)]


def segments_of(model: Model) -> list[DeviceGraph]:
    graph = model.graphed.graph_of(KEY)
    assert isinstance(graph, SegmentedGraph)
    return [each.graph for each in graph.segments if isinstance(each, CapturedSegment)]


def test_segment_out_of_order_is_refused(device: GraphDevice) -> None:
    model = Model(device, run_mode=RunMode.BREAKABLE)
    model.capture()
    first, second, third, *_ = segments_of(model)[1:]
    for before in ((), (first,), (first, second, third)):
        for segment in before:
            segment.replay()
        with pytest.raises(ReplayRefusedError, match=r"replaying segment . of"):
            (second if before != (first,) else third).replay()
    model.replay(2)
    model.events.current.synchronize("layers.3.kv")
    assert model.caches[3].tolist() == [2.0 + LAYERS] * 4


class _LostError(RuntimeError):
    pass


@pytest.mark.parametrize("asked", [(), ("layers.0.kv", "layers.3.kv")])
def test_step_that_stopped_halfway_is_over_and_the_next_one_is_right(
    device: GraphDevice, asked: tuple[str, ...]
) -> None:
    model = Model(device, run_mode=RunMode.BREAKABLE)
    fails_at, calls = 0, 0
    seen: list[str] = []

    def between(x: torch.Tensor) -> torch.Tensor:
        nonlocal calls
        calls += 1
        if calls == fails_at:
            with pytest.raises(LayerEventError, match="later replay has failed") as caught:
                model.events.current.wait("layers.0.kv")
            seen.append(str(caught.value))
            raise _LostError
        return x + 0

    model.between = runs_eagerly(model.context)(between)
    model.capture()
    for value in range(6):
        model.replay(value)
        step = model.events.current
        for name in asked:
            step.wait(name)
        calls, fails_at = 0, 3 + value % 2
        with pytest.raises(_LostError):
            model.replay(100)
        for late in (step, model.events.current):
            with pytest.raises(LayerEventError, match="later replay has failed"):
                late.wait("layers.1.kv")
        fails_at = 0
        model.replay(value)
        step = model.events.current
        for name in (*asked, "layers.2.kv"):
            step.synchronize(name)
        assert model.caches[2].tolist() == [value + 3.0] * 4
    assert len(seen) == 6


@pytest.mark.parametrize("num_quiet", [0, 1, 3])
def test_launch_that_failed_makes_no_step(num_quiet: int) -> None:
    device = FakeDevice()
    model = Model(device)
    model.capture()
    model.replay(1)
    step = model.events.current
    step.wait("layers.0.kv")
    for _ in range(num_quiet):
        model.replay(1)
    other = device.create_graph()
    with device.capture(other, pool=device.create_memory_pool()):
        # It fails before the launch where it has to wait for a relay.
        with pytest.raises(RuntimeError, match=r"which captures|is capturing and waits"):
            model.graphed.graph_of(KEY).replay()
        torch.zeros(1).add_(1)
    for late in (step, model.events.current):
        with pytest.raises(LayerEventError, match="later replay has failed"):
            late.wait("layers.0.kv")
    model.replay(5)
    model.events.current.synchronize("layers.0.kv")
    assert model.caches[0].tolist() == [6.0] * 4


def test_question_during_a_launch_is_refused(device: GraphDevice) -> None:
    model = Model(device, run_mode=RunMode.BREAKABLE)
    asked: list[str] = []

    def between(x: torch.Tensor) -> torch.Tensor:
        if model.graphed.captured_keys:
            thread = threading.Thread(target=ask)
            thread.start()
            thread.join(60)
        return x + 0

    def ask() -> None:
        try:
            model.events.current.wait("layers.0.kv", consumer)
        except LayerEventError as error:
            asked.append(str(error))

    consumer = device.create_stream()
    model.between = runs_eagerly(model.context)(between)
    model.capture()
    for value in range(3):
        model.replay(value)
        model.events.current.synchronize("layers.0.kv")
    # Before its first layer a step has not begun: the one before it is asked, if there is one.
    assert len(asked) == 3 * (LAYERS - 1) + 1
    assert all("later replay" in each for each in asked[LAYERS:])


@pytest.mark.parametrize("is_fenced", [False, True])
def test_replay_waits_for_readers_that_said_so(device: GraphDevice, is_fenced: bool) -> None:
    model = Model(device)
    model.capture()
    reader, gate = device.create_stream(), device.create_external_event()
    copied = torch.zeros(4, device=device.torch_device)
    device.synchronize()
    for value in (1, 2):
        model.replay(value)
        step = model.events.current
        step.wait("layers.0.kv", reader)
        gate.wait(reader)
        gate.reset(reader)
        with torch.no_grad(), device.use_stream(reader):
            copied.copy_(model.caches[0])
        if is_fenced:
            step.done_reading(reader)
        model.replay(value + 10)
        with pytest.raises(LayerEventError, match="noting a reader of step"):
            step.done_reading(reader)
        if not is_fenced:
            # Whoever reads late reads what the next replay wrote.
            device.current_stream().synchronize()
        gate.record(device.create_stream())
        device.synchronize()
        assert copied.tolist() == [value + 1.0 if is_fenced else value + 11.0] * 4
        assert model.caches[0].tolist() == [value + 11.0] * 4


def test_next_eager_step_waits_for_readers(device: GraphDevice) -> None:
    model = Model(device)
    reader, gate = device.create_stream(), device.create_external_event()
    copied = torch.zeros(4, device=device.torch_device)
    device.synchronize()
    with torch.no_grad(), device.use_stream(device.create_stream()):
        with model.events.eager_step() as step:
            model.forward(model.x)
        step.wait("layers.0.kv", reader)
        gate.wait(reader)
        gate.reset(reader)
        with device.use_stream(reader):
            copied.copy_(model.caches[0])
        step.done_reading(reader)
        with model.events.eager_step():
            model.forward(model.x + 10)
        gate.record(device.create_stream())
        with pytest.raises(LayerEventError, match="noting a reader of step 1"):
            step.done_reading(reader)
    device.synchronize()
    assert copied.tolist() == [1.0] * 4


def test_on_an_npu_two_keys_are_in_flight_together(npu: NpuDevice) -> None:
    model = Model(npu)
    other = GraphKey(num_tokens=2)
    model.capture()
    session = CaptureSession(device=npu, context=model.context)
    with torch.no_grad(), session, model.context.run(RunMode.FULL, other):
        model.graphed(model.x)
    consumer = npu.create_stream()
    for value in range(6):
        model.replay(value)
        first = model.events.current
        with torch.no_grad(), model.context.run(RunMode.FULL, other):
            model.graphed(model.x)
        model.events.current.wait("layers.1.kv", consumer)
        first.wait("layers.3.kv", consumer)
    npu.synchronize()


def test_wait_that_failed_does_not_let_the_next_one_through() -> None:
    device = FakeDevice()
    model = Model(device, gated=True)
    model.capture()
    gate, opener, name = model.gate, device.create_stream(), "layers.1.kv"
    assert gate is not None
    relays = model.events._places[KEY].relays
    relay, relays[name] = relays[name], _FailingGraph()
    model.replay(1)
    with pytest.raises(RuntimeError, match="full"):
        model.events.current.wait(name)
    relays[name] = relay
    gate.record(opener)
    device.synchronize()
    model.replay(2)
    assert not model.events.current.is_reached(name)
    gate.record(opener)
    device.synchronize()
    assert model.events.current.is_reached(name)


@pytest.mark.parametrize("run_mode", [RunMode.FULL, RunMode.BREAKABLE], ids=lambda mode: mode.name)
def test_threads_that_ask_at_any_time_neither_hang_nor_miss_a_step(
    npu: NpuDevice, run_mode: RunMode, num_calls: int
) -> None:
    model = Model(npu, run_mode=run_mode)
    model.capture()
    ends, problems, num_reached = False, list[str](), [0, 0]

    def ask_once(which: int, name: str) -> None:
        try:
            model.events.current.synchronize(name)
            num_reached[which] += 1
        except LayerEventError as error:
            if "replayed again" not in str(error) and "no step" not in str(error):
                problems.append(str(error))

    def ask(which: int) -> None:
        npu.bind_thread()
        choose = random.Random(which)
        while not ends:
            ask_once(which, choose.choice(model.names))

    threads = [threading.Thread(target=ask, args=(which,)) for which in range(2)]
    for thread in threads:
        thread.start()
    for value in range(num_calls):
        model.replay(value)
        if value % 3 == 0:
            model.events.current.synchronize("layers.3.kv")
            assert model.caches[3].tolist() == [value + LAYERS] * 4
    ends = True
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    npu.synchronize()
    assert problems == []
    assert all(num_reached)


class _FailingGraph:
    def replay(self) -> None:
        raise RuntimeError("the stream is full")

    def reset(self) -> None:
        pass
