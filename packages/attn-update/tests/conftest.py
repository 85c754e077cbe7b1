"""The devices of the tests: simulated CANN, and a fake device with small paged models."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

import pytest
import torch

import cann_sim
from attn_update import ParameterGroup, Recorder, StepParameters, UpdateLane, UpdatePlan
from attn_update.issuing.kernels.kernel_updater import KernelUpdater
from attn_update.issuing.native.native_updater import NativeUpdater
from attn_update.issuing.updater import Updater
from attn_update.lane.replay_state import ReplayState
from npu_graph_runtime import FakeDevice, NpuDevice
from npu_graph_testing.attention import (
    AttentionOperators,
    PagedModel,
    assert_layers_equal,
    draw_lengths,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
    from random import Random

    from attn_update import AddressedDevice, UpdaterChoice
    from attn_update.issuing.updater import BoundLaunches
    from attn_update.kinds import FusedInferAttention
    from npu_graph_runtime.device import DeviceGraph

pytest_plugins = "cann_sim.pytest_plugin"

CaptureDispatched: TypeAlias = "Callable[[PagedModel, int], Any]"
CheckBurst: TypeAlias = "Callable[[UpdateLane, list[PagedModel], Random], None]"
BLOCK_SIZE = 4
SCHEDULES = 200
# Tests on a held device take one as a seed, and run it in many ways: so many times fewer.
SCHEDULES_OF_A_HELD_DEVICE = 50
BURSTS = 4
SIGNALS = 60


@dataclass(kw_only=True)
class Model:
    """A model of attention layers on a fake device, captured for several batch sizes."""

    device: FakeDevice
    kind: FusedInferAttention
    num_layers: int = 3
    width: int = 3
    recorder: Recorder = field(init=False)
    pool: object = field(init=False)
    graphs: dict[object, DeviceGraph] = field(default_factory=dict)
    plans: dict[object, UpdatePlan] = field(default_factory=dict)
    inputs: dict[object, dict[str, torch.Tensor]] = field(default_factory=dict)
    outputs: dict[object, list[torch.Tensor]] = field(default_factory=dict)
    caches: list[torch.Tensor] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.recorder = Recorder(self.device, {"attention": self.kind})
        self.pool = self.device.create_memory_pool()
        generator = torch.Generator().manual_seed(7)
        self.caches = [
            torch.randint(1, 1000, (8, BLOCK_SIZE, 2), generator=generator).double()
            for _ in range(self.num_layers)
        ]

    def arguments(self, key: int, layer: int, lengths: list[int]) -> dict[str, object]:
        """Return the arguments of attention in one layer, for `key` sequences of one token."""
        if key not in self.inputs:
            table = torch.arange(key * self.width).reshape(key, self.width) % 8
            query = torch.zeros(key, 2, dtype=torch.double)
            self.inputs[key] = {"query": query, "block_table": table.int()}
        return {
            **self.inputs[key],
            "key": self.caches[layer],
            "value": self.caches[layer],
            "actual_seq_lengths": list(range(1, key + 1)),
            "actual_seq_lengths_kv": lengths,
            "input_layout": "TND",
            "block_size": BLOCK_SIZE,
        }

    def capture(self, key: int, *, pad: bool = False) -> UpdatePlan:
        """Capture all layers for `key` sequences of length one and compile the plan."""
        self.arguments(key, 0, [1] * key)  # what is made in the capture would be the graph's
        self.graphs[key] = graph = self.device.create_graph()
        with self.recorder.recording(key), self.device.capture(graph, pool=self.pool):
            self.outputs[key] = [
                self.recorder.attention(
                    f"layer.{layer}", "attention", self.arguments(key, layer, [1] * key)
                )[0]
                for layer in range(self.num_layers)
            ]
        names = frozenset({"actual_seq_lengths", "actual_seq_lengths_kv"})
        groups = {"default": ParameterGroup(arguments=names, pad=pad)}
        self.plans[key] = UpdatePlan.compile(self.recorder, key, groups=groups)
        return self.plans[key]

    def parameters(self, key: int, lengths: list[int]) -> StepParameters:
        """Return the step parameters for one token of each sequence."""
        ends = list(range(1, key + 1))
        group = {"actual_seq_lengths": ends, "actual_seq_lengths_kv": lengths}
        return StepParameters(key=key, groups={"default": group})

    def expected(self, key: int, lengths: list[int]) -> list[torch.Tensor]:
        """Return the outputs of the layers for these lengths, computed without the device."""
        table = self.inputs[key]["block_table"].long()
        return [
            torch.stack(
                [
                    cache[table[row]].flatten(0, 1)[:length].sum(0)
                    for row, length in enumerate(lengths)
                ]
            )
            for cache in self.caches
        ]

    def observed_replay(self, key: int, seen: list[list[torch.Tensor]]) -> Callable[[], None]:
        """Return a replay that also queues copies of the outputs as they are at its end."""

        def replay() -> None:
            self.graphs[key].replay()
            with self.device.use_stream(self.device.current_stream()):
                seen.append([out.clone() for out in self.outputs[key]])

        return replay


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("attn-update")
    group.addoption("--schedules", type=int, default=SCHEDULES, help="fuzzed schedules to run")
    group.addoption("--bursts", type=int, default=BURSTS, help="bursts of steps of every kind")
    group.addoption("--signals", type=int, default=SIGNALS, help="real signals to send")
    group.addoption("--every-place", action="store_true", help="interrupt captures at all of them")
    group.addoption("--schedule-seed", type=int, default=0, help="seed of the fuzzed schedules")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "schedule" in metafunc.fixturenames:
        schedules: int = metafunc.config.getoption("--schedules", SCHEDULES)
        metafunc.parametrize("schedule", range(max(1, schedules // SCHEDULES_OF_A_HELD_DEVICE)))


@pytest.fixture
def num_bursts(request: pytest.FixtureRequest) -> int:
    count: int = request.config.getoption("--bursts", BURSTS)
    return count


@pytest.fixture
def num_signals(request: pytest.FixtureRequest) -> int:
    count: int = request.config.getoption("--signals", SIGNALS)
    return count


@pytest.fixture
def num_schedules(request: pytest.FixtureRequest) -> int:
    count: int = request.config.getoption("--schedules", SCHEDULES)
    return count


@pytest.fixture
def schedule_seed(request: pytest.FixtureRequest) -> int:
    seed: int = request.config.getoption("--schedule-seed", 0)
    return seed


UPDATERS: Mapping[str, Callable[[], Updater]] = {
    "kernels": KernelUpdater,
    "native": NativeUpdater.load,
}


@pytest.fixture(params=["operators", *UPDATERS])
def any_updater(request: pytest.FixtureRequest) -> UpdaterChoice:
    """Each way to launch updates."""
    choice: UpdaterChoice = request.param
    return choice


@pytest.fixture(params=UPDATERS)
def updater(request: pytest.FixtureRequest) -> Updater:
    """Each updater that launches all updates of a step at once."""
    return UPDATERS[request.param]()


class RefusingEvents(Updater):
    """Events after replays that cannot be waited for while `refused`; wraps an updater."""

    def __init__(self, updater: Updater) -> None:
        self.refused = False
        self._updater = updater

    def bind(
        self, plan: UpdatePlan, device: AddressedDevice, calls: Mapping[str, int]
    ) -> BoundLaunches | str:
        return self._updater.bind(plan, device, calls)

    def event_recorder(self, calls: Mapping[str, int]) -> Callable[[int], Any]:
        record, owner = self._updater.event_recorder(calls), self

        class Event:
            def __init__(self, stream: int) -> None:
                self.event = record(stream)

            def wait(self, stream: int, /) -> None:
                if owner.refused:
                    raise RuntimeError("the device refused")
                self.event.wait(stream)

        return Event


@pytest.fixture
def refusing(updater: Updater) -> RefusingEvents:
    """An updater whose events can be made to fail."""
    return RefusingEvents(updater)


@pytest.fixture(scope="session")
def simulated_npu() -> NpuDevice:
    cann_sim.activate()
    device = NpuDevice(0)
    npu: Any = vars(torch)["npu"]
    npu.config.allow_internal_format = False
    npu.set_compile_mode(jit_compile=False)
    return device


class _Lacking(NpuDevice):
    lacks: Collection[str] | None = None

    def kernel_calls(self, names: Sequence[str]) -> dict[str, int]:
        told = super().kernel_calls(names)
        lacks = told if self.lacks is None else self.lacks
        return {name: address for name, address in told.items() if name not in lacks}


@pytest.fixture
def device_without_kernels(npu_device: NpuDevice) -> NpuDevice:
    """A device whose operators are called through torch, as one of another family."""
    return _Lacking(npu_device.index)


class _QueuedNpuDevice(NpuDevice):
    create_direct_stream = None  # type: ignore[assignment]


@pytest.fixture
def device_without_direct_streams(npu_device: NpuDevice) -> NpuDevice:
    """A device whose streams all have the launch queue."""
    return _QueuedNpuDevice(npu_device.index)


@pytest.fixture
def device_lacking(npu_device: NpuDevice) -> Callable[[str], NpuDevice]:
    """Make a device that does not expose one function of the operator library."""

    def make(name: str) -> NpuDevice:
        device = _Lacking(npu_device.index)
        device.lacks = (name,)
        return device

    return make


@pytest.fixture
def npu_device(simulated_npu: NpuDevice) -> Iterator[NpuDevice]:
    """The simulated NPU, on a stream of the test's own."""
    with simulated_npu.use_stream(simulated_npu.create_stream()):
        yield simulated_npu
    simulated_npu.synchronize()


def run_and_check_burst(lane: UpdateLane, models: list[PagedModel], random: Random) -> None:
    """Run four steps of models and keys that are drawn, then compare them with the operator."""
    before = cann_sim.counters().synchronisations
    burst = []
    for _ in range(4):
        model, key = random.choice(models), random.choice([2, 4])
        lengths = draw_lengths(random, key)
        burst.append((model, key, lengths, model.step(lane, key, lengths)))
    assert cann_sim.counters().synchronisations == before
    lane.drain()
    for model, key, lengths, outputs in burst:
        assert_layers_equal(outputs, model.eager(key, lengths))


@pytest.fixture
def check_burst() -> CheckBurst:
    """Check that four steps of a lane, the host ahead of the device, are right."""
    return run_and_check_burst


DISPATCHED = {
    "fused_infer_attention_v1": "npu_fused_infer_attention_score",
    "fused_infer_attention_v2": "npu_fused_infer_attention_score_v2",
}


def capture_as_torch_npu_does(model: PagedModel, key: int) -> Any:
    """Capture as a user of torch_npu's own recording does."""
    operator = getattr(torch.ops.npu, DISPATCHED[model.kind_name])
    npu: Any = vars(torch)["npu"]
    graph = npu.NPUGraph()
    with npu.graph(graph, auto_dispatch_capture=True):
        model.outputs[key] = []
        for layer in range(model.num_layers):
            given: dict[str, Any] = model.arguments(key, layer, [1] * key)
            tensors = [given.pop(name) for name in ("query", "key", "value")]
            model.outputs[key].append(operator(*tensors, **given)[0])
    return graph


@pytest.fixture
def capture_dispatched() -> CaptureDispatched:
    """Capture a model with torch_npu's own recording; returns the graph."""
    return capture_as_torch_npu_does


def mark_as_failed(plan: UpdatePlan) -> None:
    """Make the next step of a plan update first, as the one after a failed step does."""
    owner = plan.records.owner
    # Before the first step no lane knows of the graph.
    if isinstance(owner, ReplayState):
        owner.unsettled = True


@pytest.fixture
def fail_before() -> Callable[[UpdatePlan], None]:
    """Set a lane to the state after a failed step of a plan."""
    return mark_as_failed


class _QueuedDevice(FakeDevice):
    create_direct_stream = None  # type: ignore[assignment]


@pytest.fixture(params=["no_queue", "launch_queue"])
def device(request: pytest.FixtureRequest) -> FakeDevice:
    if request.param == "launch_queue_only":
        return _QueuedDevice(is_held=True, has_launch_queue=True)
    return FakeDevice(is_held=True, has_launch_queue=request.param == "launch_queue")


@pytest.fixture
def operators() -> Iterator[AttentionOperators]:
    with AttentionOperators() as operators:
        yield operators


@pytest.fixture
def model(device: FakeDevice, operators: AttentionOperators) -> Model:
    return Model(device=device, kind=operators.kind())


@pytest.fixture
def make_model(device: FakeDevice, operators: AttentionOperators) -> Callable[..., Model]:
    """Make models on one device; keyword arguments go to the kind."""

    def make(*, num_layers: int = 3, rebind_block_table: bool = False) -> Model:
        kind = operators.kind(rebind_block_table=rebind_block_table)
        return Model(device=device, kind=kind, num_layers=num_layers)

    return make
