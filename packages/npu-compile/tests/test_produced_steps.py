"""Runners whose attention reads metadata that producers make on the device in each step."""

from __future__ import annotations

import gc
import itertools
import weakref
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
import torch

import npu_compile
from attn_update import (
    Recorder,
    RecordingError,
    StepParameterError,
    UpdateLane,
)
from attn_update.kinds import DeviceLengthAttention, MetadataOperator
from attn_update.producers import Producer, ProducerError, ProducerLane
from npu_compile import (
    CapturedSteps,
    CompileConfig,
    ConfigError,
    DecodeRunner,
    InputError,
    InputSpec,
    PrefillRunner,
    StepProducers,
    StepSize,
)
from npu_compile.errors import OutputError
from npu_graph_runtime import FakeDevice, GraphContext, GraphKey, runs_eagerly

if TYPE_CHECKING:
    from collections.abc import Mapping

    from attn_update import Lengths

    StepLengths = Mapping[str, Mapping[str, Lengths]]

MOST, LONGEST, SIZES = 8, 9, (2, 4)
MODES = ("eager", "full", "piecewise", "breakable", "measured", "full_decode_and_piecewise")
SPECS = {"values": InputSpec(dtype=torch.float32)}
OPERATOR = MetadataOperator(
    argument="other", operator="aten::mul.Tensor", bounds=frozenset[str](), stage=1
)
KIND = DeviceLengthAttention(
    operator="aten::mul.Tensor", length_arguments=frozenset({"other"}), metadata=(OPERATOR,)
)
numbers = itertools.count()


class Metadata:
    """For each sequence ten times its length, in a buffer that stays."""

    def __init__(self, device: FakeDevice) -> None:
        self.lane = ProducerLane(device)
        self.lengths, self.factors = torch.zeros(MOST), torch.zeros(MOST)
        self.fails = False
        self.fails_in_capture_of = 0
        self.sizes: list[StepSize] = []
        self.made: list[weakref.ref[torch.Tensor]] = []

    def step_producers(self, *, captured: bool = False, **options: Any) -> StepProducers:
        return StepProducers(
            lane=self.lane,
            make=lambda size: self.make(size)[1 if captured else 0 :],
            needs=lambda size, lengths: {
                name: {"longest": max(_listed(lengths), default=0)}
                for name in ("lengths", "factors")[1 if captured else 0 :]
            },
            captured=captured,
            write_inputs=self.write if captured else None,
            groups=("rows",),
            **options,
        )

    def make(self, size: StepSize) -> list[Producer]:
        self.sizes.append(size)
        lengths, factors = self.lengths[: size.sequences], self.factors[: size.sequences]
        self.made.append(weakref.ref(factors))

        def multiply(_: object) -> None:
            is_failing = size.tokens == self.fails_in_capture_of
            if self.fails or (is_failing and self.lane.device.is_capturing()):
                raise ValueError("no factors")
            torch.mul(lengths, 10, out=factors)

        return [
            Producer(
                name="lengths",
                launch=lambda given: self.write(size, given),
                buffers=(lengths,),
                bounds={"longest": LONGEST},
            ),
            Producer(
                name="factors",
                launch=multiply,
                buffers=(factors,),
                inputs=(lengths,),
                bounds={"longest": LONGEST},
                stage=1,
            ),
        ]

    def write(self, size: StepSize, lengths: StepLengths) -> None:
        given = _listed(lengths)
        padded = [*given, *[0] * (size.sequences - len(given))]
        self.lengths[: size.sequences].copy_(torch.tensor(padded, dtype=torch.float32))


def _listed(lengths: StepLengths) -> list[int]:
    listed: list[int] = torch.as_tensor(lengths["rows"]["lengths"]).tolist()
    return listed


class Model:
    """Doubles, multiplies by the factors of attention, and adds one."""

    def __init__(self, recorder: Recorder, metadata: Metadata, context: GraphContext) -> None:
        self.name = f"produced_steps_{next(numbers)}"
        self.scale = 1.0
        library: Any = torch.library.Library
        self._library = library("npu_compile_tests", "FRAGMENT")
        self._library.define(f"{self.name}(Tensor values, Tensor(a!) out) -> ()")
        self._library.impl(
            self.name, runs_eagerly(context)(self._attend), "CompositeExplicitAutograd"
        )
        torch.library.register_fake(
            f"npu_compile_tests::{self.name}", lambda *_: None, lib=self._library
        )
        self._recorder, self._metadata = recorder, metadata
        self._call = getattr(torch.ops.npu_compile_tests, self.name)

    def _attend(self, values: torch.Tensor, out: torch.Tensor) -> None:
        given = {"self": values, "other": self._metadata.factors[: values.shape[0]]}
        out.copy_(self._recorder.attention("layers.0", KIND, given)[0])

    def __call__(self, values: torch.Tensor) -> torch.Tensor:
        values = values * 2 * self.scale
        out = torch.empty_like(values)
        self._call(values, out)
        return out + 1


class CountingLane(UpdateLane):
    """Counts the steps that were begun.

    Attributes:
        begun: how many.
    """

    begun = 0

    def run(self, *args: Any, **kwargs: Any) -> Any:
        self.begun += 1
        return super().run(*args, **kwargs)


class Setting:
    """A model with what its runners are made of."""

    def __init__(self, mode: str, *, device: FakeDevice | None = None, **options: Any) -> None:
        self.device = FakeDevice() if device is None else device
        self.context = GraphContext()
        self.recorder = Recorder(self.device)
        self.lane = CountingLane(self.device)
        self.metadata = Metadata(self.device)
        self.model = Model(self.recorder, self.metadata, self.context)
        splits = mode in {"piecewise", "full_decode_and_piecewise"}
        if splits:
            options["splitting_ops"] = (f"npu_compile_tests::{self.model.name}",)
        if mode == "measured":
            options["measured_modes"] = ("eager", "full", "breakable")
        self.config = CompileConfig.from_mapping(
            {"mode": mode, "capture_sizes": SIZES, "fuse": splits, **options}
        )

    def compile(self) -> npu_compile.CompiledModel:
        return npu_compile.compile_model(
            self.model,
            self.config,
            device=self.device,
            dynamic_arg_dims={"values": (0,)},
            context=self.context,
        )

    def decode_runner(self, producers: StepProducers | None, **options: Any) -> DecodeRunner:
        given: dict[str, Any] = {
            "inputs": SPECS,
            "recorder": self.recorder,
            "lane": self.lane,
            "set_lengths": lambda lengths: None,
            **options,
        }
        return DecodeRunner(self.compile(), producers=producers, **given)


def padding(size: int) -> dict[str, dict[str, list[int]]]:
    return {"rows": {"lengths": [0] * size}}


def assert_right(runner: DecodeRunner, lengths: list[int], *, scale: float = 1.0) -> None:
    values = torch.arange(1.0, len(lengths) + 1)
    padded = runner.padded_size(len(lengths))
    given = [*lengths, *[0] * (padded - len(lengths))]
    output = runner.run({"values": values}, {"rows": {"lengths": given}})
    runner.compiled.device.synchronize()
    expected = values * 2 * scale * torch.tensor(lengths) * 10 + 1
    assert output.tolist() == expected.tolist()


@pytest.mark.filterwarnings("ignore:running a decode batch:RuntimeWarning")
@pytest.mark.parametrize("captured", [False, True], ids=["beside", "inside"])
@pytest.mark.parametrize("mode", MODES)
def test_steps_of_every_mode_read_metadata_of_their_own(mode: str, captured: bool) -> None:
    setting = Setting(mode)
    runner = setting.decode_runner(setting.metadata.step_producers(captured=captured))
    runner.capture(padding)
    # The steps of 5 rows are larger than every capture size.
    for lengths in ([3, 4], [5], [1, 2, 3], [9, 8, 7, 6, 5], [9], [2, 3, 4, 5], [7, 7]):
        assert_right(runner, lengths)


@pytest.mark.parametrize("captured", [False, True], ids=["beside", "inside"])
@pytest.mark.parametrize("seed", range(4))
def test_steps_that_run_ahead_read_metadata_of_their_own(captured: bool, seed: int) -> None:
    random = Random(seed)
    setting = Setting("full", device=FakeDevice(is_held=True))
    device = setting.device
    runner = setting.decode_runner(setting.metadata.step_producers(captured=captured))
    with device.use_stream(device.create_stream()):
        runner.capture(padding)
        outputs, expected = [], []
        for _ in range(12):
            lengths = [random.randint(1, LONGEST) for _ in range(random.choice((1, 2, 4)))]
            size = runner.padded_size(len(lengths))
            given = [*lengths, *[0] * (size - len(lengths))]
            values = torch.arange(1.0, len(lengths) + 1)
            output = runner.run({"values": values}, {"rows": {"lengths": given}})
            outputs.append(output.clone())
            expected.append((values * 2 * torch.tensor(lengths) * 10 + 1).tolist())
            device.advance(random, random.randint(0, 6))
        device.synchronize()
    assert [output.tolist() for output in outputs] == expected


def test_verification_and_prefill_know_the_sequences_of_a_step() -> None:
    setting = Setting("full", prefill_capture_sizes=(4,), capture_sizes=(4,))
    metadata = setting.metadata

    def rows(values: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
        given = {"self": table * 2, "other": metadata.factors[: table.shape[0]]}
        attended = setting.recorder.attention("layers.0", KIND, given)[0]
        owners = torch.arange(values.shape[0]) % table.shape[0]
        return values + attended.index_select(0, owners)

    inputs = {**SPECS, "table": InputSpec(dtype=torch.float32, per_sequence=True)}
    compiled = npu_compile.compile_model(
        rows, setting.config, device=setting.device, context=setting.context
    )
    parts: dict[str, Any] = {"recorder": setting.recorder, "lane": setting.lane}
    parts |= {"inputs": inputs, "set_lengths": lambda lengths: None}
    parts["producers"] = metadata.step_producers()
    prefill = PrefillRunner(compiled, max_sequences=2, groups={}, **parts)
    verification = DecodeRunner(compiled, query_length=2, **parts)
    prefill.capture(lambda size: padding(3))
    verification.capture(lambda size: padding(size // 2))
    # For warm-up runs, and for the graph.
    prefilling, verifying = StepSize(tokens=4, sequences=3), StepSize(tokens=4, sequences=2)
    assert metadata.sizes == [prefilling] * 2 + [verifying] * 2

    batch = {"values": torch.arange(3.0), "table": torch.tensor([1.0, 2.0])}
    output = prefill.run(batch, {"rows": {"lengths": [4, 5]}})
    assert output.tolist() == [0 + 80, 1 + 200, 2 + 0]
    batch = {"values": torch.arange(4.0), "table": torch.tensor([1.0, 2.0])}
    output = verification.run(batch, {"rows": {"lengths": [6, 7]}})
    assert output.tolist() == [0 + 120, 1 + 280, 2 + 120, 3 + 280]
    batch = {"values": torch.arange(6.0), "table": torch.ones(3)}
    with pytest.warns(RuntimeWarning, match="larger than every capture size"):
        prefill.run(batch, {"rows": {"lengths": [1, 2, 3]}})
    assert metadata.sizes[-1] == StepSize(tokens=6, sequences=3)


def test_captured_steps_have_producers_of_each_key() -> None:
    setting = Setting("full")
    steps = CapturedSteps(
        setting.compile(),
        recorder=setting.recorder,
        lane=setting.lane,
        producers=setting.metadata.step_producers(),
    )
    values = torch.ones(4)
    small = GraphKey(num_tokens=2, num_sequences=2)
    large = GraphKey(num_tokens=4, num_sequences=4)
    inputs = {key: {"values": values[: key.num_tokens]} for key in (small, large)}
    steps.capture(inputs, lambda key: padding(key.num_tokens))

    def run(key: GraphKey, *lengths: int) -> list[float]:
        output: torch.Tensor = steps.run(key, inputs[key], {"rows": {"lengths": lengths}})
        return output.tolist()

    assert run(large, 1, 2, 3, 4) == [21, 41, 61, 81]
    assert run(small, 5, 6) == [101, 121]
    steps.release([small])
    assert run(large, 4, 3, 2, 1) == [81, 61, 41, 21]
    steps.capture({small: inputs[small]}, lambda key: padding(key.num_tokens))
    assert run(small, 7, 8) == [141, 161]
    with pytest.raises(ConfigError, match="has no num_sequences"):
        steps.capture({GraphKey(num_tokens=2): inputs[small]}, lambda key: padding(key.num_tokens))
    assert run(small, 1, 1) == [21, 21]


@pytest.mark.parametrize("captured", [False, True], ids=["beside", "inside"])
def test_step_over_a_bound_launches_nothing(captured: bool) -> None:
    setting = Setting("full")
    runner = setting.decode_runner(setting.metadata.step_producers(captured=captured))
    runner.capture(padding)
    assert_right(runner, [3, 4])
    before = setting.metadata.factors.clone()
    begun = setting.lane.begun
    with pytest.raises(StepParameterError, match=r"'longest' is too small.*9 at most.* needs 10"):
        runner.run({"values": torch.ones(2)}, {"rows": {"lengths": [1, 10]}})
    assert torch.equal(setting.metadata.factors, before)
    assert setting.lane.begun == begun
    assert_right(runner, [9, 1])


def test_step_whose_producer_fails_replays_nothing() -> None:
    setting = Setting("full")
    runner = setting.decode_runner(setting.metadata.step_producers())
    runner.capture(padding)
    setting.metadata.fails = True
    with pytest.raises(ProducerError, match=r"'factors' failed \(no factors"):
        runner.run({"values": torch.ones(2)}, {"rows": {"lengths": [1, 2]}})
    setting.metadata.fails = False
    assert_right(runner, [2, 1])


def test_lengths_that_nobody_reads_are_refused() -> None:
    setting = Setting("full")
    runner = setting.decode_runner(setting.metadata.step_producers())
    runner.capture(padding)
    before = setting.metadata.factors.clone()
    lengths = {**padding(2), "rowz": {"lengths": [1]}}
    with pytest.raises(StepParameterError, match="group 'rowz' is not declared"):
        runner.run({"values": torch.ones(2)}, lengths)
    assert torch.equal(setting.metadata.factors, before)


def test_eager_steps_of_mode_full_need_no_lengths_on_the_host() -> None:
    setting = Setting("full")
    runner = setting.decode_runner(setting.metadata.step_producers(), set_lengths=None)
    runner.capture(padding)
    with pytest.warns(RuntimeWarning, match="larger than every capture size"):
        assert_right(runner, [1, 2, 3, 4, 5])
    before = setting.metadata.factors.clone()
    with pytest.raises(InputError, match="unknown"):
        runner.run({"value": torch.ones(5), "values": torch.ones(5)}, padding(5))
    assert torch.equal(setting.metadata.factors, before)


class HalfwayModel(Model):
    """Fails in the capture of its second graph.

    Attributes:
        failure: how.
    """

    failure = ""

    def __call__(self, values: torch.Tensor) -> torch.Tensor:
        output = super().__call__(values)
        if not self._metadata.lane.device.is_capturing() or values.shape[0] > 2:
            return output
        if self.failure == "model":
            raise ValueError("failed half-way")
        return output[:1] if self.failure == "output" else output


@pytest.mark.parametrize(
    ("failure", "error", "captured"),
    [
        ("model", ValueError, False),
        ("model", ValueError, True),
        ("output", OutputError, False),
        ("output", OutputError, True),
        ("producer", ProducerError, True),
    ],
)
def test_capture_that_fails_half_way_releases_producers(
    failure: str, error: type[Exception], captured: bool
) -> None:
    setting = Setting("full")
    model = HalfwayModel(setting.recorder, setting.metadata, setting.context)
    model.failure, setting.model = failure, model
    metadata = setting.metadata
    runner = setting.decode_runner(metadata.step_producers(captured=captured))

    if failure == "producer":
        metadata.fails_in_capture_of = 2
    with pytest.raises(error):
        runner.capture(padding)
    assert not setting.recorder.keys
    assert not runner.compiled.captured_keys
    model.failure, metadata.fails_in_capture_of = "", 0
    runner.capture(padding)
    for lengths in ([3, 4], [1, 2, 3]):
        assert_right(runner, lengths)


def test_models_of_two_recorders_share_a_lane_under_equal_keys() -> None:
    first = Setting("full")
    second = Setting("full", device=first.device)
    second.metadata = first.metadata
    second.model = Model(second.recorder, second.metadata, second.context)
    second.model.scale = 3
    runners = [
        setting.decode_runner(setting.metadata.step_producers()) for setting in (first, second)
    ]
    for runner in runners:
        runner.capture(padding)
    for lengths in ([1, 2], [3, 4], [5]):
        assert_right(runners[0], lengths)
        assert_right(runners[1], lengths, scale=3)
    runners[0].release()
    assert_right(runners[1], [6, 7], scale=3)


def test_buffers_live_as_long_as_the_graphs_that_read_them() -> None:
    setting = Setting("full")
    metadata = setting.metadata
    runner = setting.decode_runner(metadata.step_producers())
    runner.capture(padding)
    # New buffers are not those of the graphs, which still have theirs made.
    metadata.factors = torch.zeros(MOST)
    gc.collect()
    kept = [each for each in metadata.made if each() is not None]
    assert len(kept) == len(SIZES)
    assert_right(runner, [3, 4])
    runner.release()
    gc.collect()
    assert all(each() is None for each in kept)
    runner.capture(padding)
    assert_right(runner, [5, 6])


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"advance": lambda *_: None, "steps": 2}, "with producers: expected no advance"),
        ({"inputs": SPECS, "query_length": None, "max_sequences": 2}, "declared per_sequence"),
        ({"producers": object()}, "producers is a object, expected a StepProducers"),
    ],
)
def test_runner_refuses_what_producers_cannot_serve(options: dict[str, Any], reason: str) -> None:
    setting = Setting("full")
    given = {"producers": setting.metadata.step_producers(), **options}
    with pytest.raises(ConfigError, match=reason):
        setting.decode_runner(**given)


def test_shadowed_steps_of_one_graph_refuse_producers() -> None:
    setting = Setting("full", shadow_every=2)
    with pytest.raises(ConfigError, match="shadow_every is 2"):
        setting.decode_runner(setting.metadata.step_producers())


def test_shadowed_steps_in_segments_have_producers() -> None:
    setting = Setting("breakable", shadow_every=2)
    runner = setting.decode_runner(setting.metadata.step_producers())
    runner.capture(padding)
    for lengths in ([3, 4], [5], [1, 2, 3], [9]):
        assert_right(runner, lengths)


def test_capture_needs_the_lengths_of_padding() -> None:
    setting = Setting("full")
    runner = setting.decode_runner(setting.metadata.step_producers())
    with pytest.raises(ConfigError, match="prepare returned None, expected the lengths"):
        runner.capture(lambda size: None)
    runner.capture(padding)
    assert_right(runner, [3, 4])


@pytest.mark.parametrize("made", [None, [None], 3])
def test_make_that_returns_no_producers_is_refused(made: Any) -> None:
    setting = Setting("full")
    producers = replace(setting.metadata.step_producers(), make=lambda _: made)
    with pytest.raises(ConfigError, match=r"make returned .*, expected a list of Producer"):
        setting.decode_runner(producers).capture(padding)


@pytest.mark.parametrize("needed", [None, {"lengths": 3}])
def test_needs_of_another_type_are_refused(needed: Any) -> None:
    setting = Setting("full")
    producers = setting.metadata.step_producers()
    runner = setting.decode_runner(replace(producers, needs=lambda *_: needed))
    runner.capture(padding)
    with pytest.raises(ConfigError, match=r"needs returned .*, expected numbers by bound"):
        runner.run({"values": torch.ones(2)}, {"rows": {"lengths": [1, 2]}})


def test_step_without_lengths_is_refused() -> None:
    setting = Setting("full")
    runner = setting.decode_runner(setting.metadata.step_producers())
    runner.capture(padding)
    none: Any = None
    with pytest.raises(InputError, match="lengths is None, expected values by parameter group"):
        runner.run({"values": torch.ones(2)}, none)
    assert_right(runner, [3, 4])


def test_capture_without_producers_is_refused() -> None:
    setting = Setting("full")
    with pytest.raises(RecordingError, match="'other', which a producer makes in every step"):
        setting.decode_runner(None).capture(padding)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"lane": None}, "lane is None, expected a ProducerLane"),
        ({"make": 3}, "make is 3, expected a function"),
        ({"needs": 3}, "needs is 3, expected a function"),
        ({"groups": "rows"}, "groups is 'rows', expected names"),
        ({"write_inputs": print}, "expected captured=True"),
        ({"write_inputs": 3, "captured": True}, "write_inputs is 3, expected a function"),
    ],
)
def test_declaration_of_another_type_is_refused(change: dict[str, Any], reason: str) -> None:
    given: dict[str, Any] = {
        "lane": ProducerLane(FakeDevice()),
        "make": list,
        "needs": dict,
        **change,
    }
    with pytest.raises(ConfigError, match=reason):
        StepProducers(**given)
