"""How steps use the capture sizes: hits, padding, eager steps, and a warning about padding."""

from __future__ import annotations

import json
import random
import warnings
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
import torch

import npu_compile
from attn_update import Recorder, UpdateLane
from npu_compile import DecodeRunner, InputSpec, PrefillRunner, SizeUse
from npu_graph_runtime import AgreedStep, RunMode

if TYPE_CHECKING:
    from npu_graph_runtime import FakeDevice

SPECS = {"values": InputSpec(dtype=torch.float32)}
MODES = {"eager": RunMode.EAGER, "full": RunMode.FULL, "breakable": RunMode.BREAKABLE}


def model(values: torch.Tensor) -> torch.Tensor:
    return values * 2


def decoding(device: FakeDevice, mode: str, sizes: tuple[int, ...] = (2, 4, 16)) -> DecodeRunner:
    config = {"mode": mode, "capture_sizes": sizes, "fuse": False}
    return DecodeRunner(
        npu_compile.compile_model(model, config, device=device),
        inputs=SPECS,
        recorder=Recorder(device),
        lane=UpdateLane(device),
    )


def prefilling(device: FakeDevice) -> PrefillRunner:
    config = {"mode": "breakable", "prefill_capture_sizes": (8, 64), "fuse": False}
    runner = PrefillRunner(
        npu_compile.compile_model(model, config, device=device),
        inputs=SPECS,
        max_sequences=2,
        set_lengths=lambda _: None,
    )
    runner.capture(lambda _: None)
    return runner


def step(runner: DecodeRunner | PrefillRunner, rows: int, **options: Any) -> None:
    runner.run({"values": torch.ones(rows)}, {}, **options)


def run_steps(
    runner: DecodeRunner | PrefillRunner, number: int, batches: tuple[int, ...], **options: Any
) -> None:
    for turn in range(number):
        step(runner, batches[turn % len(batches)], **options)


@pytest.mark.filterwarnings("ignore:running a decode batch")
@pytest.mark.parametrize("mode", MODES)
def test_300_random_steps_are_counted_by_size(mode: str, device: FakeDevice) -> None:
    runner = decoding(device, mode)
    runner.capture(lambda _: None)
    drawn = random.Random(7)
    batches = [drawn.randint(1, 20) for _ in range(300)]
    for rows in batches:
        step(runner, rows)

    found = runner.statistics()
    expected = Counter(
        min((size for size in (2, 4, 16) if size >= rows), default=0) for rows in batches
    )
    assert found.num_steps == 300
    assert {use.size: use.num_steps for use in found.sizes} == {
        size: expected[size] for size in (2, 4, 16)
    }
    for use in found.sizes:
        own = [rows for rows in batches if runner.padded_size(rows) == use.size]
        assert use.run_mode is MODES[mode]
        assert use.num_exact == own.count(use.size)
        assert use.num_rows == sum(own)
        assert use.num_padding_rows == sum(use.size - rows for rows in own)
    assert found.eager == {"larger than every capture size (largest: 16)": expected[0]}


def test_reasons_of_eager_steps(device: FakeDevice) -> None:
    runner = decoding(device, "breakable")
    runner.capture_next(lambda _: None)
    step(runner, 1)
    runner.release()
    without = decoding(device, "eager", sizes=())
    agreed = AgreedStep(mode=RunMode.EAGER, bucket=None, num_tokens=(3, 20))
    for rows in (3, 5):
        step(without, rows)
    runner.capture(lambda _: None)
    step(runner, 3, agreed=agreed)
    with pytest.warns(RuntimeWarning, match="17 rows: it is larger"):
        step(runner, 17)

    assert without.statistics().eager == {"without a capture size": 2}
    # Counted across a release.
    found = runner.statistics()
    assert found.sizes == (
        SizeUse(size=16, run_mode=RunMode.BREAKABLE, num_steps=1, num_exact=0, num_rows=1),
    )
    assert found.eager == {
        "as ranks agreed": 1,
        "larger than every capture size (largest: 16)": 1,
    }


def test_steps_that_are_refused_are_not_counted(device: FakeDevice) -> None:
    runner = decoding(device, "full")
    runner.capture(lambda _: None)

    with pytest.raises(npu_compile.InputError):
        runner.run({"values": torch.ones(3).double()}, {})

    assert runner.statistics().num_steps == 0


def test_prefill_counts_tokens_and_batches_of_too_many_sequences(device: FakeDevice) -> None:
    config = {"mode": "breakable", "prefill_capture_sizes": (8, 64), "fuse": False}
    specs = {**SPECS, "ends": InputSpec(dtype=torch.int64, per_sequence=True)}
    runner = PrefillRunner(
        npu_compile.compile_model(lambda values, ends: values * 2, config, device=device),
        inputs=specs,
        max_sequences=2,
        set_lengths=lambda _: None,
    )
    runner.capture(lambda _: None)
    for sequences in (1, 2):
        runner.run({"values": torch.ones(8), "ends": torch.ones(sequences).long()}, {})
    with pytest.warns(RuntimeWarning, match="3 sequences"):
        runner.run({"values": torch.ones(8), "ends": torch.ones(3).long()}, {})

    found = runner.statistics()
    assert [(use.size, use.num_steps, use.num_exact) for use in found.sizes] == [(8, 2, 2)]
    assert found.eager == {"larger than max_sequences (2)": 1}


def test_table_and_data_say_the_same(device: FakeDevice) -> None:
    runner = decoding(device, "full")
    runner.capture(lambda _: None)
    for rows in (2, 3, 3, 3):
        step(runner, rows)
    with pytest.warns(RuntimeWarning, match="17 rows"):
        step(runner, 17)

    found = runner.statistics()
    assert str(found) == (
        "decode steps: 5\n"
        "    size  run mode     steps   exact  padding\n"
        "       2  full             1       1     0.0%\n"
        "       4  full             3       0    25.0%\n"
        "  eager: 1 steps, larger than every capture size (largest: 16)"
    )
    assert json.loads(json.dumps(found.to_mapping()))["sizes"][1] == {
        "size": 4,
        "run_mode": "full",
        "num_steps": 3,
        "num_exact": 0,
        "num_rows": 9,
    }


def test_size_that_is_often_missed_is_warned_of_once(device: FakeDevice) -> None:
    runner = decoding(device, "full", sizes=(2, 16))
    runner.capture(lambda _: None)
    with pytest.warns(RuntimeWarning) as said:
        run_steps(runner, 4096, (5, 2, 2, 2))

    (text,) = (str(each.message) for each in said)
    assert text == (
        "running decode steps: 256 of 1024 steps were padded to 16 rows, more than twice their "
        "own, most often from 5; add 5 to capture_sizes (said once)"
    )


def test_prefill_names_its_own_key(device: FakeDevice) -> None:
    runner = prefilling(device)
    with pytest.warns(RuntimeWarning, match=r"1024 of 1024 steps .* 20; add 20 to prefill_capture"):
        run_steps(runner, 1024, (20,))


@pytest.mark.parametrize("batches", [(3, 4, 9, 16), (1,), (2,) * 9 + (5,)])
def test_usual_padding_and_rare_batches_are_not_warned_of(
    batches: tuple[int, ...], device: FakeDevice
) -> None:
    runner = decoding(device, "full")
    runner.capture(lambda _: None)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run_steps(runner, 2048, batches)


def test_padding_that_ranks_agreed_on_or_while_sizes_are_pending_is_not_warned_of(
    device: FakeDevice,
) -> None:
    runner = decoding(device, "full")
    idle, agreed = (
        AgreedStep(mode=RunMode.FULL, bucket=16, num_tokens=(rows, 16)) for rows in (0, 1)
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        runner.capture_next(lambda _: None)
        run_steps(runner, 1024, (1,))
        while runner.capture_next(lambda _: None):
            pass
        run_steps(runner, 1024, (1,), agreed=agreed)
        run_steps(runner, 1024, (0,), agreed=idle)
        run_steps(runner, 2048, (2,))
