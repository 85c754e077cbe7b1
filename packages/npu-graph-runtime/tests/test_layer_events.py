"""Layer events: other streams and the host wait for named places of captured graphs."""

from __future__ import annotations

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
from npu_graph_runtime.errors import LayerEventError, ReplayRefusedError

if TYPE_CHECKING:
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
    ) -> None:
        self.device, self.context = device, GraphContext()
        self.names = names
        self.events = LayerEvents(device)
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
            around_replay=self.events.around_replay,
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

    def capture(self) -> None:
        session = CaptureSession(device=self.device, context=self.context)
        with torch.no_grad(), session, self.context.run(self.run_mode, KEY):
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


def test_graph_that_was_captured_without_the_events_is_refused(device: GraphDevice) -> None:
    model, other = Model(device), LayerEvents(device)
    graphed = GraphedCallable(
        model.forward,
        device=device,
        context=model.context,
        run_mode=RunMode.FULL,
        name="model",
        around_replay=other.around_replay,
    )
    session = CaptureSession(device=device, context=model.context)
    with torch.no_grad(), model.context.run(RunMode.FULL, KEY):
        with session:
            graphed(model.x)
        with pytest.raises(LayerEventError, match="captured without them"):
            graphed(model.x)


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


def replay_twice(graph: DeviceGraph) -> None:
    for _ in range(2):
        graph.replay()


@pytest.mark.parametrize("run_mode", [RunMode.FULL, RunMode.BREAKABLE], ids=lambda mode: mode.name)
def test_graph_is_replayed_once_in_each_step_and_never_outside(
    device: GraphDevice, run_mode: RunMode
) -> None:
    model = Model(device, run_mode=run_mode)
    model.capture()
    model.replay(1)
    model.events.current.synchronize("layers.3.kv")
    graph = model.graphed.graph_of(KEY)
    with pytest.raises(ReplayRefusedError, match="outside of a step"):
        graph.replay()
    model.replay(2)
    model.events.current.synchronize("layers.3.kv")
    assert model.caches[3].tolist() == [2.0 + LAYERS] * 4
    with (
        pytest.raises(ReplayRefusedError, match="a second time in one step"),
        model.events.around_replay(KEY),
    ):
        replay_twice(graph)
    device.synchronize()
    model.graphed.release(KEY)
    model.capture()
    with pytest.raises(LayerEventError, match="was not replayed"), model.events.around_replay(KEY):
        pass
    model.graphed.release(KEY)
    model.capture()
    model.replay(3)
    model.events.current.synchronize("layers.3.kv")
    # Without its events the graph is like any other.
    graph = model.graphed.graph_of(KEY)
    model.events.release(KEY)
    graph.replay()
    device.synchronize()


def test_replay_that_failed_is_not_waited_for() -> None:
    device = FakeDevice()
    model = Model(device)
    model.capture()
    around = model.events.around_replay(KEY)
    with pytest.raises(RuntimeError, match="lost"), around:
        raise RuntimeError("lost")
    with pytest.raises(LayerEventError, match="failed at its last replay"):
        model.replay(1)
    model.graphed.release(KEY)
    model.capture()
    model.replay(1)
    model.events.current.synchronize("layers.0.kv")


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


class _FailingGraph:
    def replay(self) -> None:
        raise RuntimeError("the stream is full")

    def reset(self) -> None:
        pass
