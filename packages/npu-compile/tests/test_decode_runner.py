from __future__ import annotations

import sys
import warnings
from typing import TYPE_CHECKING

import pytest
import torch

import npu_compile
from attn_update import Recorder, RecordingError, UpdateLane
from npu_compile import CompileConfig, ConfigError, DecodeRunner, DecodeStep, InputError, InputSpec
from npu_compile.errors import OutputError, RunnerStateError
from npu_graph_runtime import GraphKey, RunMode
from piecewise_split import SplittingOpError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import FrameType

    from attn_update import Lengths
    from conftest import AttentionOperator, Decoder
    from npu_graph_runtime import FakeDevice

SPECS = {
    "input_ids": InputSpec(dtype=torch.int64),
    "table": InputSpec(dtype=torch.float32, trailing_shape=(2,)),
}
DYNAMIC = {"input_ids": (0,), "table": (0,)}


class _Steps:
    def __init__(self) -> None:
        self.seen: list[DecodeStep] = []

    def observe_decode(self, step: DecodeStep, /) -> None:
        self.seen.append(step)


def _inputs(rows: int, seed: int) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return {
        "input_ids": torch.randint(0, 16, (rows,), generator=generator),
        "table": torch.randn(rows, 2, generator=generator),
    }


def _runner(
    decoder: torch.nn.Module,
    attention: AttentionOperator,
    device: FakeDevice,
    *,
    mode: str,
    sizes: tuple[int, ...] = (1, 2, 4),
    steps: _Steps | None = None,
    recorder: Recorder | None = None,
    set_lengths: Callable[[Mapping[str, Mapping[str, Lengths]]], None] | None = None,
) -> DecodeRunner:
    config = CompileConfig.from_mapping(
        {"mode": mode, "capture_sizes": sizes, "splitting_ops": [attention.name]}
    )
    compiled = npu_compile.compile_model(decoder, config, device=device, dynamic_arg_dims=DYNAMIC)
    return DecodeRunner(
        compiled,
        inputs=SPECS,
        recorder=recorder or (Recorder(device) if mode == "full" else None),
        lane=UpdateLane(device) if mode == "full" else None,
        observer=steps,
        set_lengths=set_lengths,
    )


def _capture(runner: DecodeRunner, attention: AttentionOperator) -> None:
    def prepare(size: int) -> None:
        attention.lengths = [0] * size

    runner.capture(prepare)


@pytest.mark.parametrize("mode", ["eager", "piecewise"])
def test_runner_with_changing_batches_gives_the_padded_model_bitwise(
    mode: str, decoder: Decoder, attention: AttentionOperator, device: FakeDevice
) -> None:
    runner = _runner(decoder, attention, device, mode=mode)
    _capture(runner, attention)

    for turn, rows in enumerate((4, 1, 3, 2, 4, 3)):
        size = runner.padded_size(rows)
        attention.lengths = [turn + row for row in range(rows)] + [0] * (size - rows)
        inputs = _inputs(rows, turn)
        output = runner.run(inputs, {}).clone()
        device.synchronize()
        padded = {
            name: torch.cat([value, value.new_zeros(size - rows, *value.shape[1:])])
            for name, value in inputs.items()
        }
        torch.testing.assert_close(output, decoder(**padded)[:rows], rtol=0, atol=0)


def test_runner_full_replays_one_graph_a_size(
    decoder: Decoder, attention: AttentionOperator, device: FakeDevice
) -> None:
    steps = _Steps()
    runner = _runner(decoder, attention, device, mode="full", steps=steps)
    _capture(runner, attention)
    calls = attention.num_calls

    for turn, rows in enumerate((3, 1, 4)):
        inputs = _inputs(rows, turn)
        output = runner.run(inputs, {}).clone()
        device.synchronize()
        attention.lengths = [0] * rows
        torch.testing.assert_close(output, decoder(**inputs))
        calls += 2

    assert attention.num_calls == calls
    assert [(step.num_rows, step.padded_size) for step in steps.seen] == [(3, 4), (1, 1), (4, 4)]
    assert {step.run_mode for step in steps.seen} == {RunMode.FULL}
    assert all(0 < step.update_seconds < step.seconds for step in steps.seen)


def _torch_calls(run: Callable[[], object]) -> list[str]:
    """Return the functions of Dynamo that are called."""
    seen: list[str] = []

    def watch(frame: FrameType, event: str, _argument: object) -> None:
        if event == "call" and "_dynamo" in frame.f_code.co_filename:
            seen.append(f"{frame.f_code.co_filename}:{frame.f_code.co_name}")

    sys.setprofile(watch)
    try:
        run()
    finally:
        sys.setprofile(None)
    return seen


@pytest.mark.parametrize("mode", ["piecewise", "full"])
def test_runner_replay_enters_no_dynamo(
    mode: str, decoder: Decoder, attention: AttentionOperator, device: FakeDevice
) -> None:
    runner = _runner(decoder, attention, device, mode=mode)
    _capture(runner, attention)
    attention.lengths = [0] * 4

    assert _torch_calls(lambda: runner.run(_inputs(3, 1), {})) == []
    with runner.compiled.context.run(RunMode.EAGER):
        assert _torch_calls(lambda: runner.compiled(**_inputs(4, 1))) != []


def test_runner_piecewise_captures_a_segment_between_splitting_ops(
    decoder: Decoder, attention: AttentionOperator, device: FakeDevice
) -> None:
    runner = _runner(decoder, attention, device, mode="piecewise", sizes=(2, 4))
    _capture(runner, attention)

    assert runner.compiled.num_captured_graphs == 2 * (2 + 1)
    runner.release()
    assert runner.compiled.num_captured_graphs == 0


def test_runner_release_leaves_the_graphs_of_another_of_the_same_model(
    decoder: Decoder, attention: AttentionOperator, device: FakeDevice
) -> None:
    runner = _runner(decoder, attention, device, mode="piecewise", sizes=(2,))
    _capture(runner, attention)
    compiled, other = runner.compiled, GraphKey(num_tokens=3)
    inputs = _inputs(3, 1)
    attention.lengths = [0] * 3
    with compiled.capture_session(), compiled.context.run(RunMode.BREAKABLE, other):
        compiled(**inputs)

    runner.release()

    with compiled.context.run(RunMode.BREAKABLE, other):
        output = compiled(**inputs)
    device.synchronize()
    torch.testing.assert_close(output, decoder(**inputs))


def test_runner_reports_progress_largest_first(
    decoder: Decoder, attention: AttentionOperator, device: FakeDevice
) -> None:
    runner = _runner(decoder, attention, device, mode="piecewise")
    seen: list[tuple[int, int, int]] = []

    def prepare(size: int) -> None:
        attention.lengths = [0] * size

    runner.capture(prepare, on_captured=lambda *values: seen.append(values))

    assert seen == [(4, 1, 3), (2, 2, 3), (1, 3, 3)]


@pytest.mark.parametrize("mode", ["eager", "piecewise", "full"])
def test_runner_between_eager_calls_of_other_shapes_finds_its_graphs(
    mode: str, decoder: Decoder, attention: AttentionOperator, device: FakeDevice
) -> None:
    runner = _runner(decoder, attention, device, mode=mode)
    _capture(runner, attention)

    for turn in range(6):
        attention.lengths = [0] * (3 + turn)
        with runner.compiled.context.run(RunMode.EAGER):
            runner.compiled(**_inputs(3 + turn, turn))
        size = runner.padded_size(1 + turn % 4)
        attention.lengths = [0] * size
        output = runner.run(_inputs(1 + turn % 4, turn), {}).clone()
        device.synchronize()
        attention.lengths = [0] * output.shape[0]
        torch.testing.assert_close(output, decoder(**_inputs(1 + turn % 4, turn)))


@pytest.mark.parametrize("mode", ["eager", "piecewise", "full"])
def test_runner_batch_larger_than_every_size_runs_eagerly_with_one_warning(
    mode: str, decoder: Decoder, attention: AttentionOperator, device: FakeDevice
) -> None:
    runner = _runner(decoder, attention, device, mode=mode)
    _capture(runner, attention)
    attention.lengths = [2] * 6
    inputs = _inputs(6, 0)

    with pytest.warns(RuntimeWarning, match=r"6 rows.*larger than every capture size.*4"):
        first = runner.run(inputs, {}).clone()
    second = runner.run(inputs, {}).clone()
    device.synchronize()

    assert runner.padded_size(6) == 6
    torch.testing.assert_close(first, decoder(**inputs), rtol=0, atol=0)
    torch.testing.assert_close(second, first, rtol=0, atol=0)


def test_runner_bad_input_is_refused_and_the_next_step_works(
    decoder: Decoder, attention: AttentionOperator, device: FakeDevice
) -> None:
    runner = _runner(decoder, attention, device, mode="piecewise")
    _capture(runner, attention)
    attention.lengths = [1, 1]
    good = _inputs(2, 1)

    with pytest.raises(InputError, match="`table` has dtype"):
        runner.run({**good, "table": good["table"].double()}, {})
    output = runner.run(good, {}).clone()
    device.synchronize()

    torch.testing.assert_close(output, decoder(**good), rtol=0, atol=0)


def test_runner_step_before_capture_is_an_error(
    decoder: Decoder, attention: AttentionOperator, device: FakeDevice
) -> None:
    runner = _runner(decoder, attention, device, mode="piecewise")

    with pytest.raises(RunnerStateError, match="call capture"):
        runner.run(_inputs(2, 0), {})


def _assert_gives_what_the_model_gives(
    runner: DecodeRunner, decoder: Decoder, attention: AttentionOperator, device: FakeDevice
) -> None:
    attention.lengths = [0, 0]
    output = runner.run(_inputs(2, 3), {}).clone()
    device.synchronize()
    torch.testing.assert_close(output, decoder(**_inputs(2, 3)))


def test_runner_second_capture_needs_a_release(
    decoder: Decoder, attention: AttentionOperator, device: FakeDevice
) -> None:
    runner = _runner(decoder, attention, device, mode="full")
    _capture(runner, attention)

    with pytest.raises(RunnerStateError, match="release them first"):
        _capture(runner, attention)
    runner.release()
    _capture(runner, attention)

    _assert_gives_what_the_model_gives(runner, decoder, attention, device)


@pytest.mark.parametrize("mode", ["piecewise", "full"])
def test_runner_second_capture_that_is_refused_leaves_the_graphs(
    mode: str, decoder: Decoder, attention: AttentionOperator, device: FakeDevice
) -> None:
    runner = _runner(decoder, attention, device, mode=mode)
    _capture(runner, attention)
    other = DecodeRunner(
        runner.compiled, inputs=SPECS, recorder=Recorder(device), lane=UpdateLane(device)
    )
    runner.run(_inputs(2, 1), {})

    with pytest.raises(RunnerStateError, match="release them first"):
        _capture(runner, attention)
    # Its inputs have other addresses, so it may not replay graphs that read those of the first.
    with pytest.raises(RunnerStateError, match="another runner has captured the same model"):
        _capture(other, attention)

    _assert_gives_what_the_model_gives(runner, decoder, attention, device)


def test_runner_failed_capture_releases_what_was_captured(
    decoder: Decoder, attention: AttentionOperator, device: FakeDevice
) -> None:
    runner = _runner(decoder, attention, device, mode="full")

    def prepare(size: int) -> None:
        if size == 1:
            raise OSError("the engine failed")
        attention.lengths = [0] * size

    with pytest.raises(OSError, match="the engine failed"):
        runner.capture(prepare)
    _capture(runner, attention)

    assert runner.run(_inputs(1, 0), {}).shape == (1, 8)


def test_runner_splitting_op_that_occurs_nowhere_is_an_error_with_near_names(
    decoder: Decoder, attention: AttentionOperator, device: FakeDevice
) -> None:
    wrong = attention.name.replace("attention", "atention")
    config = CompileConfig.from_mapping(
        {"mode": "piecewise", "capture_sizes": [2], "splitting_ops": [wrong]}
    )
    compiled = npu_compile.compile_model(decoder, config, device=device, dynamic_arg_dims=DYNAMIC)
    runner = DecodeRunner(compiled, inputs=SPECS)

    with pytest.raises(SplittingOpError, match=attention.name):
        _capture(runner, attention)


@pytest.mark.parametrize(
    ("mode", "sizes", "message"),
    [("piecewise", (), "capture_sizes is empty"), ("full", (2,), "a recorder and a lane")],
)
def test_runner_configuration_that_cannot_work_is_refused(
    mode: str,
    sizes: tuple[int, ...],
    message: str,
    decoder: Decoder,
    attention: AttentionOperator,
    device: FakeDevice,
) -> None:
    config = CompileConfig.from_mapping(
        {"mode": mode, "capture_sizes": sizes, "splitting_ops": [attention.name]}
    )
    compiled = npu_compile.compile_model(decoder, config, device=device)

    with pytest.raises(ConfigError, match=message):
        DecodeRunner(compiled, inputs=SPECS)


def test_runner_shows_the_lengths_of_steps_without_updates(
    decoder: Decoder, attention: AttentionOperator, device: FakeDevice
) -> None:
    def set_lengths(lengths: Mapping[str, Mapping[str, Lengths]]) -> None:
        attention.lengths = torch.as_tensor(lengths["default"]["lengths"]).tolist()

    for mode in ("eager", "piecewise", "full"):
        runner = _runner(decoder, attention, device, mode=mode, set_lengths=set_lengths)
        _capture(runner, attention)
        for turn, rows in enumerate((2, 6, 5)):
            if mode == "full" and rows <= 4:
                continue
            inputs, lengths = _inputs(rows, turn), list(range(turn, turn + rows))
            padding = [0] * (runner.padded_size(rows) - rows)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", RuntimeWarning)
                output = runner.run(inputs, {"default": {"lengths": lengths + padding}}).clone()
            device.synchronize()
            attention.lengths = lengths
            torch.testing.assert_close(output, decoder(**inputs))


def test_runner_full_refuses_a_large_batch_whose_lengths_nothing_shows(
    decoder: Decoder, attention: AttentionOperator, device: FakeDevice
) -> None:
    runner = _runner(decoder, attention, device, mode="full")
    _capture(runner, attention)
    calls = attention.num_calls

    with pytest.raises(RunnerStateError, match=r"batch of 6 rows.*pass set_lengths"):
        runner.run(_inputs(6, 0), {"default": {"lengths": [1] * 6}})

    assert attention.num_calls == calls


class _TwoOutputs(torch.nn.Module):
    def __init__(self, decoder: Decoder) -> None:
        super().__init__()
        self.decoder = decoder

    def forward(
        self, input_ids: torch.Tensor, table: torch.Tensor
    ) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        hidden = self.decoder(input_ids, table)
        return hidden, {"mean": hidden.mean(-1)}


@pytest.mark.parametrize("mode", ["eager", "piecewise", "full"])
def test_runner_cuts_padding_off_every_output(
    mode: str, decoder: Decoder, attention: AttentionOperator, device: FakeDevice
) -> None:
    runner = _runner(_TwoOutputs(decoder), attention, device, mode=mode)
    _capture(runner, attention)
    attention.lengths = [0] * 4
    inputs = _inputs(3, 5)

    hidden, others = runner.run(inputs, {})
    device.synchronize()

    attention.lengths = [0] * 3
    expected = decoder(**inputs)
    torch.testing.assert_close(hidden, expected)
    torch.testing.assert_close(others["mean"], expected.mean(-1))


class _SumOutput(torch.nn.Module):
    def __init__(self, decoder: Decoder) -> None:
        super().__init__()
        self.decoder = decoder

    def forward(self, input_ids: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
        hidden: torch.Tensor = self.decoder(input_ids, table)
        return hidden.sum(0)


@pytest.mark.parametrize("mode", ["piecewise", "full"])
def test_runner_output_without_rows_is_refused_at_capture(
    mode: str, decoder: Decoder, attention: AttentionOperator, device: FakeDevice
) -> None:
    runner = _runner(_SumOutput(decoder), attention, device, mode=mode)

    with pytest.raises(OutputError, match=r"shape \(8,\) was returned for 4 rows"):
        _capture(runner, attention)


def test_runner_whose_capture_is_refused_leaves_the_records_of_another(
    decoder: Decoder, attention: AttentionOperator, device: FakeDevice
) -> None:
    recorder = Recorder(device)
    first = _runner(decoder, attention, device, mode="full", recorder=recorder)
    _capture(first, attention)
    recorded = recorder.keys
    second = _runner(decoder, attention, device, mode="full", recorder=recorder)

    with pytest.raises(RecordingError, match="is recorded already"):
        _capture(second, attention)

    assert recorder.keys == recorded
    inputs = _inputs(3, 1)
    output = first.run(inputs, {}).clone()
    device.synchronize()
    attention.lengths = [0] * 3
    torch.testing.assert_close(output, decoder(**inputs))
