from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

import npu_compile
from npu_compile import CompileConfig, CompileMode, ConfigError
from npu_graph_runtime import FakeDevice, GraphKey, RunMode
from npu_graph_runtime.diagnosis import DifferenceKind, find_first_difference
from npu_graph_runtime.errors import GraphNotCapturedError, ReplacedWeightError

if TYPE_CHECKING:
    from conftest import AttentionOperator, Decoder

DYNAMIC = {"input_ids": (0,), "table": (0,)}


def _inputs(rows: int) -> dict[str, torch.Tensor]:
    return {"input_ids": torch.arange(rows) % 16, "table": torch.ones(rows, 2)}


def test_compiled_model_runs_many_sizes_on_one_graph(
    decoder: Decoder, attention: AttentionOperator, device: FakeDevice
) -> None:
    compiled = npu_compile.compile_model(decoder, device=device, dynamic_arg_dims=DYNAMIC)

    for rows in (4, 2, 3, 9):
        attention.lengths = list(range(rows))
        output = compiled(**_inputs(rows))
        torch.testing.assert_close(output, decoder(**_inputs(rows)), rtol=0, atol=0)

    assert len(compiled.reports) == 1


def test_compiled_model_runs_one_row_on_a_graph_of_its_own(
    decoder: Decoder, attention: AttentionOperator, device: FakeDevice
) -> None:
    compiled = npu_compile.compile_model(decoder, device=device, dynamic_arg_dims=DYNAMIC)

    for rows in (4, 1, 3, 1):
        attention.lengths = list(range(rows))
        output = compiled(*_inputs(rows).values())
        torch.testing.assert_close(output, decoder(**_inputs(rows)), rtol=0, atol=0)

    assert len(compiled.reports) == 2


def test_compiled_models_of_one_class_do_not_share_compilations(
    decoder: Decoder, attention: AttentionOperator, device: FakeDevice
) -> None:
    attention.lengths = [1, 2]
    models = [
        npu_compile.compile_model(decoder, device=device, dynamic_arg_dims=DYNAMIC)
        for _ in range(12)
    ]

    for compiled in models:
        compiled(**_inputs(2))

    assert [len(compiled.reports) for compiled in models] == [1] * 12


def test_compiled_model_full_captures_and_replays_the_whole(
    decoder: Decoder, attention: AttentionOperator, device: FakeDevice
) -> None:
    config = CompileConfig(mode=CompileMode.FULL, capture_sizes=(2,))
    compiled = npu_compile.compile_model(decoder, config, device=device, dynamic_arg_dims=DYNAMIC)
    inputs = _inputs(2)
    key = GraphKey(num_tokens=2)
    attention.lengths = [4, 5]
    with compiled.capture_session(), compiled.context.run(RunMode.FULL, key):
        compiled(**inputs)
    calls = attention.num_calls
    inputs["input_ids"] += 3

    with compiled.context.run(RunMode.FULL, key):
        output = compiled(**inputs)
    device.synchronize()

    assert compiled.num_captured_graphs == 1
    assert attention.num_calls == calls
    torch.testing.assert_close(output, decoder(**inputs), rtol=0, atol=0)


def test_compiled_model_full_without_capture_is_an_error(
    decoder: Decoder, attention: AttentionOperator, device: FakeDevice
) -> None:
    compiled = npu_compile.compile_model(decoder, {"mode": "full"}, device=device)

    with (
        compiled.context.run(RunMode.FULL, GraphKey(num_tokens=2)),
        pytest.raises(GraphNotCapturedError),
    ):
        compiled(**_inputs(2))


def test_compile_with_an_unknown_dynamic_argument_is_refused(
    decoder: Decoder, device: FakeDevice
) -> None:
    with pytest.raises(ConfigError, match=r"'ids', the model takes input_ids, table"):
        npu_compile.compile_model(decoder, device=device, dynamic_arg_dims={"ids": (0,)})


def test_replaced_weight_is_named_and_a_written_one_is_not(
    decoder: Decoder, attention: AttentionOperator, device: FakeDevice
) -> None:
    config = CompileConfig(mode=CompileMode.PIECEWISE, splitting_ops=(attention.name,))
    compiled = npu_compile.compile_model(decoder, config, device=device)
    inputs, key = _inputs(2), GraphKey(num_tokens=2)
    attention.lengths = [0, 0]
    with compiled.capture_session(), compiled.context.run(RunMode.BREAKABLE, key):
        compiled(**inputs)

    decoder.embedding.mul_(2)
    compiled.check_weights()
    decoder.embedding = torch.nn.Parameter(torch.zeros(16, 8), requires_grad=False)

    with pytest.raises(
        ReplacedWeightError, match=r"1 of 3 weights differ .* embedding is a tensor"
    ):
        compiled.check_weights()


def test_captured_pieces_are_compared_with_the_model_and_named(
    decoder: Decoder, attention: AttentionOperator, device: FakeDevice
) -> None:
    config = CompileConfig(mode=CompileMode.PIECEWISE, splitting_ops=(attention.name,))
    compiled = npu_compile.compile_model(decoder, config, device=device)
    inputs, key = _inputs(4), GraphKey(num_tokens=4)
    attention.lengths = [1, 2, 3, 4]

    def call() -> object:
        with compiled.context.run(RunMode.BREAKABLE, key):
            return compiled(**inputs)

    with compiled.capture_session():
        call()
    attention.lengths = [5, 6, 7, 8]
    good = find_first_difference(call, compiled.graphed_callables)
    kept = decoder.weights[1]
    decoder.weights[1] = torch.nn.Parameter(kept * float("nan"), requires_grad=False)
    found = find_first_difference(call, compiled.graphed_callables)

    assert good is None
    assert found is not None
    assert found.kind is DifferenceKind.DIFFERED
    assert found.place.startswith("segment 2 (piece_2 (")
    assert found.eager != found.eager


def test_model_is_reached_through_the_compiled_one() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(2, 2))

    assert npu_compile.compile_model(model, device=FakeDevice()).unwrap() is model
