"""Steps of several rows a sequence, and of any number: for speculation and encoders."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import pytest
import torch

import npu_compile
from attn_update import Recorder, UpdateLane
from npu_compile import (
    ConfigError,
    DecodeRunner,
    InputError,
    InputSpec,
    draft_lengths,
    pack_sequences,
)
from npu_compile.errors import OutputError, RunnerStateError
from npu_compile.runners.step_form import StepForm
from npu_graph_runtime import GraphKey, sglang_decode_capture_sizes, vllm_capture_sizes

if TYPE_CHECKING:
    from attn_update import Lengths
    from npu_graph_runtime import FakeDevice

SPECS = {
    # By sequence first, as rows are not counted by it.
    "table": InputSpec(
        dtype=torch.float32, trailing_shape=(2,), pad_value=float("nan"), per_sequence=True
    ),
    "values": InputSpec(dtype=torch.float32, pad_value=float("nan")),
}
MODES = ("eager", "full", "breakable")


def model(table: torch.Tensor, values: torch.Tensor) -> dict[str, torch.Tensor]:
    """Return a row a token and a row a sequence; padding would show as nan."""
    return {"tokens": torch.tanh(values), "sequences": table.sum(-1) * 2}


def by_token(table: torch.Tensor, values: torch.Tensor) -> dict[str, torch.Tensor]:
    """Return a row a token alone."""
    return {"tokens": torch.tanh(values)}


def runner_of(device: FakeDevice, mode: str, **options: Any) -> DecodeRunner:
    config = {"mode": mode, "capture_sizes": options.pop("sizes", (2, 5, 9)), "fuse": False}
    function = options.pop("model", model)
    runner = DecodeRunner(
        npu_compile.compile_model(function, config, device=device),
        inputs=options.pop("inputs", SPECS),
        recorder=Recorder(device),
        lane=UpdateLane(device),
        **options,
    )
    runner.capture(lambda _: None)
    return runner


def inputs(rows: int, sequences: int) -> dict[str, torch.Tensor]:
    return {"table": torch.randn(sequences, 2), "values": torch.randn(rows)}


def check(runner: DecodeRunner, device: FakeDevice, rows: int, sequences: int) -> None:
    given = inputs(rows, sequences)
    found = {name: value.clone() for name, value in runner.run(given, {}).items()}
    device.synchronize()
    expected = model(**given)
    for name, value in found.items():
        torch.testing.assert_close(value, expected[name], rtol=0, atol=0)


@pytest.mark.parametrize("mode", MODES)
def test_verification_steps_are_padded_to_whole_sequences(mode: str, device: FakeDevice) -> None:
    runner = runner_of(device, mode, query_length=3, sizes=(2, 8, 9))

    assert [runner.padded_size(rows) for rows in (3, 6, 9)] == [3, 9, 9]
    assert runner.padded_sequences(9) == 3
    if mode != "eager":
        assert runner.compiled.captured_keys == {
            GraphKey(num_tokens=rows, num_sequences=rows // 3, uniform=True) for rows in (3, 9)
        }
    for sequences in (3, 1, 2, 1, 3):
        check(runner, device, 3 * sequences, sequences)


@pytest.mark.parametrize("rows", [2, 3, 5, 8])
@pytest.mark.parametrize("ranks", [1, 8])
def test_largest_batch_of_1000_limits_is_a_capture_size_in_whole_sequences(
    rows: int, ranks: int
) -> None:
    form = StepForm(SPECS, query_length=rows, max_sequences=None)
    for limit in range(rows, 1001):
        for sizes in (
            vllm_capture_sizes(limit, scale=1, max_capture_size=1024),
            sglang_decode_capture_sizes(limit, is_speculative=True),
        ):
            own = form.capture_sizes(tuple(sizes))
            assert own[-1] == limit // rows * rows
            assert all(size % rows == 0 for size in own)
            # Sizes of whole sequences, such as those for several ranks, stay as they are.
            rounded = tuple(sizes.rounded_to_multiples(rows, ranks))
            assert form.capture_sizes(rounded) == rounded


@pytest.mark.parametrize("mode", MODES)
def test_verification_batch_above_every_size_runs_eagerly(mode: str, device: FakeDevice) -> None:
    runner = runner_of(device, mode, query_length=3)

    with pytest.warns(RuntimeWarning, match=r"verification batch of 12 rows.*\(largest: 9\)"):
        check(runner, device, 12, 4)


@pytest.mark.parametrize("form", [{"query_length": 3}, {"query_length": None, "max_sequences": 2}])
def test_large_batch_whose_lengths_nothing_shows_is_refused(
    form: dict[str, Any], device: FakeDevice
) -> None:
    runner = runner_of(device, "full", model=by_token, **form)

    with pytest.raises(RunnerStateError, match=r"larger than (every|max_seq).*pass set_lengths"):
        runner.run(inputs(12, 4), {"default": {"lengths": [12]}})


@pytest.mark.parametrize(("rows", "sequences"), [(6, 3), (7, 2), (12, 3), (3, 2)])
@pytest.mark.parametrize("mode", MODES)
def test_verification_batch_of_broken_sequences_is_refused(
    mode: str, rows: int, sequences: int, device: FakeDevice
) -> None:
    runner = runner_of(device, mode, query_length=3)

    with pytest.raises(InputError, match=f"{rows} rows .*{sequences} sequences, expected 3 rows"):
        runner.run(inputs(rows, sequences), {})


def test_decode_and_verification_of_one_model_keep_their_graphs_apart(device: FakeDevice) -> None:
    config = {"mode": "full", "capture_sizes": (3, 6), "fuse": False}
    compiled = npu_compile.compile_model(model, config, device=device)
    recorder, lane = Recorder(device), UpdateLane(device)
    decode, verify = (
        DecodeRunner(
            compiled, inputs=SPECS, recorder=recorder, lane=lane, query_length=query_length
        )
        for query_length in (1, 3)
    )
    for runner in (decode, verify):
        runner.capture(lambda _: None)

    assert compiled.num_captured_graphs == 4
    check(decode, device, 5, 5)
    check(verify, device, 6, 2)
    check(decode, device, 6, 6)
    decode.release()
    check(verify, device, 3, 1)
    assert compiled.num_captured_graphs == 2


@pytest.mark.parametrize("mode", MODES)
def test_packed_steps_serve_any_rows_of_up_to_max_sequences(mode: str, device: FakeDevice) -> None:
    runner = runner_of(device, mode, model=by_token, query_length=None, max_sequences=3)

    # One more than fits, for the rows that a full batch leaves over; never more than rows.
    assert [runner.padded_sequences(size) for size in (2, 5, 9)] == [2, 4, 4]
    for rows, sequences in ((9, 3), (4, 3), (1, 1), (8, 1), (2, 2), (5, 2)):
        check(runner, device, rows, sequences)
    with pytest.warns(RuntimeWarning, match=r"packed batch of 4 sequences.*max_sequences \(3\)"):
        check(runner, device, 6, 4)
    with pytest.warns(RuntimeWarning, match=r"packed batch of 10 rows.*\(largest: 9\)"):
        check(runner, device, 10, 2)


def test_packed_output_by_sequence_is_refused_as_any_other_without_rows(
    device: FakeDevice,
) -> None:
    # Every size has as many sequences, so one that is not theirs would not be noticed.
    with pytest.raises(OutputError, match=r"shape \(4,\).* 9 rows, expected \[9, ...\]; let"):
        runner_of(device, "full", query_length=None, max_sequences=3)


def test_verification_output_with_other_rows_is_refused_at_capture(device: FakeDevice) -> None:
    def odd(table: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        return table[:1] + values[:1]

    with pytest.raises(OutputError, match=r"expected \[9, ...\] or \[3, ...\]"):
        runner_of(device, "full", model=odd, query_length=3)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"query_length": 0}, "query_length is 0"),
        ({"query_length": None}, "max_sequences None"),
        ({"query_length": None, "max_sequences": 0}, "max_sequences 0"),
        ({"query_length": 2, "max_sequences": 3}, "max_sequences 3"),
        ({"query_length": 10}, r"capture sizes, in rows, are \[2, 5, 9\]"),
        (
            {
                "query_length": 2,
                "inputs": {
                    name: dataclasses.replace(spec, per_sequence=True)
                    for name, spec in SPECS.items()
                },
            },
            "every input is declared",
        ),
    ],
)
def test_steps_of_no_form_are_refused(
    options: dict[str, Any], message: str, device: FakeDevice
) -> None:
    with pytest.raises(ConfigError, match=message):
        runner_of(device, "full", **options)


def test_draft_lengths_grow_by_a_token_a_step_but_those_of_padding() -> None:
    first: dict[str, Lengths] = {"queries": [1, 2, 3], "keys": torch.tensor([7, 1, 0])}

    assert draft_lengths(first, num_steps=3, growing=["keys"]) == {
        "draft.0": {"queries": [1, 2, 3], "keys": [7, 1, 0]},
        "draft.1": {"queries": [1, 2, 3], "keys": [8, 2, 0]},
        "draft.2": {"queries": [1, 2, 3], "keys": [9, 3, 0]},
    }
    with pytest.raises(InputError, match=r"growing among those names, found \['key'\]"):
        draft_lengths(first, num_steps=3, growing=["key"])
    with pytest.raises(InputError, match="at least one step"):
        draft_lengths(first, num_steps=0, growing=["keys"])


def test_packing_fills_steps_with_the_longest_first() -> None:
    assert pack_sequences([3, 9, 4, 1, 30, 2, 2], budget=10, max_sequences=3) == [
        (4,),
        (1, 3),
        (0, 2, 5),
        (6,),
    ]
    assert pack_sequences([], budget=10, max_sequences=3) == []
    for wrong in ({"budget": 0, "max_sequences": 1}, {"budget": 1, "max_sequences": 0}):
        with pytest.raises(InputError, match="at least 1 of each"):
            pack_sequences([1], **wrong)
    with pytest.raises(InputError, match="sequences of 0 tokens"):
        pack_sequences([1, 0], budget=4, max_sequences=2)
