"""Whatever a runner is made of or given wrongly is a clear error, and the next step works."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch

from attn_update import Recorder, UpdateLane
from npu_compile import (
    CompiledModel,
    ConfigError,
    DecodeRunner,
    InputError,
    InputSpec,
    PrefillRunner,
    compile_model,
)
from npu_compile.errors import RunnerStateError
from npu_graph_runtime import FakeDevice

if TYPE_CHECKING:
    from collections.abc import Callable

IDS = InputSpec(dtype=torch.int64)
SPECS = {"ids": IDS, "table": InputSpec(dtype=torch.float32, trailing_shape=(2,))}
GOOD = {"ids": torch.arange(3), "table": torch.ones(3, 2)}


def _model(ids: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
    return ids[:, None].float() + table


def _compiled(device: FakeDevice, **options: Any) -> CompiledModel:
    sizes = {"capture_sizes": [1, 2, 4], "prefill_capture_sizes": [4]}
    options = {"mode": "breakable", "fuse": False, **sizes, **options}
    dims = dict.fromkeys(SPECS, (0,))
    return compile_model(_model, options, device=device, dynamic_arg_dims=dims)


def _decode(device: FakeDevice, **arguments: Any) -> DecodeRunner:
    return DecodeRunner(_compiled(device), **{"inputs": SPECS, **arguments})


def _full(device: FakeDevice, **arguments: Any) -> DecodeRunner:
    given = {"inputs": SPECS, "recorder": Recorder(device), "lane": UpdateLane(device)}
    return DecodeRunner(_compiled(device, mode="full"), **{**given, **arguments})


def _prefill(device: FakeDevice, mode: str = "breakable", **arguments: Any) -> PrefillRunner:
    given = {"inputs": SPECS, "max_sequences": 2, "set_lengths": lambda _: None}
    return PrefillRunner(_compiled(device, mode=mode), **{**given, **arguments})


def _whole_prefill(device: FakeDevice, **arguments: Any) -> PrefillRunner:
    return _prefill(device, "full", **arguments)


BAD_ARGUMENTS: list[tuple[Any, dict[str, Any], str]] = [
    *[
        (make, {"inputs": value}, message)
        for make in (_decode, _prefill)
        for value, message in (
            (["ids"], "inputs is a list, expected a mapping"),
            ({}, "takes ids, table, .*declared are none: missing a required argument: 'ids'"),
            ({"ids": IDS}, "missing a required argument: 'table'"),
            ({**SPECS, "idz": IDS}, "unexpected keyword argument 'idz'"),
            ({**SPECS, "ids": torch.int64}, "'ids' is declared as torch.int64, expected an Input"),
        )
    ],
    (_full, {"recorder": None}, "a recorder and a lane are needed .* found no recorder; pass both"),
    (_full, {"lane": None}, "a recorder and a lane are needed .* found no lane; pass both"),
    (_whole_prefill, {}, "found no recorder and no lane and no groups; pass all three, or leave"),
    (_whole_prefill, {"groups": ["rows"]}, "groups is a list, expected a Mapping"),
    (_full, {"recorder": Recorder}, "recorder is Recorder, expected a Recorder; make it"),
    (_full, {"recorder": object()}, "recorder is a object, expected a Recorder"),
    (_full, {"lane": UpdateLane}, "lane is UpdateLane, expected a UpdateLane; make it"),
    (_full, {"groups": ["rows"]}, "groups is a list, expected a Mapping"),
    (_decode, {"set_lengths": {}}, "set_lengths is {}, expected a function"),
    (_decode, {"observer": print}, "expected an object with a method observe_decode"),
    (_decode, {"query_length": 0}, "query_length is 0"),
    (_decode, {"query_length": True}, "query_length is True"),
    (_decode, {"query_length": 1.5}, "query_length is 1.5"),
    (_decode, {"query_length": "1"}, "query_length is '1'"),
    (_decode, {"query_length": 8}, "expected one of at least 8"),
    (_decode, {"query_length": None}, "max_sequences None"),
    (_decode, {"query_length": None, "max_sequences": 0}, "max_sequences 0"),
    (_decode, {"query_length": None, "max_sequences": "2"}, "max_sequences '2'"),
    (_decode, {"max_sequences": 2}, "query_length is 1 and max_sequences 2"),
    (_prefill, {"max_sequences": 0}, "max_sequences is 0"),
    (_prefill, {"max_sequences": "2"}, "max_sequences is '2'"),
    (_prefill, {"max_sequences": True}, "max_sequences is True"),
    (_prefill, {"set_lengths": None}, "set_lengths is None, expected a function"),
]

BAD_SPECS: list[tuple[dict[str, Any], str]] = [
    ({"dtype": "int64"}, "dtype is 'int64', expected a torch.dtype"),
    ({"trailing_shape": 2}, "trailing_shape is 2, expected a tuple"),
    ({"trailing_shape": (-1,)}, r"trailing_shape is \(-1,\)"),
    ({"trailing_shape": (2.0,)}, r"trailing_shape is \(2.0,\)"),
    ({"per_sequence": 1}, "per_sequence is 1, expected True or False"),
    ({"pad_value": "x"}, "pad_value is 'x'"),
    ({"pad_value": 0.5}, "pad_value is 0.5, expected a number that torch.int64 can hold"),
    ({"pad_value": float("inf")}, "pad_value is inf"),
    ({"dtype": torch.int32, "pad_value": 1 << 40}, "torch.int32 can hold"),
    ({"dtype": torch.uint8, "pad_value": -1}, "torch.uint8 can hold"),
    ({"dtype": torch.bool, "pad_value": 2}, "torch.bool can hold"),
]

BAD_INPUTS: list[tuple[Any, str]] = [
    ({"ids": GOOD["ids"]}, r"missing \['table'\]"),
    ({**GOOD, "x": GOOD["ids"]}, r"unknown \['x'\]"),
    ({**GOOD, "ids": torch.arange(3, dtype=torch.int32)}, "`ids` has dtype torch.int32"),
    ({**GOOD, "table": torch.ones(3, 3)}, "`table` has shape"),
    ({**GOOD, "table": torch.ones(3)}, "`table` has shape"),
    ({**GOOD, "ids": torch.arange(2)}, "all must have one row a token"),
    ({"ids": torch.arange(0), "table": torch.ones(0, 2)}, "0 rows, expected at least 1"),
    ({**GOOD, "ids": torch.arange(3, device="meta")}, "`ids` is on meta"),
    ({"ids": [1, 2, 3], "table": [1]}, "expected a mapping of input names to tensors"),
    (GOOD["ids"], "expected a mapping of input names to tensors"),
    # Larger than every capture size, so that it would run as it is.
    ({"ids": torch.arange(9), "table": torch.ones(8, 2)}, "all must have one row a token"),
    ({"ids": torch.arange(9)}, r"missing \['table'\]"),
    ({"ids": torch.arange(9).int(), "table": torch.ones(9, 2)}, "`ids` has dtype torch.int32"),
]


@pytest.mark.parametrize(("make", "arguments", "message"), BAD_ARGUMENTS)
def test_runner_with_wrong_arguments_is_refused(
    make: Callable[..., object], arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        make(FakeDevice(), **arguments)


@pytest.mark.parametrize(
    ("make", "further"),
    [(DecodeRunner, {}), (PrefillRunner, {"max_sequences": 1, "set_lengths": print})],
)
def test_model_that_is_not_compiled_is_refused(make: Any, further: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"a function, expected a CompiledModel; compile it"):
        make(_model, inputs=SPECS, **further)


@pytest.mark.parametrize(("values", "message"), BAD_SPECS)
def test_input_declared_wrongly_is_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        InputSpec(**{"dtype": torch.int64, **values})


@pytest.mark.parametrize("make", [_decode, _prefill])
def test_step_given_wrongly_is_refused_and_the_next_one_works(
    make: Callable[[FakeDevice], DecodeRunner | PrefillRunner],
) -> None:
    device = FakeDevice()
    runner = make(device)
    with pytest.raises(ConfigError, match="prepare is None, expected a function"):
        runner.capture(None)  # type: ignore[arg-type]
    with pytest.raises(RunnerStateError, match="not captured"):
        runner.run(GOOD, {})
    runner.capture(lambda _: None)
    for inputs, message in BAD_INPUTS:
        with pytest.raises(InputError, match=message):
            runner.run(inputs, {})
        found = runner.run(GOOD, {})
        device.synchronize()
        torch.testing.assert_close(found, _model(**GOOD))
