from __future__ import annotations

import itertools
import warnings
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn

import npu_compile
from attn_update import Recorder, UpdateLane
from npu_compile import CompileConfig, ConfigError, InputError, InputSpec, PrefillRunner
from npu_compile.errors import RunnerStateError
from npu_graph_runtime import GraphContext, GraphKey, RunMode, runs_eagerly

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from attn_update import Lengths
    from npu_graph_runtime import FakeDevice

SPECS = {
    "ids": InputSpec(dtype=torch.int64),
    "table": InputSpec(dtype=torch.float32, trailing_shape=(2,), pad_value=-1, per_sequence=True),
}
DYNAMIC = {"ids": (0,), "table": (0,)}
CAPTURING = ("piecewise", "full_decode_and_piecewise", "breakable")
# Attention here cannot be updated; integration-tests/mode_matrix has mode full.
MODES = ("eager", *CAPTURING, "measured")
MAX_SEQUENCES = 3


class SequenceAttention:
    """Adds to each token a number of its sequence, which lengths on the host name."""

    def __init__(self, name: str, context: GraphContext) -> None:
        self.name = f"npu_compile_tests::{name}"
        self.lengths: list[int] = []
        self.num_calls = 0
        library: Any = torch.library.Library
        self._library = library("npu_compile_tests", "FRAGMENT")
        self._library.define(f"{name}(Tensor value, Tensor table, Tensor(a!) out) -> ()")
        self._library.impl(name, runs_eagerly(context)(self._run), "CompositeExplicitAutograd")
        torch.library.register_fake(self.name, lambda *_: None, lib=self._library)
        self.call = getattr(torch.ops.npu_compile_tests, name)

    def _run(self, value: torch.Tensor, table: torch.Tensor, out: torch.Tensor) -> None:
        self.num_calls += 1
        sums = table[: len(self.lengths)].sum(-1)
        own = sum(self.lengths)
        each = sums.repeat_interleave(torch.tensor(self.lengths, dtype=torch.int64))
        torch.add(value[:own], each[:, None], out=out[:own])


class Model(nn.Module):
    def __init__(self, attention: SequenceAttention) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.embedding = nn.Parameter(torch.randn(16, 8, generator=generator), requires_grad=False)
        self.weights = nn.ParameterList(
            nn.Parameter(torch.randn(8, 8, generator=generator), requires_grad=False)
            for _ in range(2)
        )
        self.attend = attention.call

    def forward(self, ids: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
        hidden = nn.functional.embedding(ids, self.embedding)
        for weight in self.weights:
            value = nn.functional.linear(hidden, weight)
            out = torch.empty_like(value)
            self.attend(value, table, out)
            hidden = torch.tanh(out) + hidden
        return hidden


@pytest.fixture(scope="module")
def numbers() -> Iterator[int]:
    return itertools.count()


@pytest.fixture
def context() -> GraphContext:
    return GraphContext()


@pytest.fixture
def attention(numbers: Iterator[int], context: GraphContext) -> SequenceAttention:
    return SequenceAttention(f"sequences_{next(numbers)}", context)


@pytest.fixture
def model(attention: SequenceAttention) -> Model:
    return Model(attention)


def _runner(
    model: Model,
    attention: SequenceAttention,
    device: FakeDevice,
    context: GraphContext,
    mode: str,
    sizes: tuple[int, ...] = (4, 8),
    **options: Any,
) -> PrefillRunner:
    config = CompileConfig.from_mapping(
        {
            "mode": mode,
            "prefill_capture_sizes": sizes,
            "splitting_ops": [attention.name],
            "measured_modes": ["eager", "piecewise"],
            **options,
        }
    )
    compiled = npu_compile.compile_model(
        model, config, device=device, dynamic_arg_dims=DYNAMIC, context=context
    )

    def set_lengths(lengths: Mapping[str, Mapping[str, Lengths]]) -> None:
        attention.lengths = torch.as_tensor(lengths["default"]["lengths"]).tolist()

    return PrefillRunner(
        compiled, inputs=SPECS, max_sequences=MAX_SEQUENCES, set_lengths=set_lengths
    )


def _capture(runner: PrefillRunner, attention: SequenceAttention) -> None:
    def prepare(size: int) -> None:
        del size
        attention.lengths = []

    runner.capture(prepare)


def _inputs(lengths: list[int], seed: int) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return {
        "ids": torch.randint(0, 16, (sum(lengths),), generator=generator),
        "table": torch.randn(len(lengths), 2, generator=generator),
    }


BATCHES = ([5], [1, 2, 3], [3], [1, 1, 1], [8], [2, 2], [4, 1], [7, 1])


@pytest.mark.parametrize("fuse", [True, False])
@pytest.mark.parametrize("mode", MODES)
def test_runner_gives_the_rows_of_the_model_for_any_batch(
    mode: str,
    fuse: bool,
    model: Model,
    attention: SequenceAttention,
    device: FakeDevice,
    context: GraphContext,
) -> None:
    runner = _runner(model, attention, device, context, mode, fuse=fuse)
    _capture(runner, attention)

    for seed, lengths in enumerate(BATCHES):
        inputs = _inputs(lengths, seed)
        output = runner.run(inputs, {"default": {"lengths": lengths}}).clone()
        device.synchronize()
        attention.lengths = lengths
        torch.testing.assert_close(output, model(**inputs))


def test_functions_marked_by_the_model_may_be_measured_too(
    model: Model, attention: SequenceAttention, device: FakeDevice, context: GraphContext
) -> None:
    measured = ["breakable", "eager"]
    runner = _runner(
        model, attention, device, context, "measured", sizes=(8,), measured_modes=measured
    )
    _capture(runner, attention)

    for seed, lengths in enumerate(BATCHES[:3]):
        inputs = _inputs(lengths, seed)
        output = runner.run(inputs, {"default": {"lengths": lengths}}).clone()
        device.synchronize()
        attention.lengths = lengths
        torch.testing.assert_close(output, model(**inputs))

    choice = runner.run_mode_choices[8]
    assert set(choice.seconds) == {RunMode.BREAKABLE, RunMode.EAGER}
    is_captured = choice.chosen is RunMode.BREAKABLE
    assert runner.compiled.num_captured_graphs == (3 if is_captured else 0)


@pytest.mark.parametrize("mode", CAPTURING)
def test_runner_replays_segments_of_the_smallest_size_that_fits(
    mode: str,
    model: Model,
    attention: SequenceAttention,
    device: FakeDevice,
    context: GraphContext,
) -> None:
    runner = _runner(model, attention, device, context, mode)
    _capture(runner, attention)
    calls = attention.num_calls

    for lengths in BATCHES:
        runner.run(_inputs(lengths, 0), {"default": {"lengths": lengths}})

    assert runner.compiled.num_captured_graphs == 2 * 3
    assert attention.num_calls == calls + 2 * len(BATCHES)
    assert [runner.padded_size(tokens) for tokens in (1, 4, 5, 8, 9)] == [4, 4, 8, 8, 9]


@pytest.mark.parametrize("mode", ["piecewise", "breakable"])
def test_runner_step_that_no_graph_fits_runs_eagerly(
    mode: str,
    model: Model,
    attention: SequenceAttention,
    device: FakeDevice,
    context: GraphContext,
) -> None:
    runner = _runner(model, attention, device, context, mode)
    _capture(runner, attention)

    said: list[str] = []
    for lengths in ([9], [5, 5], [1, 1, 1, 1], [1, 1, 1, 1]):
        inputs = _inputs(lengths, 3)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            output = runner.run(inputs, {"default": {"lengths": lengths}}).clone()
        # Dynamo has warnings of its own, on Python 3.13.0 for one.
        said += [str(each.message) for each in caught if "running a prefill" in str(each.message)]
        device.synchronize()
        attention.lengths = lengths
        torch.testing.assert_close(output, model(**inputs))
    # Each limit once.
    tokens, sequences = said
    assert "9 rows: it is larger than every capture size (largest: 8)" in tokens
    assert "4 sequences: it is larger than max_sequences (3)" in sequences


def test_runner_bad_input_launches_nothing(
    model: Model, attention: SequenceAttention, device: FakeDevice, context: GraphContext
) -> None:
    runner = _runner(model, attention, device, context, "piecewise")
    _capture(runner, attention)
    good, calls = _inputs([2, 2], 1), attention.num_calls

    with pytest.raises(InputError, match="`table` has dtype"):
        runner.run({**good, "table": good["table"].double()}, {"default": {"lengths": [2, 2]}})
    with pytest.raises(InputError, match=r"missing \['table'\]"):
        runner.run({"ids": good["ids"]}, {"default": {"lengths": [2, 2]}})

    assert attention.num_calls == calls


def test_runner_before_capture_is_an_error(
    model: Model, attention: SequenceAttention, device: FakeDevice, context: GraphContext
) -> None:
    runner = _runner(model, attention, device, context, "piecewise")

    with pytest.raises(RunnerStateError, match="the prefill graphs are not captured"):
        runner.run(_inputs([2], 1), {"default": {"lengths": [2]}})


def _doubled(ids: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
    return ids[:, None].float() * 2 + table.shape[0]


def _whole(device: FakeDevice) -> PrefillRunner:
    config = {"mode": "full", "fuse": False, "prefill_capture_sizes": [4, 8]}
    runner = PrefillRunner(
        npu_compile.compile_model(_doubled, config, device=device),
        inputs=SPECS,
        max_sequences=MAX_SEQUENCES,
        set_lengths=lambda _: None,
        recorder=Recorder(device),
        lane=UpdateLane(device),
        groups={},
    )
    runner.capture(lambda _: None)
    return runner


def test_mode_full_replays_one_graph_a_step_with_a_sequence_more_for_padding(
    device: FakeDevice,
) -> None:
    runner = _whole(device)

    assert runner.compiled.num_captured_graphs == 2
    assert set(runner.update_plans) == runner.compiled.captured_keys
    assert runner.padded_sequences(4) == runner.padded_sequences(8) == MAX_SEQUENCES + 1
    for seed, lengths in enumerate(BATCHES):
        inputs = _inputs(lengths, seed)
        output = runner.run(inputs, {}).clone()
        device.synchronize()
        expected = inputs["ids"][:, None].float() * 2 + MAX_SEQUENCES + 1
        torch.testing.assert_close(output, expected, rtol=0, atol=0)
    assert runner.statistics().eager == {}


def test_mode_full_runs_what_no_graph_holds_eagerly(device: FakeDevice) -> None:
    runner = _whole(device)

    for lengths in ([9], [1, 1, 1, 1]):
        inputs = _inputs(lengths, 0)
        with pytest.warns(RuntimeWarning, match="so it runs eagerly"):
            output = runner.run(inputs, {})
        torch.testing.assert_close(output, _doubled(**inputs), rtol=0, atol=0)


def test_breakable_model_without_fusions_needs_no_compiler(
    model: Model, attention: SequenceAttention, device: FakeDevice, context: GraphContext
) -> None:
    @runs_eagerly(context)
    def sum_on_the_host(value: torch.Tensor) -> torch.Tensor:
        # Dynamo refuses this in one graph.
        return torch.full_like(value, float(value.sum()))

    def host_reader(ids: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
        hidden: torch.Tensor = model(ids, table)
        return hidden * 2 + sum_on_the_host(hidden[:, :1])

    config = CompileConfig.from_mapping(
        {"mode": "breakable", "prefill_capture_sizes": [4], "fuse": False}
    )
    compiled = npu_compile.compile_model(host_reader, config, device=device, context=context)
    runner = PrefillRunner(
        compiled,
        inputs=SPECS,
        max_sequences=1,
        set_lengths=lambda lengths: attention.lengths.__setitem__(
            slice(None), torch.as_tensor(lengths["default"]["lengths"]).tolist()
        ),
    )
    _capture(runner, attention)

    for seed in range(3):
        inputs = _inputs([4], seed)
        output = runner.run(inputs, {"default": {"lengths": [4]}}).clone()
        device.synchronize()
        torch.testing.assert_close(output, host_reader(**inputs))

    assert compiled.reports == ()


def test_breakable_model_that_dynamo_cannot_trace_gets_a_remedy(
    device: FakeDevice, context: GraphContext
) -> None:
    marked = runs_eagerly(context)(torch.tanh)

    def model(values: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = marked(values + 1)
        return result * 2

    compiled = npu_compile.compile_model(
        model, {"mode": "breakable"}, device=device, context=context
    )
    key = GraphKey(num_tokens=4)

    with (
        compiled.capture_session(),
        context.run(RunMode.BREAKABLE, key),
        pytest.raises(ConfigError, match=r"compiling model in mode 'breakable'.*set fuse=False"),
    ):
        compiled(torch.ones(4))

    assert compiled.num_captured_graphs == 0


def test_modes_name_their_run_modes() -> None:
    found = {
        each.value: (each.prefill_run_mode, each.decode_run_mode)
        for each in npu_compile.CompileMode
    }

    assert found == {
        "eager": (RunMode.EAGER, RunMode.EAGER),
        "full": (RunMode.FULL, RunMode.FULL),
        "piecewise": (RunMode.BREAKABLE, RunMode.BREAKABLE),
        "full_decode_and_piecewise": (RunMode.BREAKABLE, RunMode.FULL),
        "breakable": (RunMode.BREAKABLE, RunMode.BREAKABLE),
        "torchair": (RunMode.FULL, RunMode.FULL),
        "measured": (RunMode.EAGER, RunMode.EAGER),
    }
